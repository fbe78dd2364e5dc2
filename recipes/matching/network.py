"""Scores of pairs of points, and of points that have no partner."""

import torch
from torch import Tensor, nn

from matching.points import FEATURES
from smoothsp.oracles import Matching

HIDDEN, EMBEDDED = 48, 32


class PairScores(nn.Module):
    """A score of each pair of points, a function of how the two look and move.

    To it the product of two embedded descriptors is added, which learns what of a
    descriptor survives a change of view.
    """

    def __init__(self, descriptor_size: int) -> None:
        super().__init__()
        self.descriptor_size = descriptor_size
        self.pairs = nn.Sequential(
            nn.Linear(FEATURES, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, 1),
        )
        self.embed = nn.Linear(descriptor_size, EMBEDDED, bias=False)
        self.alone = nn.Parameter(torch.zeros(()))

    def forward(self, batch: dict[str, Tensor]) -> Matching:
        """Matchings ``(batch, P, Q + 1)``; the last column is to stay alone."""
        scores = self.pairs(batch["features"]).squeeze(3)
        first, second = self.embed(batch["first"]), self.embed(batch["second"])
        scores = scores + first @ second.transpose(1, 2)
        scores = scores.masked_fill(~batch["real"], -torch.inf)
        unmatched = self.alone.expand(*scores.shape[:2], 1)
        return Matching(torch.cat([scores, unmatched], 2), partial=True)
