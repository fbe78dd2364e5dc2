"""Losses of predictions over a pool of known outputs, without decoding.

The potentials s predict true scores t of parts, as in :class:`SPOPlus`. A pool is a
list of outputs seen so far, including the truly best ones. The losses train predictions
to rank the pool as the true scores do.
"""

from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

from smoothsp.losses.module import Loss
from smoothsp.losses.reduction import Reduction, check_reduction, reduce, row_weights
from smoothsp.losses.spo_plus import check_true_scores
from smoothsp.oracles import Structure
from smoothsp.oracles._inference import checks
from smoothsp.oracles._inference.parts import (
    float64_if_large,
    part_counts,
    repeat_rows,
    score_outputs,
    training_hint,
)


class SolutionPool:
    """Distinct outputs seen so far.

    Parameters
    ----------
    outputs
        ``(number, ...)`` int64: outputs that are valid for every row.

    Attributes
    ----------
    outputs
        ``(number, ...)`` int64, distinct.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.losses import SolutionPool
    >>> pool = SolutionPool(torch.tensor([[0, 1], [1, 0], [0, 1]]))
    >>> pool.add(torch.tensor([[1, 1]]))
    >>> len(pool)
    3
    """

    def __init__(self, outputs: Int[Tensor, "number ..."]) -> None:
        self.outputs = torch.unique(outputs.detach(), dim=0)

    def add(self, outputs: Int[Tensor, "number ..."]) -> None:
        """Add outputs, such as those of ``decode``; duplicates are dropped."""
        self.outputs = torch.unique(torch.cat([self.outputs, outputs.detach()]), dim=0)

    def __len__(self) -> int:
        return len(self.outputs)


