"""Convolutional network for the node and edge scores of a superpixel graph.

Backbones: four strided convolutions, for small data sets or synthetic images, and
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
SMALL_CHANNELS = (16, 24, 40, 64)
MERGED_CHANNELS = 32
# Stride of the coarsest maps; image sides are padded to multiples of it.
STRIDE = 16
MEAN_PIXEL = 127


class SmallBackbone(nn.Module):
    """Backbone with maps at strides 2, 4, 8 and 16."""

    channels = SMALL_CHANNELS

    def __init__(self) -> None:
        super().__init__()
        sizes = zip((3, *SMALL_CHANNELS), SMALL_CHANNELS, strict=False)
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

    def forward(self, map_: Tensor) -> list[Tensor]:
        """Return maps ``(batch, channels, rows, columns)``, the finest first."""
        maps = []
        for stage in self.stages:
            map_ = stage(map_)
            maps.append(map_)
        return maps


@dataclass(frozen=True)
class ImageBatch:
    """Images and their graphs as tensors, padded to the largest."""

    images: Tensor
    """``(batch, 3, H, W)`` from 0 to 255, H and W multiples of 16."""
    pixels: Tensor
    """Superpixel of each pixel, ``(batch, H, W)``; padding is ``max_superpixels``."""
    edges: Tensor
    """Features of edges, ``(batch, E, EDGE_FEATURES)``."""
    index: Tensor
    """Superpixels of each edge, ``(batch, E, 2)``."""
    sizes: Tensor
    """Number of superpixels, ``(batch,)``."""

    @property
    def max_superpixels(self) -> int:
        """Number of superpixels of the largest graph, at least 2."""
        return max(2, int(self.sizes.max()))

    def to(self, device: torch.device) -> "ImageBatch":
        """Return the batch with all tensors on ``device``."""
        return ImageBatch(**{name: x.to(device) for name, x in vars(self).items()})


def collate(images: Sequence[Image], graphs: Sequence[Graph], side: int) -> ImageBatch:
    """Collate images and graphs, on a canvas whose size depends on ``side`` only.

    So the scores of an image do not depend on other images of the batch. Padding edges
    join superpixels 0 and 1 with zero features.
    """
    sizes = torch.tensor([len(graph.sizes) for graph in graphs])
    max_superpixels, edges = max(2, int(sizes.max())), max(len(g.index) for g in graphs)
    canvas = -(-side // STRIDE) * STRIDE
    shape = canvas, canvas
    padded = np.full((len(images), *shape, 3), MEAN_PIXEL, np.float32)
    pixels = np.full((len(images), *shape), max_superpixels)
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
    """Scores of superpixels for the foreground, and of edges for agreement.

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
        self.backbone = (
            SmallBackbone() if backbone == "small" else _build_pyramid(weights)
        )
        # Two channels of coordinates are appended to the finest map.
        first, *others = self.backbone.channels
        self.across = nn.ModuleList(
            nn.Conv2d(size, MERGED_CHANNELS, 1) for size in (first + 2, *others)
        )
        self.last = nn.Sequential(
            nn.GroupNorm(4, MERGED_CHANNELS),
            nn.ReLU(),
            nn.Conv2d(MERGED_CHANNELS, MERGED_CHANNELS, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(MERGED_CHANNELS, 1, 1),
        )
        self.neighbours = nn.Parameter(torch.full((EDGE_FEATURES,), -3.0))

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.neighbours.device

    def forward(self, batch: ImageBatch) -> Tensor:
        """Return the mean pixel score of each superpixel, ``(batch, max_superpixels)``.

        Maps of all strides are projected to a common width, enlarged to the finest and
        added.
        """
        images, max_superpixels = (
            batch.images.to(self.neighbours.dtype),
            batch.max_superpixels,
        )
        maps = self.backbone((images - MEAN_PIXEL) / 128)
        finest = maps[0]
        maps[0] = torch.cat([finest, _coordinate_maps(finest)], 1)
        levels = zip(self.across, maps, strict=True)
        total = sum(_resize_bilinear(layer(x), finest.shape[2:]) for layer, x in levels)
        scores = _resize_bilinear(self.last(total), images.shape[2:]).flatten(1)
        superpixel_of_pixel = batch.pixels.flatten(1)
        # One more column than superpixels collects the padding pixels.
        sums = scores.new_zeros(len(images), max_superpixels + 1).scatter_add(
            1, superpixel_of_pixel, scores
        )
        counts = torch.zeros_like(sums).scatter_add(
            1, superpixel_of_pixel, torch.ones_like(scores)
        )
        return (sums / counts.clamp(min=1))[:, :max_superpixels]

    def graph(self, scores: Tensor, batch: ImageBatch) -> BinaryGraph:
        """Build the binary graph from foreground scores of superpixels.

        Agreement scores are positive by softplus, as graph cuts require.
        """
        neighbours = F.softplus(self.neighbours)
        agreement = (batch.edges.to(neighbours.dtype) @ neighbours).to(scores.dtype)
        nodes = torch.stack([-scores, scores], -1)
        return BinaryGraph(nodes, agreement, batch.index)


def _build_pyramid(weights: str) -> Any:
    # Imported late: torchvision takes a second.
    from smoothsp.models.backbones import Pyramid

    return Pyramid(weights)


def _resize_bilinear(x: Tensor, size: Sequence[int]) -> Tensor:
    return F.interpolate(x, size, mode="bilinear", align_corners=False)


def _coordinate_maps(x: Tensor) -> Tensor:
    """Return row and column coordinates from -1 to 1, ``(batch, 2, H, W)``."""
    rows, columns = (
        torch.linspace(-1, 1, n, dtype=x.dtype, device=x.device) for n in x.shape[2:]
    )
    grid = torch.stack(torch.meshgrid(rows, columns, indexing="ij"))
    return grid.expand(len(x), -1, -1, -1)
