"""A small convolutional network whose scores of superpixels go under a graph.

Two backbones: four strided convolutions, for nothing but drawn images and few of them,
or EfficientNet-Lite0 with weights from ImageNet.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from segmentation.superpixels import EDGE_FEATURES
from smoothsp.models.backbones import Pyramid

BACKBONES = ("small", "efficientnet-lite0")
SMALL = (16, 24, 40, 64)
WIDTH = 32
# Images are padded to multiples of it.
STRIDE = 16


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


class Segmenter(nn.Module):
    """Scores of superpixels to be figure, and of neighbours to agree."""

    def __init__(self, backbone: str, weights: str = "random") -> None:
        super().__init__()
        self.backbone = Small() if backbone == "small" else Pyramid(weights)
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
            ``(batch, 3, H, W)`` from 0 to 255, H and W multiples of 16.
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


def _enlarged(x: Tensor, size: tuple[int, ...]) -> Tensor:
    return F.interpolate(x, size, mode="bilinear", align_corners=False)


def _places(x: Tensor) -> Tensor:
    """``(batch, 2, H, W)``: row and column, from -1 to 1."""
    rows, columns = (torch.linspace(-1, 1, n, device=x.device) for n in x.shape[2:])
    grid = torch.stack(torch.meshgrid(rows, columns, indexing="ij"))
    return grid.expand(len(x), -1, -1, -1)
