"""Folders of training runs: one run at a time, tested for writing before it begins."""

import os
import re
import socket
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:
    # Windows has other locks.
    fcntl = None  # type: ignore[assignment]

__all__ = ["CHECKPOINT", "LOCK", "MODEL", "held", "is_main_process", "require_free"]

LOCK = ".lock"
"""Name of the file that the process of a run locks."""
CHECKPOINT = "checkpoint.ckpt"
"""Name of the checkpoint in the folder of a run."""
MODEL = "model"
"""Name of the folder of the best model in the folder of a run."""
# of a model that was saved to the folder itself
CONFIG = "config.json"
UNFINISHED = re.compile(r"\..+\.[0-9a-f]{8}\.part")
RANKS = ("RANK", "LOCAL_RANK", "SLURM_PROCID")


def is_main_process() -> bool:
    """Whether this process is the first, or the only one, of a run."""
    return not any(int(os.environ.get(name) or 0) for name in RANKS)


def require_free(
    folder: Path,
    resume: bool = False,
    overwrite: bool = False,
    checkpoint: str = CHECKPOINT,
) -> None:
    """Raise if there is no run to resume, or a run that is not to be replaced.

    Raises
    ------
    FileNotFoundError
        If there is no run to resume.
    ValueError
        If there is a run or a model, and neither ``resume`` nor ``overwrite``.
    """
    if resume and overwrite:
        raise ValueError("resume: expected resume or overwrite, got both")
    if resume:
        # here, because it imports PyTorch, which --help of a recipe does not need
        from smoothsp.checkpoints import require_file

        require_file(folder / checkpoint)
    elif not overwrite and is_main_process():
        for name in (checkpoint, MODEL, CONFIG):
            if os.path.lexists(folder / name):
                raise ValueError(
                    f"out: expected a folder without a run, got {folder}, which has"
                    f" {name}. Continue that run with resume, replace it with"
                    " overwrite, or give another folder"
                )


@contextmanager
def held(folder: Path, model: Path | None = None) -> Iterator[None]:
    """Create the folder of a run, and lock it until the context ends.

    The operating system releases a lock with the process that holds it, however that
    ends. Of several processes of a run, the first takes it. Folders that were made are
    removed again if the run fails before it writes anything.

    Parameters
    ----------
    folder
        Folder of the run.
    model
        Folder in it, if any, that a trained model is to be saved to.

    Raises
    ------
    OSError
        If the folder cannot be written to.
    ValueError
        If another run uses it, or ``model`` is a file.
    """
    if not is_main_process():
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
                " file. Move it, or give another folder"
            )
        if _is_locked(lock):
            lock.seek(0)
            who = lock.read().decode() or "another process"
            raise ValueError(
                f"out: expected a folder that no other run uses, got {folder}, used by"
                f" {who}. Wait for it, or give another folder"
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
        " another one"
    )


def _is_locked(lock: BinaryIO) -> bool:
    """Take the lock, unless another process has it."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as error:
        warnings.warn(f"{lock.name}: no lock here, {error.strerror}", stacklevel=4)
    return False


def _tidy(folder: Path) -> None:
    """Remove files that killed processes left unfinished."""
    for pattern in (".*.part", "*/.*.part"):
        for path in folder.glob(pattern):
            if UNFINISHED.fullmatch(path.name):
                path.unlink(missing_ok=True)
