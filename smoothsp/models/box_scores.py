"""Score functions of boxes: linear in their features, or with one hidden layer.

For one object a box has one score; for several objects, one score a class.
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

HIDDEN, CHANNELS, HIDDEN_OBJECTS = 16, 16, 64
# Twelve geometry features share one squared norm with thousands of others: scaling them
# up weakens their regularisation.
GEOMETRY_SCALE = 10.0


@dataclass(frozen=True)
class FeatureScale:
    """Mean and standard deviation of features over the boxes of a data set.

    Parameters
    ----------
    mean, deviation
        ``(channel,)``, over boxes and grid cells.
    where_mean, where_deviation
        ``(12,)``, of ``geometry``.
    """

    mean: Tensor
    deviation: Tensor
    where_mean: Tensor
    where_deviation: Tensor


class _Scores(nn.Module):
    """Base class: linear scores of box geometry."""

    mean: Tensor
    scale: Tensor
    where_mean: Tensor
    where_scale: Tensor

    def __init__(self, scale: FeatureScale) -> None:
        super().__init__()
        self.where = nn.Parameter(torch.zeros(NUM_GEOMETRY))
        self.register_buffer("mean", scale.mean)
        self.register_buffer("scale", _safe_inverse(scale.deviation))
        self.register_buffer("where_mean", scale.where_mean)
        self.register_buffer(
            "where_scale", GEOMETRY_SCALE * _safe_inverse(scale.where_deviation)
        )

    def score_position(self, geometry: Tensor) -> Tensor:
        """Return scores ``(box,)`` of geometry ``(box, 12)``."""
        return (geometry - self.where_mean) @ (self.where * self.where_scale)


class LinearScores(_Scores):
    """Scores that are linear in appearance and geometry."""

    def __init__(self, scale: FeatureScale) -> None:
        super().__init__(scale)
        self.weight = nn.Parameter(torch.zeros(GRID_SIZE**2, len(scale.mean)))

    def forward(self, features: Tensor, geometry: Tensor) -> Tensor:
        """Return scores ``(box,)`` of ``(box, cell, channel)`` and ``(box, 12)``."""
        # Means are not subtracted: a constant added to all candidates changes nothing.
        appearance = features.flatten(1) @ (self.weight * self.scale).flatten()
        return appearance + self.score_position(geometry)


class NonlinearScores(_Scores):
    """1 x 1 convolution to 16 channels, ELU, linear; plus linear in geometry.

    The 1 x 1 convolution is one matrix for all grid cells.
    """

    def __init__(self, scale: FeatureScale) -> None:
        super().__init__(scale)
        channels = len(scale.mean)
        self.convolution = nn.Parameter(torch.randn(channels, HIDDEN) / channels**0.5)
        self.weight = nn.Parameter(
            torch.randn(GRID_SIZE**2, HIDDEN) / (GRID_SIZE * HIDDEN**0.5)
        )

    def forward(self, features: Tensor, geometry: Tensor) -> Tensor:
        """Return scores ``(box,)`` of ``(box, cell, channel)`` and ``(box, 12)``."""
        scaled = self.convolution * self.scale[:, None]
        hidden = F.elu(features @ scaled - self.mean @ scaled)
        return hidden.flatten(1) @ self.weight.flatten() + self.score_position(geometry)


class ObjectScores(nn.Module):
    """Scores ``(box, class)``; the background has the score 0.

    Layers: a 1 x 1 convolution of the standardised maps of ``Backbone``, RoI means on
    3 x 3 cells of a box and of the box at twice its size, one hidden layer.

    Parameters
    ----------
    mean, deviation
        ``(channel,)``, over positions and images.
    classes
        Number of classes.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, mean: Tensor, deviation: Tensor, classes: int) -> None:
        super().__init__()
        # Cloned, since mean and deviation may be one tensor: loading weights into one
        # buffer would overwrite the other.
        self.register_buffer("mean", mean.clone())
        self.register_buffer("deviation", deviation.clone())
        self.mix = nn.Conv2d(len(mean), CHANNELS, 1)
        self.hidden = nn.Linear(
            2 * CHANNELS * GRID_SIZE**2 + NUM_GEOMETRY, HIDDEN_OBJECTS
        )
        self.scores = nn.Linear(HIDDEN_OBJECTS, classes)
        # Initially all windows are background: every class scores -1 against 0.
        nn.init.zeros_(self.scores.weight)
        nn.init.constant_(self.scores.bias, -1.0)

    def forward(self, maps: Tensor, boxes: Tensor, geometry: Tensor) -> Tensor:
        """Return scores ``(box, class)`` from maps ``(channels, rows, columns)``.

        ``boxes`` are in pixels of the resized image.
        """
        maps = (maps - self.mean[:, None, None]) / self.deviation[:, None, None]
        mixed = self.mix(maps[None])
        centre, side = (boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]
        doubled = torch.cat([centre - side, centre + side], 1)
        # One sampling point a cell.
        appearance = [
            roi_align(mixed, [regions], GRID_SIZE, 1 / STRIDE, 1, aligned=True)
            for regions in (boxes, doubled)
        ]
        hidden_input = torch.cat(
            [F.elu(torch.cat(appearance, 1)).flatten(1), geometry], 1
        )
        scores: Tensor = self.scores(F.elu(self.hidden(hidden_input)))
        return scores


Scores = LinearScores | NonlinearScores | ObjectScores

SCORE_CLASSES: dict[str, type[LinearScores] | type[NonlinearScores]] = {
    "linear": LinearScores,
    "nonlinear": NonlinearScores,
}


def _safe_inverse(deviation: Tensor) -> Tensor:
    # Constant features get scale 0, not infinity. The inner where keeps the gradient of
    # the unused branch finite.
    is_varying = deviation > 1e-6
    return torch.where(is_varying, 1 / torch.where(is_varying, deviation, 1.0), 0.0)
