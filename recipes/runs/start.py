"""What a recipe does before its imports, which take seconds."""

from collections.abc import Callable

from runs import options, terminal


def read_options(config_class: Callable[..., object]) -> None:
    """Read the command line; ``--help`` and unusable options end the process.

    ``command_line`` of the recipe reads it again for the values.
    """
    terminal.run(lambda: options.read(config_class))
