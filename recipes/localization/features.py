"""Features of candidate boxes: AlexNet up to its fourth convolution.

Either of each box, cut out and scaled to 64 x 64 pixels, and kept on disk; or of the
whole image, from which RoI-align takes each box, so that the convolutions can be
trained too. Both are 256 numbers at 3 x 3 places of the box.
"""

import hashlib
import urllib.error
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from torch import Tensor, nn
from torchvision.models import AlexNet_Weights, alexnet
from torchvision.ops import roi_align
from tqdm import tqdm

from localization.folder import read_image
from runs import checkpoint

CROP, PLACES, CHANNELS = 64, 3, 256
# up to the fourth convolution and its ReLU
LAYERS, STRIDE = 10, 16
MEAN, SPREAD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# of whole images, as large as those of VOC: 150 pixels become 9 cells
LONGEST_SIDE = 500
AT_ONCE = 128


def backbone(weights: str) -> nn.Sequential:
    """AlexNet's layers, with weights from a file, of ImageNet, or ``random``."""
    if weights == "imagenet":
        try:
            network = alexnet(weights=AlexNet_Weights.IMAGENET1K_V1)
        except (urllib.error.URLError, OSError) as error:
            raise ConnectionError(
                f"weights: expected to download {AlexNet_Weights.IMAGENET1K_V1.url},"
                f" got {error}. Fetch it on a machine with a network and give"
                " --weights FILE, or do without: --weights random"
            ) from error
        return network.features[:LAYERS]
    # without the rest of it, which is large
    with torch.device("meta"):
        layers = alexnet(weights=None).features[:LAYERS]
    layers.to_empty(device="cpu")
    if weights != "random":
        _read_weights(layers, Path(weights))
        return layers
    # the same for every seed, so that their features are kept once
    generator = torch.Generator().manual_seed(0)
    for layer in layers:
        if isinstance(layer, nn.Conv2d):
            fan_in = layer.weight[0].numel()
            nn.init.normal_(layer.weight, 0, (2 / fan_in) ** 0.5, generator)
            nn.init.zeros_(layer.bias)
    return layers


def _read_weights(layers: nn.Sequential, path: Path) -> None:
    if not path.is_file():
        raise FileNotFoundError(
            f"weights: expected a file, imagenet or random, found no file {path}"
        )
    try:
        # runs no code that the file may hold
        saved = torch.load(path, map_location="cpu", weights_only=True)
    # what is no such file may fail at any place of the reader
    except Exception as error:
        raise ValueError(
            f"{path}: expected the weights of torchvision's AlexNet, got a file that is"
            f" no such thing or is damaged ({str(error).partition(chr(10))[0]})"
        ) from error
    for name, parameter in layers.state_dict().items():
        value = saved.get(f"features.{name}") if isinstance(saved, dict) else None
        expected = tuple(parameter.shape)
        if not isinstance(value, Tensor) or tuple(value.shape) != expected:
            found = tuple(value.shape) if isinstance(value, Tensor) else "none"
            raise ValueError(
                f"{path}: expected features.{name} of shape {expected} as in"
                f" torchvision's AlexNet, got {found}"
            )
        checkpoint.refuse_nan(path, value, f"features.{name}")
        parameter.copy_(value)


def normalised(image: np.ndarray) -> Tensor:
    """Pixels ``(..., 3)`` as channels first, on the scale of ImageNet's networks."""
    pixels = torch.from_numpy(np.ascontiguousarray(image)).float() / 255
    return ((pixels - torch.tensor(MEAN)) / torch.tensor(SPREAD)).movedim(-1, -3)


@torch.no_grad()
def of_boxes(layers: nn.Module, image: np.ndarray, boxes: np.ndarray) -> Tensor:
    """Features ``(box, place, channel)`` of boxes that were cut out."""
    height, width = image.shape[:2]
    device = next(layers.parameters()).device
    found = []
    for start in range(0, len(boxes), AT_ONCE):
        crops = []
        for left, top, right, bottom in boxes[start : start + AT_ONCE].round():
            x, y = min(int(left), width - 1), min(int(top), height - 1)
            crop = image[y : max(int(bottom), y + 1), x : max(int(right), x + 1)]
            crops.append(cv2.resize(crop, (CROP, CROP)))
        maps = layers(normalised(np.stack(crops)).to(device))
        found.append(maps.flatten(2).transpose(1, 2).half().cpu())
    return torch.cat(found)


