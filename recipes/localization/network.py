"""Scores of candidate boxes: linear in their features, or one small hidden layer."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from localization.features import CHANNELS, PLACES, WholeImage

HIDDEN = 16


class LinearScores(nn.Module):
    """A weight for each of the 2,304 features: the paper's linear score."""

    def __init__(self, spread: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(PLACES**2, CHANNELS))
        self.register_buffer("spread", spread)

    def forward(self, features: Tensor) -> Tensor:
        # no mean: what all candidates have in common changes no choice
        return features.flatten(1) @ (self.weight / self.spread).flatten()


class NonlinearScores(nn.Module):
    """1 x 1 convolution to 16 channels, ELU, linear: 4,240 weights, as in the paper.

    A 1 x 1 convolution is one matrix for all places.
    """

    def __init__(self, mean: Tensor, spread: Tensor) -> None:
        super().__init__()
        self.convolution = nn.Parameter(torch.randn(CHANNELS, HIDDEN) / CHANNELS**0.5)
        self.weight = nn.Parameter(
            torch.randn(PLACES**2, HIDDEN) / (PLACES * HIDDEN**0.5)
        )
        self.register_buffer("mean", mean)
        self.register_buffer("spread", spread)

    def forward(self, features: Tensor) -> Tensor:
        scaled = self.convolution / self.spread[:, None]
        hidden = F.elu(features @ scaled - self.mean @ scaled)
        return hidden.flatten(1) @ self.weight.flatten()


class Localiser(nn.Module):
    """Scores ``(1, box)`` of the candidates of an image.

    Of features that were computed before, or with ``convolutions`` of the image.
    """

    def __init__(self, scores: nn.Module, convolutions: nn.Module | None) -> None:
        super().__init__()
        self.scores = scores
        self.features = WholeImage(convolutions) if convolutions else None

    def forward(self, *inputs: Tensor) -> Tensor:
        found = self.features(*inputs) if self.features else inputs[0]
        return self.scores(found)[None]
