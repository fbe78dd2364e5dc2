"""What a command does before it imports: imports take seconds, and Ctrl-C ends them."""

import signal


def default_sigint() -> None:
    """Let Ctrl-C end this process at once, without a traceback, until it is awaited."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def restore_sigint() -> bool:
    """Let Ctrl-C raise KeyboardInterrupt again; whether it did not."""
    was_default = signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    if was_default:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return was_default
