"""A convolutional network whose scores of superpixels go under a graph.

Two backbones: four strided convolutions, for few or drawn images, and
EfficientNet-Lite0 with weights of ImageNet.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothsp.models.superpixels import EDGE_FEATURES, Graph, Image
from smoothsp.oracles import BinaryGraph

__all__ = ["BACKBONES", "Backbone", "ImageBatch", "SegmenterNetwork", "collate"]

Backbone = Literal["small", "efficientnet-lite0"]
BACKBONES = get_args(Backbone)
SMALL = (16, 24, 40, 64)
WIDTH = 32
# of the coarsest maps: sides of images are padded to multiples of it
STRIDE = 16
GREY = 127


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
        """``(batch, channels, rows, columns)`` each, the finest map first."""
        found = []
        for stage in self.stages:
            x = stage(x)
            found.append(x)
        return found


@dataclass(frozen=True)
class ImageBatch:
    """A few images and their graphs as tensors, padded to the largest."""

    images: Tensor
    """``(batch, 3, H, W)`` from 0 to 255, H and W multiples of 16."""
    pixels: Tensor
    """Superpixel of each pixel, ``(batch, H, W)``; ``most`` for none."""
    edges: Tensor
    """Features of neighbours, ``(batch, E, EDGE_FEATURES)``."""
    index: Tensor
    """Neighbours, ``(batch, E, 2)``."""
    sizes: Tensor
    """Number of superpixels, ``(batch,)``."""

    @property
    def most(self) -> int:
        """Number of superpixels of the largest graph, and at least 2."""
        return max(2, int(self.sizes.max()))

    def to(self, device: torch.device) -> "ImageBatch":
        """Move all tensors to a device."""
        return ImageBatch(**{name: x.to(device) for name, x in vars(self).items()})


def collate(images: Sequence[Image], graphs: Sequence[Graph], side: int) -> ImageBatch:
    """On a canvas of one size: scores do not depend on what else is in the batch."""
    sizes = torch.tensor([len(graph.sizes) for graph in graphs])
    most, edges = max(2, int(sizes.max())), max(len(g.index) for g in graphs)
    canvas = -(-side // STRIDE) * STRIDE
    shape = canvas, canvas
    padded = np.full((len(images), *shape, 3), GREY, np.float32)
    pixels = np.full((len(images), *shape), most)
    features = np.zeros((len(images), edges, EDGE_FEATURES), np.float32)
    index = np.tile(np.array([0, 1]), (len(images), edges, 1))
    for i, (image, graph) in enumerate(zip(images, graphs, strict=True)):
        height, width = image.shape[:2]
        padded[i, :height, :width] = image
        pixels[i, :height, :width] = graph.pixels
        features[i, : len(graph.edges)] = graph.edges
        index[i, : len(graph.index)] = graph.index
    return ImageBatch(
        torch.from_numpy(padded.transpose(0, 3, 1, 2)),
        torch.from_numpy(pixels),
        torch.from_numpy(features),
        torch.from_numpy(index),
        sizes,
    )


class SegmenterNetwork(nn.Module):
    """Scores of superpixels to be figure, and of neighbours to agree.

    Parameters
    ----------
    backbone
        ``"small"`` or ``"efficientnet-lite0"``.
    weights
        Of EfficientNet-Lite0, as for ``smoothsp.models.backbones.backbone``.
    """

    def __init__(self, backbone: Backbone, weights: str = "random") -> None:
        super().__init__()
        if backbone not in BACKBONES:
            expected = ", ".join(BACKBONES)
            raise ValueError(f"backbone: expected one of {expected}, got {backbone!r}")
        self.name = backbone
        self.backbone = Small() if backbone == "small" else _pyramid(weights)
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

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.neighbours.device

    def forward(self, batch: ImageBatch) -> Tensor:
        """``(batch, most)``: mean scores of the pixels of each superpixel."""
        images, most = batch.images.to(self.neighbours.dtype), batch.most
        maps = self.backbone((images - GREY) / 128)
        finest = maps[0]
        maps[0] = torch.cat([finest, _places(finest)], 1)
        levels = zip(self.across, maps, strict=True)
        total = sum(_enlarged(layer(x), finest.shape[2:]) for layer, x in levels)
        scores = _enlarged(self.last(total), images.shape[2:]).flatten(1)
        where = batch.pixels.flatten(1)
        sums = scores.new_zeros(len(images), most + 1).scatter_add(1, where, scores)
        counts = torch.zeros_like(sums).scatter_add(1, where, torch.ones_like(scores))
        return (sums / counts.clamp(min=1))[:, :most]

    def graph(self, scores: Tensor, batch: ImageBatch) -> BinaryGraph:
        """Scores of superpixels for either label, and of neighbours that agree.

        The latter are at least 0, as a graph cut needs.
        """
        neighbours = F.softplus(self.neighbours)
        agreement = (batch.edges.to(neighbours.dtype) @ neighbours).to(scores.dtype)
        nodes = torch.stack([-scores, scores], -1)
        return BinaryGraph(nodes, agreement, batch.index)


def _pyramid(weights: str) -> Any:
    # imports torchvision, which takes a second
    from smoothsp.models.backbones import Pyramid

    return Pyramid(weights)


def _enlarged(x: Tensor, size: Sequence[int]) -> Tensor:
    return F.interpolate(x, size, mode="bilinear", align_corners=False)


def _places(x: Tensor) -> Tensor:
    """``(batch, 2, H, W)``: row and column, from -1 to 1."""
    rows, columns = (
        torch.linspace(-1, 1, n, dtype=x.dtype, device=x.device) for n in x.shape[2:]
    )
    grid = torch.stack(torch.meshgrid(rows, columns, indexing="ij"))
    return grid.expand(len(x), -1, -1, -1)
