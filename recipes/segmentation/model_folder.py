"""A trained segmenter as a folder: ``model.safetensors`` and ``config.json``.

The arrays of a linear one are ``w``, those of a network its state; both have the words
of pixels, which graphs are built with.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load as from_bytes
from safetensors.torch import save as as_bytes
from torch import Tensor

from runs.model_folder import files_of, unedited
from segmentation.linear import WEIGHTS as LINEAR_WEIGHTS
from segmentation.words import COLOURS, TEXTURES, Words
from smoothsp.models.files import write

WEIGHTS, FORMAT = "model.safetensors", "horse_segmentation, version 1"
KINDS = ("linear", "network")


@dataclass(frozen=True)
class Model:
    """What there is to predict with; ``side`` and ``superpixels`` are of graphs."""

    kind: str
    words: Words
    side: int
    superpixels: int
    weights: dict[str, Tensor]
    about: dict[str, Any]


def save(folder: Path, model: Model) -> None:
    """Replace the model in a folder in one step, or make one."""
    arrays = {f"weights.{name}": x for name, x in model.weights.items()}
    for name in ("colours", "textures"):
        arrays[name] = torch.from_numpy(getattr(model.words, name))
    whole = {name: x.detach().cpu().contiguous() for name, x in arrays.items()}
    config = {"format": FORMAT, "kind": model.kind, "side": model.side}
    config |= {"superpixels": model.superpixels, "about": model.about}
    write(folder, config, {WEIGHTS: as_bytes(whole)})


def load(folder: Path) -> Model:
    """What was saved. Runs no code that is in the folder."""
    config, content = files_of(folder, FORMAT)
    with unedited(folder):
        arrays = from_bytes(content[WEIGHTS])
        words = Words(*(np.asarray(arrays.pop(x)) for x in ("colours", "textures")))
        weights = {name.removeprefix("weights."): x for name, x in arrays.items()}
        _check(config, words, weights)
        names = ("side", "superpixels", "about")
        side, superpixels, about = (config[name] for name in names)
        return Model(config["kind"], words, side, superpixels, weights, about)


def _check(config: dict[str, Any], words: Words, weights: dict[str, Tensor]) -> None:
    """Raise if an image could not be segmented with them."""
    if config["kind"] not in KINDS:
        raise ValueError(f"kind: one of {', '.join(KINDS)}, got {config['kind']!r}")
    for name, least in (("side", 16), ("superpixels", 2)):
        value = config[name]
        if type(value) is not int or value < least:
            raise ValueError(f"{name}: at least {least}, got {value!r}")
    shapes = [("colours", words.colours, (COLOURS, 3))]
    shapes.append(("textures", words.textures, (TEXTURES, 9)))
    if config["kind"] == "linear":
        shapes.append(("weights", weights["w"].numpy(), (LINEAR_WEIGHTS,)))
    for name, array, shape in shapes:
        if array.shape != shape or array.dtype.kind != "f":
            raise ValueError(
                f"{name}: numbers of shape {shape}, got {array.dtype} {array.shape}"
            )
        if not np.isfinite(array).all():
            raise ValueError(f"{name}: finite numbers, got others")
