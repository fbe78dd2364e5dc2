"""Refusing what would not fit, before it is allocated."""

import os
from pathlib import Path

# What is kept free for everything that is not counted.
_SPARE = 0.05


def available_bytes() -> int | None:
    """Memory that a new allocation may take, or None where the system does not say."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    except OSError:
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def require(needed: dict[str, int], remedy: str) -> None:
    """Raise MemoryError when the machine has not the bytes that are ``needed``.

    Parameters
    ----------
    needed
        What for, in words, and how many bytes.
    remedy
        What the user can do.
    """
    total, free = sum(needed.values()), available_bytes()
    if free is None or total <= (1 - _SPARE) * free:
        return
    parts = ", ".join(
        f"{size / 1e9:.3g} GB for {what}" for what, size in needed.items()
    )
    raise MemoryError(
        f"the fit needs {parts}; this machine has {free / 1e9:.3g} GB left. {remedy}"
    )
