"""Questions to a choice of candidates."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from smoothsp.oracles._inference.double_double import as_hi_lo
from smoothsp.oracles._inference.engine import BestOutputs, Engine
from smoothsp.oracles._inference.logsumexp import logsumexp


class CandidateEngine(Engine):
    """Answers about a choice, without gradients; a candidate uses its own entry."""

    num_row_potentials = 1

    def __init__(self, choice: Any) -> None:
        self.choice, self.potentials = choice, (choice.scores,)

    @torch.no_grad()
    def best(
        self, k: int | None, dtype: torch.dtype, precise: bool = False
    ) -> BestOutputs:
        values, y, *_ = (
            self.choice.decode() if k is None else self.choice.decode_topk(k)
        )
        return BestOutputs(values, y, y.unsqueeze(-1), as_hi_lo(values))

    @torch.no_grad()
    def log_partition(
        self, wanted: Sequence[bool], dtype: torch.dtype, two: bool = False
    ) -> tuple[Tensor, Tensor | None, list[Tensor]]:
        choice = self.choice
        filled, some = choice._filled, choice.mask.any(1, keepdim=True)
        top = filled.amax(1, keepdim=True)
        # the maximum, and what is relative to it
        rest = logsumexp(filled - top)[:, None]
        probabilities = (filled - top - rest).exp()[:, : choice.scores.shape[1]] * some
        parts = torch.cat([top, rest], 1).double() * some
        return parts.sum(1).to(dtype), parts, [probabilities]
