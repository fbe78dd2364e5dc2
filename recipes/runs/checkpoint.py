"""Training state kept in one file."""

import io
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from runs import files

ANEW = "Start over without --resume, or with another --out"


def save(path: Path, state: dict[str, Any]) -> None:
    files.write(path, lambda sink: torch.save(state, sink))


def load(path: Path) -> dict[str, Any]:
    """The state saved at ``path``, on the CPU, if its best weights are numbers."""
    state = read(path)
    for name in ("settings", "best"):
        if not isinstance(state.get(name), dict):
            raise ValueError(
                f"{path}: expected a checkpoint of this recipe, got one without {name}."
                f" {ANEW}"
            )
    refuse_nan(path, state["best"], "best")
    return state


def read(path: Path) -> dict[str, Any]:
    """A dictionary that was saved. Runs no code that the file may hold."""
    content = io.BytesIO(path.read_bytes())
    try:
        with zipfile.ZipFile(content) as parts:
            # torch reads them without a look at their checksums
            if damaged := parts.testzip():
                raise ValueError(f"wrong checksum of {damaged}")
        content.seek(0)
        state = torch.load(content, map_location="cpu", weights_only=True)
    # what is damaged or edited may fail at any place of the readers
    except Exception as error:
        raise ValueError(
            f"{path}: expected a checkpoint of this recipe, got another kind of file "
            f"or a damaged one ({_said(error)}). {ANEW}"
        ) from error
    if not isinstance(state, dict):
        raise ValueError(
            f"{path}: expected a checkpoint of this recipe, got another. {ANEW}"
        )
    return state


def refuse_nan(path: Path, state: Any, name: str) -> None:
    """Raise if a tensor in ``state`` holds NaN; ``name`` is where it is in the file."""
    for place, tensor in _tensors(state, name):
        if tensor.is_floating_point() and tensor.isnan().any():
            count = int(tensor.isnan().sum())
            raise ValueError(
                f"{path}: expected numbers, got NaN in {count} of {tensor.numel()}"
                f" places of {place}. The training diverged, or the file was edited"
            )


def _tensors(state: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(state, Tensor):
        yield name, state
    elif isinstance(state, dict):
        for key, value in state.items():
            yield from _tensors(value, f"{name}.{key}")


def to_resume(
    path: Path, settings: dict[str, Any], resume: bool
) -> dict[str, Any] | None:
    """The state saved at ``path``, made with the same settings; None to start over."""
    if not resume:
        return None
    require_file(path)
    state = load(path)
    refuse_nan(path, state, "the state")
    require_same(path, state["settings"], settings)
    print(f"resuming {path}")
    return state


def read_numbers(path: Path) -> dict[str, Any]:
    """What a run to resume has saved, if all of its tensors are numbers."""
    require_file(path)
    state = read(path)
    refuse_nan(path, state, "the checkpoint")
    return state


def require_same(path: Path, began: dict[str, Any], settings: dict[str, Any]) -> None:
    """Raise if a run would go on with another setting than it began with."""
    for name, value in settings.items():
        if began.get(name) != value:
            raise ValueError(
                f"{name}: expected {began.get(name)} as in the run to resume ({path}),"
                f" got {value}. Resume with what it began with, or train anew with"
                " another --out"
            )


def require_file(path: Path) -> None:
    if not path.is_file():
        raise FileNotFoundError(
            f"resume: expected a run to continue, found no {path}. Start it without"
            " --resume, or give its folder with --out"
        )


def use(path: Path, restore: Callable[[], Any]) -> Any:
    """What ``restore`` makes of what was read from ``path``; says so if it fails.

    Of a checkpoint, or of the folder of a model.
    """
    try:
        return restore()
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path}: expected a checkpoint or model of this recipe, got one that was"
            f" edited or is of another version ({_said(error)}). Train it anew"
        ) from error


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
