"""Scores of boxes: linear in their features, or with one small hidden layer.

Those of one object choose a box; those of several have a score for each class.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.ops import roi_align

from smoothsp.models.backbones import STRIDE
from smoothsp.models.regions import GRID_SIZE, NUM_GEOMETRY

__all__ = [
    "SCORE_CLASSES",
    "FeatureScale",
    "LinearScores",
    "NonlinearScores",
    "ObjectScores",
]
__all__ += ["Scores"]

HIDDEN, CHANNELS, WIDE = 16, 16, 64
# twelve numbers stand beside thousands, under one squared norm
EMPHASIS = 10.0


@dataclass(frozen=True)
class FeatureScale:
    """Mean and deviation of features over the boxes of a set of images.

    Parameters
    ----------
    mean, deviation
        ``(channel,)``, over boxes and places.
    where_mean, where_deviation
        ``(12,)``: of ``geometry``.
    """

    mean: Tensor
    deviation: Tensor
    where_mean: Tensor
    where_deviation: Tensor


class _Scores(nn.Module):
    """Base of both scores: weights of the position of a box."""

    mean: Tensor
    scale: Tensor
    where_mean: Tensor
    where_scale: Tensor

    def __init__(self, scale: FeatureScale) -> None:
        super().__init__()
        self.where = nn.Parameter(torch.zeros(NUM_GEOMETRY))
        self.register_buffer("mean", scale.mean)
        self.register_buffer("scale", _inverse(scale.deviation))
        self.register_buffer("where_mean", scale.where_mean)
        self.register_buffer("where_scale", EMPHASIS * _inverse(scale.where_deviation))

    def of_place(self, geometry: Tensor) -> Tensor:
        """Scores ``(box,)``."""
        return (geometry - self.where_mean) @ (self.where * self.where_scale)


class LinearScores(_Scores):
    """A weight for each feature."""

    def __init__(self, scale: FeatureScale) -> None:
        super().__init__(scale)
        self.weight = nn.Parameter(torch.zeros(GRID_SIZE**2, len(scale.mean)))

    def forward(self, features: Tensor, geometry: Tensor) -> Tensor:
        """Scores ``(box,)`` of ``(box, place, channel)`` and ``(box, 12)``."""
        # no mean: what all candidates have in common changes no choice
        looks = features.flatten(1) @ (self.weight * self.scale).flatten()
        return looks + self.of_place(geometry)


class NonlinearScores(_Scores):
    """1 x 1 convolution to 16 channels, ELU, linear; and linear in where a box is.

    A 1 x 1 convolution is one matrix for all places.
    """

    def __init__(self, scale: FeatureScale) -> None:
        super().__init__(scale)
        channels = len(scale.mean)
        self.convolution = nn.Parameter(torch.randn(channels, HIDDEN) / channels**0.5)
        self.weight = nn.Parameter(
            torch.randn(GRID_SIZE**2, HIDDEN) / (GRID_SIZE * HIDDEN**0.5)
        )

    def forward(self, features: Tensor, geometry: Tensor) -> Tensor:
        """Scores ``(box,)`` of ``(box, place, channel)`` and ``(box, 12)``."""
        scaled = self.convolution * self.scale[:, None]
        hidden = F.elu(features @ scaled - self.mean @ scaled)
        return hidden.flatten(1) @ self.weight.flatten() + self.of_place(geometry)


class ObjectScores(nn.Module):
    """Scores ``(box, class)``; that of no object is 0.

    A 1 x 1 convolution of the maps, means at 3 x 3 places of a box and of the box twice
    as large, a hidden layer. The maps are those of ``Backbone``, less their mean and
    over their deviation.

    Parameters
    ----------
    mean, deviation
        ``(channel,)``, over places and images.
    classes
        Number of classes.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, mean: Tensor, deviation: Tensor, classes: int) -> None:
        super().__init__()
        # one tensor given twice would be overwritten by the other's weights
        self.register_buffer("mean", mean.clone())
        self.register_buffer("deviation", deviation.clone())
        self.mix = nn.Conv2d(len(mean), CHANNELS, 1)
        self.hidden = nn.Linear(2 * CHANNELS * GRID_SIZE**2 + NUM_GEOMETRY, WIDE)
        self.scores = nn.Linear(WIDE, classes)
        # windows hold nothing, at first
        nn.init.zeros_(self.scores.weight)
        nn.init.constant_(self.scores.bias, -1.0)

    def forward(self, maps: Tensor, boxes: Tensor, geometry: Tensor) -> Tensor:
        """Scores in maps ``(channels, rows, columns)``, of boxes in resized pixels."""
        maps = (maps - self.mean[:, None, None]) / self.deviation[:, None, None]
        mixed = self.mix(maps[None])
        centre, half = (boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]
        around = torch.cat([centre - half, centre + half], 1)
        # one point for each place
        looks = [
            roi_align(mixed, [own], GRID_SIZE, 1 / STRIDE, 1, aligned=True)
            for own in (boxes, around)
        ]
        found = torch.cat([F.elu(torch.cat(looks, 1)).flatten(1), geometry], 1)
        scores: Tensor = self.scores(F.elu(self.hidden(found)))
        return scores


Scores = LinearScores | NonlinearScores | ObjectScores

SCORE_CLASSES: dict[str, type[LinearScores] | type[NonlinearScores]] = {
    "linear": LinearScores,
    "nonlinear": NonlinearScores,
}


def _inverse(deviation: Tensor) -> Tensor:
    # a feature that is the same everywhere tells nothing
    alive = deviation > 1e-6
    return torch.where(alive, 1 / torch.where(alive, deviation, 1.0), 0.0)
