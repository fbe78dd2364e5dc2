"""Scores of windows and classes, from the maps of a backbone."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.ops import roi_align

from smoothsp.models.backbones import STRIDE
from smoothsp.models.regions import GEOMETRY, PLACES

CHANNELS, HIDDEN = 16, 64
# points of a place, across and down
SAMPLES = 1


class ObjectScores(nn.Module):
    """Scores ``(box, class)``; that of no object is 0.

    A 1 x 1 convolution of the maps, means at 3 x 3 places of a box and of the box twice
    as large, a hidden layer. The maps are those of ``Backbone``, less their mean and
    over their deviation.
    """

    def __init__(self, mean: Tensor, deviation: Tensor, classes: int) -> None:
        super().__init__()
        # one tensor given twice would be overwritten by the other's weights
        self.register_buffer("mean", mean.clone())
        self.register_buffer("deviation", deviation.clone())
        self.mix = nn.Conv2d(len(mean), CHANNELS, 1)
        size = 2 * CHANNELS * PLACES**2 + GEOMETRY
        self.hidden = nn.Linear(size, HIDDEN)
        self.scores = nn.Linear(HIDDEN, classes)
        # windows hold nothing, at first
        nn.init.zeros_(self.scores.weight)
        nn.init.constant_(self.scores.bias, -1.0)

    def forward(self, maps: Tensor, boxes: Tensor, geometry: Tensor) -> Tensor:
        """Of ``(channels, rows, columns)``, boxes in pixels of the backbone's image."""
        maps = (maps - self.mean[:, None, None]) / self.deviation[:, None, None]
        mixed = self.mix(maps[None])
        centre, half = (boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]
        around = torch.cat([centre - half, centre + half], 1)
        looks = [
            roi_align(mixed, [own], PLACES, 1 / STRIDE, SAMPLES, aligned=True)
            for own in (boxes, around)
        ]
        found = torch.cat([F.elu(torch.cat(looks, 1)).flatten(1), geometry], 1)
        return self.scores(F.elu(self.hidden(found)))
