"""Features of candidate boxes, kept on disk, and how large they are over a list."""

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from localization.candidates import turned
from runs import files
from smoothsp.data.images import read_image
from smoothsp.models.backbones import Backbone
from smoothsp.models.box_scores import FeatureScale
from smoothsp.models.regions import PLACES, Appearance, resized


def picture(
    backbone: Backbone, path: Path, boxes: np.ndarray, side: int
) -> tuple[Tensor, Tensor]:
    """Pixels as the network wants them, and the boxes in them."""
    image, scaled = resized(read_image(path), boxes, side)
    return backbone.pixels(image), scaled


def kept_on_disk(
    backbone: Backbone,
    images: list[Path],
    boxes: list[np.ndarray],
    side: int,
    cache: Path,
) -> list[Path]:
    """Files of the features of each image's boxes, made if they are not there."""
    folder = cache / f"{backbone.name}-{backbone.checksum()}-{side}"
    appearance = Appearance(backbone)
    device = next(backbone.parameters()).device
    paths = []
    bar = tqdm(images, "features", leave=False, disable=None)
    for image, own in zip(bar, boxes, strict=True):
        digest = hashlib.sha256(
            image.read_bytes() + own.tobytes() + turned(image)
        ).hexdigest()[:32]
        path = folder / f"{digest}.npy"
        if not _is_whole(path, (len(own), PLACES**2, backbone.channels)):
            inputs = (x.to(device) for x in picture(backbone, image, own, side))
            with torch.no_grad():
                found = appearance(*inputs).half().cpu().numpy()
            files.write(path, lambda sink, array=found: np.save(sink, array))
        paths.append(path)
    return paths


def _is_whole(path: Path, shape: tuple[int, ...]) -> bool:
    try:
        return open_kept(path).shape == shape
    except (OSError, ValueError, EOFError):
        return False


def open_kept(path: Path) -> Tensor:
    """Features in half precision; read from disk where they are used, and no sooner."""
    # copy on write: torch wants memory that it could write to
    return torch.from_numpy(np.load(path, mmap_mode="c", allow_pickle=False))


def scale(
    features: Callable[[Any], tuple[Tensor, Tensor]], examples: Iterable[Any]
) -> FeatureScale:
    """Mean and deviation over the boxes of all examples, of looks and places."""
    sums = [[0, 0.0, 0.0], [0, 0.0, 0.0]]
    for example in examples:
        looks, where = features(example)
        for own, flat in zip(sums, (looks.flatten(0, 1), where), strict=True):
            own[0] += len(flat)
            own[1] = own[1] + flat.sum(0, dtype=torch.float64)
            own[2] = own[2] + flat.double().square().sum(0)
    found = []
    for count, total, squares in sums:
        mean = total / count
        deviation = (squares / count - mean.square()).clamp(min=0).sqrt()
        found += [mean.float(), deviation.float()]
    return FeatureScale(*found)
