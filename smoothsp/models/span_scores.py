"""The network of the constituency parser: a score of each label of each span."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothsp.models.encoder import Encoder
from smoothsp.models.features import Batch, Vocabulary
from smoothsp.models.word_vectors import ParserSizes, WordVectors

__all__ = ["SpanScores"]


class SpanScores(nn.Module):
    """Scores of spans from what lies at their two ends.

    Between two words stands ``u``, a linear map of the way ahead up to there and of the
    way back down to there. A span has the scores ``V relu(u_end - u_begin + c)``; no
    constituent, which comes first among the labels, always scores 0.

    Source: Stern, Andreas and Klein, "A Minimal Span-Based Neural Constituency Parser"
    (2017), section 3, after Wang and Chang (2016).

    Parameters
    ----------
    vocabulary
        What the tables are indexed by.
    labels
        Labels of constituents.
    sizes
        Sizes of the parts.
    encoder
        Gives each word a vector in its context, besides all else.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        labels: Sequence[str],
        sizes: ParserSizes,
        encoder: Encoder | None = None,
    ) -> None:
        super().__init__()
        self.sizes = sizes
        self.words = WordVectors(vocabulary, sizes, encoder)
        self.fence = nn.Linear(self.words.size, sizes.arc, bias=False)
        self.shift = nn.Parameter(torch.zeros(sizes.arc))
        self.drop = nn.Dropout(sizes.dropout)
        self.label = nn.Linear(sizes.arc, len(labels))

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.shift.device

    @property
    def encoder(self) -> Encoder | None:
        """The pretrained encoder, if there is one."""
        return self.words.encoder

    def forward(self, batch: Batch) -> Tensor:
        """Scores ``(batch, n, n, 1 + labels)``; the whole sentence is a constituent."""
        batch = batch.to(self.device)
        found = self.words(batch) * batch.mask[..., None]
        ahead, back = found.chunk(2, 2)
        ends = [F.pad(ahead, (0, 0, 1, 0)), F.pad(back, (0, 0, 0, 1))]
        fence = self.fence(torch.cat(ends, 2))  # [B, n + 1, D]
        inside = fence[:, None, 1:] - fence[:, :-1, None] + self.shift
        scores = F.pad(self.label(self.drop(F.relu(inside))), (1, 0))
        last = batch.mask.sum(1) - 1
        whole = torch.zeros(scores.shape, dtype=torch.bool, device=scores.device)
        whole[torch.arange(len(last), device=last.device), 0, last, 0] = True
        return scores.masked_fill(whole, -torch.inf)
