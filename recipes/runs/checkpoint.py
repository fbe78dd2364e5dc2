"""Files that are either whole or not there, and training state kept in one."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import torch


def write(path: Path, fill: Callable[[BinaryIO], Any]) -> None:
    """Write a file so that whoever opens it finds the old one or the new one, whole.

    True even if the process is killed or the machine loses power at any moment.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, so that the last step is a rename, which is atomic.
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as sink:
            fill(sink)
            sink.flush()
            os.fsync(sink.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def save(path: Path, state: dict[str, Any]) -> None:
    write(path, lambda sink: torch.save(state, sink))


def load(path: Path) -> dict[str, Any]:
    """The state saved at ``path``, on the CPU. Runs no code that the file may hold."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise ValueError(
            f"{path}: expected a checkpoint of this recipe, got a file that is no such"
            f" thing or is damaged ({str(error).partition(chr(10))[0]})"
        ) from error
    if not isinstance(state, dict) or not {"settings", "best"} <= state.keys():
        raise ValueError(f"{path}: expected a checkpoint of this recipe, got another")
    return state


def load_to_resume(path: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """The state saved at ``path``, if it was made with the same settings."""
    if not path.is_file():
        raise FileNotFoundError(
            f"resume: expected a run to continue, found no {path}. Start it without"
            " --resume, or give its folder with --out"
        )
    state = load(path)
    for name, value in settings.items():
        began = state["settings"].get(name)
        if began != value:
            raise ValueError(
                f"{name}: expected {began} as in the run to resume ({path}), got"
                f" {value}. Resume with what it began with, or train anew with another"
                " --out"
            )
    return state
