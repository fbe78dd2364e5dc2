"""Take away the parts of Python that only Linux has, as on macOS or Windows.

``python -m pytest -p tests.other_systems tests/oracles tests/losses tests/linear`` runs
tests without them. Tests that start, limit or kill processes need Linux themselves.
"""

import builtins
import ctypes
import importlib
import os
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Imported beforehand, because they see another system: they know what it lacks.
LIBRARIES = (
    *("torch", "torch._inductor", "numba", "scipy", "sklearn", "pytorch_lightning"),
    *(
        "transformers.modeling_utils",
        "matplotlib.pyplot",
        "nltk",
        "cv2",
        "huggingface_hub",
    ),
)
# Modules and functions of Python that Windows lacks.
MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty")
OF_OS = (
    *("fork", "forkpty", "getuid", "geteuid", "getpgid", "killpg", "mkfifo", "nice"),
    *("sched_getaffinity", "sched_setaffinity", "sched_yield", "setsid", "statvfs"),
    *("sysconf", "uname", "wait", "wait4", "posix_spawn", "pread", "pwrite"),
)
OF_SIGNAL = (
    *("SIGKILL", "SIGALRM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGPIPE", "SIGCHLD"),
    *("alarm", "setitimer", "pause", "pthread_kill", "pthread_sigmask", "sigwait"),
)
OF_SELECT = ("poll", "epoll")


def block() -> None:
    """Remove them, of the modules that are imported later."""
    # PyTorch, numba and their like know other systems: they see this one
    for name in LIBRARIES:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    for module, names in ((os, OF_OS), (signal, OF_SIGNAL), (select, OF_SELECT)):
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    ctypes.CDLL = _named_library(ctypes.CDLL)  # type: ignore[assignment,misc]
    builtins.open = _no_proc(builtins.open)  # type: ignore[assignment]
    Path.open = _no_proc(Path.open)  # type: ignore[method-assign]


def _named_library(load: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse the library without a name, which is the process itself on Linux."""

    def loaded(name: str | None, *args: Any, **options: Any) -> Any:
        if name is None:
            raise TypeError("bad argument type for built-in operation")
        return load(name, *args, **options)

    return loaded


def _no_proc(function: Callable[..., Any]) -> Callable[..., Any]:
    """Hide ``/proc``."""

    def opened(path: Any, *args: Any, **options: Any) -> Any:
        # scikit-learn reads maps, which it does not need elsewhere
        if str(path).startswith("/proc/") and not str(path).endswith("/maps"):
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return function(path, *args, **options)

    return opened


def pytest_configure() -> None:
    """Called by pytest once its own plugins are loaded."""
    block()
