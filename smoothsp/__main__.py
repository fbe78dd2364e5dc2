"""``python -m smoothsp`` runs the command ``smoothsp``."""

from smoothsp.command_line import command

if __name__ == "__main__":
    command()
