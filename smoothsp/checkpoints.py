"""Checkpoints of training runs: written atomically, loaded without running code."""

import io
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from smoothsp.atomic_files import replace

__all__ = ["read", "require_file", "require_same", "write"]

ANEW = "Train again with overwrite, or in another folder"


def write(path: Path, state: Mapping[str, Any]) -> None:
    """Save a state; an existing file is replaced in one step.

    Raises
    ------
    OSError
        If the file cannot be written; an existing file then stays as it is.
    """
    # serialise in memory first, so that only the disk can fail below
    content = io.BytesIO()
    torch.save(state, content)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(path, content.getbuffer())
    except OSError as error:
        raise OSError(
            f"{path}: expected to write {content.tell():,} bytes, got"
            f" {error.strerror or error}. The existing file is unchanged"
        ) from error


def read(path: Path) -> dict[str, Any]:
    """Return the dictionary that was saved, on the CPU, with no NaN in its tensors.

    Code in the file is not run (``weights_only=True``).

    Raises
    ------
    ValueError
        If the file is damaged, or does not contain a dictionary.
    """
    content = io.BytesIO(path.read_bytes())
    try:
        with zipfile.ZipFile(content) as parts:
            # torch.load does not verify the checksums of the archive
            if damaged := parts.testzip():
                raise ValueError(f"wrong checksum of {damaged}")
        content.seek(0)
        state = torch.load(content, map_location="cpu", weights_only=True)
        if not isinstance(state, dict):
            raise TypeError(f"a {type(state).__name__}")
    # a damaged file can raise any exception inside zipfile and torch.load
    except Exception as error:
        raise ValueError(
            f"{path}: expected the checkpoint of a run, got another kind of file or a"
            f" damaged one ({type(error).__name__}:"
            f" {' '.join(str(error).split())[:300]}). {ANEW}"
        ) from error
    for name, tensor in _named_tensors(state, "the checkpoint"):
        if tensor.is_floating_point() and tensor.isnan().any():
            raise ValueError(
                f"{path}: expected numbers, got NaN in {int(tensor.isnan().sum())} of"
                f" {tensor.numel()} places of {name}. The training diverged, or the"
                " file was edited"
            )
    return state


def require_file(path: Path) -> None:
    """Raise FileNotFoundError if there is no checkpoint to resume from."""
    if not path.is_file():
        raise FileNotFoundError(
            f"resume: expected a run to continue, found no {path}. Start it without"
            " resume, or give the folder of the run"
        )


def require_same(path: Path, began: Any, settings: Mapping[str, Any]) -> None:
    """Raise ValueError if a run would go on with other settings than it began with."""
    began = began if isinstance(began, dict) else {}
    for name, value in settings.items():
        if began.get(name) != value:
            raise ValueError(
                f"{name}: expected {began.get(name)} as in the run to resume ({path}),"
                f" got {value}. Resume with the settings it began with, or train anew"
                " in another folder"
            )


def _named_tensors(state: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of nested dictionaries and lists, with dotted names."""
    if isinstance(state, Tensor):
        yield name, state
    elif isinstance(state, dict | list | tuple):
        items = state.items() if isinstance(state, dict) else enumerate(state)
        for key, value in items:
            yield from _named_tensors(value, f"{name}.{key}")