class _PoolLoss(Loss):
    """Base of pool losses: predicted and true scores of a pool's outputs."""

    def __init__(self, reduction: Reduction) -> None:
        super().__init__()
        self.reduction = check_reduction(reduction)

    def forward(
        self,
        structure: Structure,
        y: Tensor,
        true_scores: Tensor,
        pool: SolutionPool | Tensor,
        weight: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of the predictions in ``structure``.

        Parameters
        ----------
        structure
            Predicted potentials of a batch.
        y
            ``(batch, ...)`` int64: a best output under the true scores.
        true_scores
            Of the shape of the first potentials: the true scores of parts.
        pool
            A ``SolutionPool`` for all rows, or its tensor ``(number, ...)``; or outputs
            ``(batch, number, ...)`` of each row.
        weight
            ``(batch,)`` weight of each example.
        """
        row_weight = row_weights(structure, y, weight, None, self.reduction)
        if not isinstance(y, Tensor):
            raise TypeError(
                f"y: expected a tensor of outputs, got {type(y).__name__}"
                f"{training_hint(structure)}"
            )
        B = len(y)
        outputs = pool.outputs if isinstance(pool, SolutionPool) else pool
        if outputs.dim() == y.dim():
            outputs = outputs.expand(B, *outputs.shape)
        if outputs.dim() != y.dim() + 1 or outputs.shape[2:] != y.shape[1:]:
            raise ValueError(
                "pool: expected outputs (number, ...) or (batch, number, ...) for y "
                f"{tuple(y.shape)}, got {tuple(outputs.shape)}"
            )
        # the best output first, so that one call scores all
        ys = torch.cat([y[:, None], outputs], 1)
        float64_structure, was_float32 = float64_if_large(structure)
        predicted = score_outputs(float64_structure, ys)
        true = _true_scores(structure, ys, true_scores)
        # gaps of the pool's outputs to the best one, in predicted and in true scores
        first = predicted.map_leading_axes(lambda x: x[:, :1])
        score_gap = predicted.map_leading_axes(lambda x: x[:, 1:]).minus(first)
        score_gap = score_gap.float() if was_float32 else score_gap
        losses = self._losses(score_gap, true[:, 1:] - true[:, :1])
        return reduce(losses, row_weight, self.reduction)

    def _losses(self, score_gap: Tensor, true_gap: Tensor) -> Tensor:
        """``(batch,)`` losses of ``s(y') - s(y)`` and ``t(y') - t(y)``, (batch, S)."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        """Return the arguments that ``print`` shows."""
        return f"reduction={self.reduction!r}"


class NoiseContrastive(_PoolLoss):
    r"""Score of the pool's outputs above the best one, by mean or maximum.

    .. math:: \frac{1}{|S|} \sum_{y' \in S} [s(y') - s(y)], \qquad
        \text{or} \quad \max_{y' \in S} [s(y') - s(y)]

    Parameters
    ----------
    against
        ``"all"``: the mean above. ``"best"``: the maximum.
    relative
        Use ``s - t``, predicted minus true scores, so that perfect predictions have
        loss 0. For the mean this changes the value but not the gradient.
    reduction
        As for ``StructuralHinge``.

    Notes
    -----
    The mean is linear in the scores and has no minimum: stop early, or add a penalty.
    Source: Mulamba et al., "Contrastive Losses and Solution Caching for
    Predict-and-Optimize" (2021), section 4.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.losses import NoiseContrastive
    >>> from smoothsp.oracles import Multiclass
    >>> true, predicted = torch.tensor([[3.0, 1.0]]), torch.tensor([[1.0, 2.0]])
    >>> pool = torch.tensor([0, 1])
    >>> loss = NoiseContrastive("best", relative=False)
    >>> loss(Multiclass(predicted), torch.tensor([0]), true, pool)
    tensor(1.)
    """

    def __init__(
        self,
        against: Literal["all", "best"] = "all",
        relative: bool = True,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction)
        if against not in ("all", "best"):
            raise ValueError(f'against: expected "all" or "best", got {against!r}')
        self.against, self.relative = against, relative

    def _losses(self, score_gap: Tensor, true_gap: Tensor) -> Tensor:
        if self.relative:
            score_gap = score_gap - true_gap
        return score_gap.mean(1) if self.against == "all" else score_gap.amax(1)

    def extra_repr(self) -> str:
        """Return the arguments that ``print`` shows."""
        return f"against={self.against!r}, relative={self.relative}"


class PairwiseRanking(_PoolLoss):
    r"""Hinge of the best output against each truly worse output of the pool.

    .. math:: \frac{1}{|W|} \sum_{y' \in W} \max(0, \nu + s(y') - s(y)), \qquad
        W = \{y' \in S : t(y') < t(y)\}

    Parameters
    ----------
    margin
        nu, >= 0.
    reduction
        As for ``StructuralHinge``.

    Notes
    -----
    Source: Mandi et al., "Decision-Focused Learning: Through the Lens of Learning to
    Rank" (2022), section 4.2, with pairs of the best output and each other output.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.losses import PairwiseRanking
    >>> from smoothsp.oracles import Multiclass
    >>> true, predicted = torch.tensor([[3.0, 1.0]]), torch.tensor([[1.0, 2.0]])
    >>> pool = torch.tensor([0, 1])
    >>> PairwiseRanking(0.5)(Multiclass(predicted), torch.tensor([0]), true, pool)
    tensor(1.5000)
    """

    def __init__(self, margin: float = 0.1, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.margin = checks.as_nonnegative("margin", margin)

    def _losses(self, score_gap: Tensor, true_gap: Tensor) -> Tensor:
        worse = true_gap < 0
        violated = (self.margin + score_gap).clamp(min=0)
        return violated.masked_fill(~worse, 0).sum(1) / worse.sum(1).clamp(min=1)

    def extra_repr(self) -> str:
        """Return the arguments that ``print`` shows."""
        return f"margin={self.margin}, reduction={self.reduction!r}"


class ListwiseRanking(_PoolLoss):
    r"""Cross-entropy of the pool's softmax under true scores and under predictions.

    .. math:: -\sum_{y' \in S} p_t(y') \log p_s(y'), \qquad
        p_s(y') = \frac{\exp(s(y') / \tau)}{\sum_{z \in S} \exp(s(z) / \tau)}

    Parameters
    ----------
    temperature
        tau, > 0.
    reduction
        As for ``StructuralHinge``.

    Notes
    -----
    Source: Mandi et al., "Decision-Focused Learning: Through the Lens of Learning to
    Rank" (2022), section 4.3.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.losses import ListwiseRanking
    >>> from smoothsp.oracles import Multiclass
    >>> scores = torch.zeros(1, 2)
    >>> pool = torch.tensor([0, 1])
    >>> ListwiseRanking()(Multiclass(scores), torch.tensor([0]), scores, pool)
    tensor(0.6931)
    """

    def __init__(self, temperature: float = 1.0, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.temperature = checks.as_positive("temperature", temperature)

    def _losses(self, score_gap: Tensor, true_gap: Tensor) -> Tensor:
        target = (true_gap / self.temperature).softmax(1)
        log_probs = (score_gap / self.temperature).log_softmax(1)
        # without the mask, 0 times -inf would be NaN
        return -torch.where(target > 0, target * log_probs, 0).sum(1)

    def extra_repr(self) -> str:
        """Return the arguments that ``print`` shows."""
        return f"temperature={self.temperature}, reduction={self.reduction!r}"


def _true_scores(structure: Structure, ys: Tensor, true_scores: Tensor) -> Tensor:
    """Return the true scores ``(batch, k)`` of outputs ``(batch, k, ...)``."""
    B, k = ys.shape[:2]
    parts = part_counts(repeat_rows(structure, k), ys.flatten(0, 1))
    parts = parts.reshape(B, k, *parts.shape[1:])
    table = check_true_scores(true_scores, parts[:, 0])
    return torch.where(parts != 0, parts * table[:, None], 0).flatten(2).sum(2)
