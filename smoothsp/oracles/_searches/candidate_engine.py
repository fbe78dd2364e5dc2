"""Questions to a choice of candidates."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from smoothsp.oracles._inference.double_double import as_two
from smoothsp.oracles._inference.engine import Chosen, Engine
from smoothsp.oracles._inference.logsumexp import log_sum


class CandidateEngine(Engine):
    """Answers about a choice, without gradients; a candidate uses its own entry."""

    own = 1

    def __init__(self, multiclass: Any) -> None:
        self.multiclass, self.potentials = multiclass, (multiclass.scores,)

    @torch.no_grad()
    def best(self, k: int | None, dtype: torch.dtype, precise: bool = False) -> Chosen:
        values, y, *_ = (
            self.multiclass.decode() if k is None else self.multiclass.decode_topk(k)
        )
        return Chosen(values, y, y.unsqueeze(-1), as_two(values))

    @torch.no_grad()
    def log_partition(
        self, needs_grad: Sequence[bool], dtype: torch.dtype, two: bool = False
    ) -> tuple[Tensor, Tensor | None, list[Tensor]]:
        multiclass = self.multiclass
        scores, has_candidates = (
            multiclass._scores_or_zeros,
            multiclass.mask.any(1, keepdim=True),
        )
        top = scores.amax(1, keepdim=True)
        # the maximum, and what is relative to it
        shifted_log_partition = log_sum(scores - top)[:, None]
        probabilities = (scores - top - shifted_log_partition).exp()[
            :, : multiclass.scores.shape[1]
        ] * has_candidates
        hi_lo = torch.cat([top, shifted_log_partition], 1).double() * has_candidates
        return hi_lo.sum(1).to(dtype), hi_lo, [probabilities]
