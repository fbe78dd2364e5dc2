"""A trained network as a folder: ``model.safetensors`` and ``config.json``."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as as_bytes
from torch import nn

from smoothsp.models.files import read, write

WEIGHTS = "model.safetensors"


def save(folder: Path, model: nn.Module, about: Mapping[str, Any]) -> None:
    """Replace the model in a folder in one step, or make one."""
    weights = {
        name: value.detach().cpu().contiguous()
        for name, value in model.state_dict().items()
    }
    config = {"format": format_of(type(model)), "about": dict(about)}
    write(folder, config, {WEIGHTS: as_bytes(weights)})


def load(
    folder: Path, kind: type[nn.Module], build: Callable[[dict[str, Any]], nn.Module]
) -> tuple[Any, dict[str, Any]]:
    """A model of this kind, and what was saved about it.

    ``build`` makes one of what was saved about it. Runs no code that is in the folder.
    """
    config, content = files_of(folder, format_of(kind))
    with unedited(folder):
        weights = from_bytes(content[WEIGHTS])
        # at first without memory: an edited file may ask for any amount of it
        with torch.device("meta"):
            sketch = build(config["about"])
        sketch.load_state_dict(weights, assign=True)
        model = build(config["about"])
        model.load_state_dict(weights)
    return model.eval(), config["about"]


def files_of(folder: Path, expected: str) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The configuration and the files of a model of this format."""
    with trained(folder):
        config, content = read(folder)
    if config.get("format") != expected:
        raise ValueError(
            f"{folder}: expected the format {expected!r}, got"
            f" {config.get('format')!r}. Give the --out of a run of this recipe"
        )
    return config, content


@contextmanager
def trained(folder: Path) -> Iterator[None]:
    """Name the remedy if there is no model to read."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"out: expected a trained model, found none at {folder}. Train one first,"
            " with the same --out and without --predict or --evaluate"
        ) from error


@contextmanager
def unedited(folder: Path) -> Iterator[None]:
    """Name the folder if its files do not fit together."""
    try:
        yield
    except (
        AttributeError, LookupError, RuntimeError, SafetensorError, TypeError,
        ValueError,
    ) as error:  # fmt: skip
        raise ValueError(
            f"{folder}: expected the model of this recipe, got one that was edited or"
            f" is of another version ({type(error).__name__}:"
            f" {' '.join(str(error).split())[:200]}). Train it anew"
        ) from error


def format_of(kind: type[nn.Module]) -> str:
    """Name of the format of a network's folder."""
    return f"{kind.__name__}, version 1"
