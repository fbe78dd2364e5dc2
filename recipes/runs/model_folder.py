"""A trained network as a folder: ``model.safetensors`` and ``config.json``."""

from collections.abc import Callable, Mapping
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
    config = {"format": _format(type(model)), "about": dict(about)}
    write(folder, config, {WEIGHTS: as_bytes(weights)})


def load(
    folder: Path, kind: type[nn.Module], build: Callable[[dict[str, Any]], nn.Module]
) -> tuple[Any, dict[str, Any]]:
    """A model of this kind, and what was saved about it.

    ``build`` makes one of what was saved about it. Runs no code that is in the folder.
    """
    try:
        config, content = read(folder)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"out: expected a trained model, found none at {folder}. Train one first,"
            " with the same --out and without --predict"
        ) from error
    if config.get("format") != _format(kind):
        raise ValueError(
            f"{folder}: expected the format {_format(kind)!r}, got"
            f" {config.get('format')!r}. Give the --out of a run of this recipe"
        )
    try:
        weights = from_bytes(content[WEIGHTS])
        # at first without memory: an edited file may ask for any amount of it
        with torch.device("meta"):
            sketch = build(config["about"])
        sketch.load_state_dict(weights, assign=True)
        model = build(config["about"])
        model.load_state_dict(weights)
    except (
        AttributeError, LookupError, RuntimeError, SafetensorError, TypeError,
    ) as error:  # fmt: skip
        raise ValueError(
            f"{folder}: expected the model of this recipe, got one that was edited or"
            f" is of another version ({type(error).__name__}:"
            f" {' '.join(str(error).split())[:200]}). Train it anew"
        ) from error
    return model.eval(), config["about"]


def _format(kind: type[nn.Module]) -> str:
    return f"{kind.__name__}, version 1"