def kept_on_disk(
    layers: nn.Module, images: list[Path], boxes: list[np.ndarray], cache: Path
) -> list[Path]:
    """Files of the features of each image's boxes, made if they are not there."""
    folder = cache / checksum(layers)
    paths = []
    bar = tqdm(images, "features", leave=False, disable=None)
    for image, own in zip(bar, boxes, strict=True):
        digest = hashlib.sha256(image.read_bytes() + own.tobytes()).hexdigest()[:32]
        path = folder / f"{digest}.npy"
        if not _is_whole(path, len(own)):
            features = of_boxes(layers, read_image(image), own).numpy()
            checkpoint.write(path, lambda sink, array=features: np.save(sink, array))
        paths.append(path)
    return paths


def checksum(layers: nn.Module) -> str:
    """Of the weights."""
    digest = hashlib.sha256()
    for parameter in layers.parameters():
        digest.update(parameter.detach().cpu().numpy().tobytes())
    return digest.hexdigest()[:12]


def _is_whole(path: Path, count: int) -> bool:
    try:
        return open_kept(path).shape == (count, PLACES**2, CHANNELS)
    except (OSError, ValueError, EOFError):
        return False


def open_kept(path: Path) -> Tensor:
    """Features in half precision; read from disk where they are used, and no sooner."""
    # copy on write: torch wants memory that it could write to
    return torch.from_numpy(np.load(path, mmap_mode="c", allow_pickle=False))


class WholeImage(nn.Module):
    """Features ``(box, place, channel)`` from one pass over the image."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, pixels: Tensor, boxes: Tensor) -> Tensor:
        maps = self.layers(pixels[None])
        return _RoIAlign.apply(maps, boxes).flatten(2).transpose(1, 2)


def whole_image(path: Path, boxes: np.ndarray) -> tuple[Tensor, Tensor]:
    """What ``WholeImage`` takes: pixels, and boxes in them."""
    image = read_image(path)
    scale = LONGEST_SIDE / max(image.shape[:2])
    large = cv2.resize(image, None, fx=scale, fy=scale)
    ratio = np.array(large.shape[1::-1]) / image.shape[1::-1]
    return normalised(large), torch.from_numpy(boxes * np.tile(ratio, 2)).float()


class _RoIAlign(torch.autograd.Function):
    """Torchvision's, with the forward-mode derivative that it lacks: it is linear."""

    @staticmethod
    def forward(maps: Tensor, boxes: Tensor) -> Tensor:
        return roi_align(maps, [boxes], PLACES, 1 / STRIDE, 2, aligned=True)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        maps, ctx.boxes = inputs
        ctx.shape = maps.shape

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:
        return _RoIAlign.forward(tangent, ctx.boxes)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        with torch.enable_grad():
            maps = gradient.new_zeros(ctx.shape, requires_grad=True)
            output = _RoIAlign.forward(maps, ctx.boxes)
        return torch.autograd.grad(output, maps, gradient)[0], None


def spread(
    features: Callable[[Any], Tensor], examples: Iterable[Any]
) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel over all boxes and places."""
    count, total, squares = 0, 0.0, 0.0
    for example in examples:
        flat = features(example).flatten(0, 1)
        count += len(flat)
        total = total + flat.sum(0, dtype=torch.float64)
        squares = squares + flat.square().sum(0, dtype=torch.float64)
    mean = total / count
    deviation = (squares / count - mean.square()).clamp(min=0).sqrt()
    # a channel that never fires tells nothing
    deviation = torch.where(deviation > 1e-6, deviation, torch.inf)
    return mean.float(), deviation.float()
