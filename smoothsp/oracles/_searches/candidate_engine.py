"""Ops of ``Multiclass``: a softmax over candidates."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from smoothsp.oracles._inference.double_double import as_hi_lo
from smoothsp.oracles._inference.engine import BestOutputs, Engine
from smoothsp.oracles._inference.logsumexp import logsumexp


class CandidateEngine(Engine):
    """Values and derivatives of ``Multiclass``; candidate c uses entry c."""

    num_row_potentials = 1

    def __init__(self, multiclass: Any) -> None:
        self.multiclass, self.potentials = multiclass, (multiclass.scores,)

    @torch.no_grad()
    def best(
        self, k: int | None, dtype: torch.dtype, recheck_in_float64: bool = False
    ) -> BestOutputs:
        values, y, *_ = (
            self.multiclass.decode() if k is None else self.multiclass.decode_topk(k)
        )
        return BestOutputs(values, y, y.unsqueeze(-1), as_hi_lo(values))

    @torch.no_grad()
    def log_partition(
        self, needs_grad: Sequence[bool], dtype: torch.dtype, with_hi_lo: bool = False
    ) -> tuple[Tensor, Tensor | None, list[Tensor]]:
        multiclass = self.multiclass
        scores, has_candidates = (
            multiclass._scores_or_zeros,
            multiclass.mask.any(1, keepdim=True),
        )
        top = scores.amax(1, keepdim=True)
        # hi is the maximum, lo = log sum exp(score - maximum)
        shifted_log_partition = logsumexp(scores - top)[:, None]
        probabilities = (scores - top - shifted_log_partition).exp()[
            :, : multiclass.scores.shape[1]
        ] * has_candidates
        # a row without candidates has the empty output alone: log 1 = 0
        hi_lo = torch.cat([top, shifted_log_partition], 1).double() * has_candidates
        return hi_lo.sum(1).to(dtype), hi_lo, [probabilities]
