"""Network of the constituency parser: label scores of all spans."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothsp.models.encoder import Encoder
from smoothsp.models.features import Batch, Vocabulary
from smoothsp.models.word_vectors import ParserSizes, WordVectors

__all__ = ["SpanScores"]


class SpanScores(nn.Module):
    """Scores of spans from LSTM states at their two boundaries.

    Each boundary between words has a vector ``u``, linear in the forward state before
    and the backward state after it. A span has scores ``V relu(u_end - u_begin + c)``.
    Label 0, no constituent, scores 0.

    Source: Stern, Andreas and Klein, "A Minimal Span-Based Neural Constituency Parser"
    (2017), section 3, after Wang and Chang (2016).

    Parameters
    ----------
    vocabulary
        Vocabulary of the embedding tables.
    labels
        Labels of constituents.
    sizes
        Layer sizes.
    encoder
        Pretrained encoder, whose vectors are appended to the embeddings.
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
        """The pretrained encoder, or None."""
        return self.words.encoder

    def forward(self, batch: Batch) -> Tensor:
        """Return scores ``(batch, n, n, 1 + labels)`` of spans from i to j.

        The whole sentence must be a constituent: its label 0 scores -inf.
        """
        batch = batch.to(self.device)
        vectors = self.words(batch) * batch.mask[..., None]
        forward_states, backward_states = vectors.chunk(2, 2)
        ends = [
            F.pad(forward_states, (0, 0, 1, 0)),
            F.pad(backward_states, (0, 0, 0, 1)),
        ]
        fence = self.fence(torch.cat(ends, 2))  # [B, n + 1, D]
        span_vectors = fence[:, None, 1:] - fence[:, :-1, None] + self.shift
        scores = F.pad(self.label(self.drop(F.relu(span_vectors))), (1, 0))
        last = batch.mask.sum(1) - 1
        is_no_constituent = torch.zeros(
            scores.shape, dtype=torch.bool, device=scores.device
        )
        is_no_constituent[torch.arange(len(last), device=last.device), 0, last, 0] = (
            True
        )
        return scores.masked_fill(is_no_constituent, -torch.inf)
