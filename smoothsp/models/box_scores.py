"""Scores of boxes: linear in their features, or with one small hidden layer."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothsp.models.regions import GEOMETRY, PLACES

__all__ = ["KINDS", "FeatureScale", "LinearScores", "NonlinearScores"]

HIDDEN = 16
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
        self.where = nn.Parameter(torch.zeros(GEOMETRY))
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
        self.weight = nn.Parameter(torch.zeros(PLACES**2, len(scale.mean)))

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
            torch.randn(PLACES**2, HIDDEN) / (PLACES * HIDDEN**0.5)
        )

    def forward(self, features: Tensor, geometry: Tensor) -> Tensor:
        """Scores ``(box,)`` of ``(box, place, channel)`` and ``(box, 12)``."""
        scaled = self.convolution * self.scale[:, None]
        hidden = F.elu(features @ scaled - self.mean @ scaled)
        return hidden.flatten(1) @ self.weight.flatten() + self.of_place(geometry)


KINDS: dict[str, type[LinearScores] | type[NonlinearScores]] = {
    "linear": LinearScores,
    "nonlinear": NonlinearScores,
}


def _inverse(deviation: Tensor) -> Tensor:
    # a feature that is the same everywhere tells nothing
    alive = deviation > 1e-6
    return torch.where(alive, 1 / torch.where(alive, deviation, 1.0), 0.0)
