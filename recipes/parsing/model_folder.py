"""A trained parser as a folder: ``model.safetensors``, ``config.json`` and words."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as as_bytes
from torch import nn

from parsing.words import Sizes
from smoothsp.models.features import Vocabulary
from smoothsp.models.files import as_json, json_bytes, read, write

WEIGHTS, VOCABULARY = "model.safetensors", "vocabulary.json"


def save(
    folder: Path,
    model: nn.Module,
    vocabulary: Vocabulary,
    labels: Sequence[str],
    sizes: Sizes,
    about: Mapping[str, Any],
) -> None:
    """Replace the model in a folder in one step, or make one."""
    config = {"format": _format(type(model)), "labels": list(labels)}
    config["sizes"] = asdict(sizes)
    weights = {
        name: value.detach().cpu().contiguous()
        for name, value in model.state_dict().items()
    }
    content = {WEIGHTS: as_bytes(weights), VOCABULARY: json_bytes(asdict(vocabulary))}
    write(folder, config | {"about": dict(about)}, content)


def load(
    folder: Path, kind: type[nn.Module]
) -> tuple[Any, Vocabulary, list[str], dict[str, Any]]:
    """What was saved, of this kind of network. Runs no code that is in the folder."""
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
        vocabulary = Vocabulary(**as_json(folder / VOCABULARY, content[VOCABULARY]))
        labels, sizes = config["labels"], Sizes(**config["sizes"])
        weights = from_bytes(content[WEIGHTS])
        # at first without memory: an edited file may ask for any amount of it
        with torch.device("meta"):
            sketch = kind(vocabulary, labels, sizes)
        sketch.load_state_dict(weights, assign=True)
        model = kind(vocabulary, labels, sizes)
        model.load_state_dict(weights)
        about = config["about"]
    except (
        AttributeError, LookupError, RuntimeError, SafetensorError, TypeError,
    ) as error:  # fmt: skip
        raise ValueError(
            f"{folder}: expected the model of this recipe, got one that was edited or"
            f" is of another version ({type(error).__name__}:"
            f" {' '.join(str(error).split())[:200]}). Train it anew"
        ) from error
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return model.to(device), vocabulary, labels, about


def _format(kind: type[nn.Module]) -> str:
    return f"{kind.__name__}, version 1"
