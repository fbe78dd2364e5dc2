"""The folder of a run: one run at a time, and known to be writable before it begins."""

import os
import re
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:
    # Windows has other locks.
    fcntl = None

LOCK = ".lock"
UNFINISHED = re.compile(r"\..+\.[0-9a-f]{8}\.part")
RANKS = ("RANK", "LOCAL_RANK", "SLURM_PROCID")


@contextmanager
def held(folder: Path, model: Path | None = None) -> Iterator[None]:
    """Make the folder if need be, and keep other runs out of it meanwhile.

    ``model`` is the folder in it, if any, that a trained model is to be saved to.

    The operating system lets go of a lock with the process that holds it, however that
    ends, so none is ever left behind. Of a run of several processes the first holds it.
    Folders that it made go again with a run that failed before it wrote anything.
    """
    if any(int(os.environ.get(name) or 0) for name in RANKS):
        yield
        return
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK).open("a+b", buffering=0)
    except OSError as error:
        raise _unusable(folder, error) from error
    with lock:
        if model is not None and os.path.lexists(model) and not model.is_dir():
            raise ValueError(
                f"out: expected a folder for the model, or nothing, at {model}, got a"
                " file. Move it, or give another folder with --out"
            )
        if _is_taken(lock):
            lock.seek(0)
            who = lock.read().decode() or "another process"
            raise ValueError(
                f"out: expected a folder that no other run uses, got {folder}, used by"
                f" {who}. Wait for it, or give another folder with --out"
            )
        try:
            lock.truncate(0)
            began = time.strftime("%Y-%m-%d %H:%M:%S")
            who = f"process {os.getpid()} on {socket.gethostname()} since {began}"
            lock.write(who.encode())
            _tidy(folder)
        except OSError as error:
            raise _unusable(folder, error) from error
        try:
            yield
        except BaseException:
            _unmake(folder, made)
            raise


def _unmake(folder: Path, made: list[Path]) -> None:
    """Remove folders that were made, from the innermost, as long as they are empty."""
    if made and [path.name for path in folder.iterdir()] == [LOCK]:
        (folder / LOCK).unlink()
        with suppress(OSError):
            for path in made:
                path.rmdir()


def _unusable(folder: Path, error: OSError) -> OSError:
    return OSError(
        f"out: expected a folder to write to, got {folder}: {error.strerror}. Give"
        " another one with --out"
    )


def _is_taken(lock: BinaryIO) -> bool:
    """Take the lock, unless another process has it."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as error:
        print(f"warning: {lock.name}: no lock here, {error.strerror}", file=sys.stderr)
    return False


def _tidy(folder: Path) -> None:
    """Remove what processes that were killed had not written to the end."""
    for pattern in (".*.part", "*/.*.part"):
        for path in folder.glob(pattern):
            if UNFINISHED.fullmatch(path.name):
                path.unlink(missing_ok=True)
