"""Losses over a list of outputs: the k best, or samples."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from smoothsp.losses.functional import gold_score, hamming, require_topk
from smoothsp.losses.module import Loss
from smoothsp.losses.reduction import Reduction, check_reduction, reduce, row_weights
from smoothsp.oracles import BoxSearch, Structure, TopKStructure
from smoothsp.oracles._inference import checks, double_double
from smoothsp.oracles._inference.double_double import DoubleDouble
from smoothsp.oracles._inference.parts import part_counts, repeat_rows, training_hint
from smoothsp.oracles._inference.tracing import is_eager_tensor

# ``cost(outputs (batch, k, ...), y)`` gives ``(batch, k)``.
ListCost = Literal["hamming"] | Tensor | Callable[[Tensor, Tensor], Tensor]


class MinimumRisk(Loss):
    r"""Expected cost of an output, over the k best or over samples.

    .. math:: \sum_i q_i \, c(y_i, y), \qquad
        q_i = \frac{\exp(s(y_i) / \tau)}{\sum_j \exp(s(y_j) / \tau)}

    It minimises the cost itself, such as 1 - F1 or 1 - BLEU. The cost needs no
    derivative and need not decompose over parts. The loss is bounded and not convex, so
    start from a model trained with another loss.

    Parameters
    ----------
    k
        Number of outputs, at least 1.
    over
        ``"best"``: the sum above over the k best. ``"samples"``: the average over k
        samples, with an unbiased gradient (``tau`` is 1; k >= 2).
    cost
        ``"hamming"``, or a tensor of the shape of the first potentials: the cost of
        each part. Or a function of outputs ``(batch, k, ...)`` and ``y`` that returns
        ``(batch, k)`` finite numbers. It receives no gradient.
    temperature
        tau, > 0.
    generator
        Random generator of the samples.
    reduction
        As for ``StructuralHinge``.

    Notes
    -----
    One call of ``decode_topk``, or of ``sample`` and ``log_prob``. With samples, the
    gradient is the average of ``(c_i - b_i) grad log_prob(y_i)``, where b_i is the mean
    cost of the other samples. Source: Och, "Minimum Error Rate Training in Statistical
    Machine Translation" (2003); Shen et al., "Minimum Risk Training for Neural Machine
    Translation" (2016); Kool, van Hoof and Welling, "Buy 4 REINFORCE samples, get a
    baseline for free" (2019).

    Examples
    --------
    >>> import torch
    >>> from smoothsp.losses import MinimumRisk
    >>> from smoothsp.oracles import Multiclass
    >>> scores = Multiclass(torch.tensor([[0.0, 0.0, -9.0]]))
    >>> MinimumRisk(k=2)(scores, torch.tensor([0]))
    tensor(0.5000)
    """

    def __init__(
        self,
        k: int = 16,
        over: Literal["best", "samples"] = "best",
        cost: ListCost = "hamming",
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__()
        self.k = checks.as_output_count("k", k)
        if over not in ("best", "samples"):
            raise ValueError(f'over: expected "best" or "samples", got {over!r}')
        checks.require_number("temperature", temperature)
        if over == "samples" and (k < 2 or temperature != 1):
            raise ValueError(
                f"over: expected k >= 2 and temperature 1 with samples, got {k} and "
                f"{temperature}; scale the potentials for another temperature"
            )
        if not 0 < temperature < float("inf"):
            raise ValueError(
                f"temperature: expected a positive number, got {temperature}"
            )
        self.over, self.temperature = over, temperature
        self.cost = _check_cost(cost)
        self.generator = checks.as_generator(generator)
        self.reduction = check_reduction(reduction)

    def forward(
        self, structure: Structure, y: Tensor, weight: Tensor | None = None
    ) -> Tensor:
        """Return the loss of gold outputs y, with optional weights ``(batch,)``."""
        row_weight = row_weights(structure, y, weight, None, self.reduction)
        if self.over == "samples":
            losses = self._sampled_losses(structure, y)
        else:
            scores, ys, valid = k_best(require_topk(structure), self.k)
            costs = costs_of(structure, ys, y, self.cost)
            # float64, since the quotient may leave the range of float32
            below = (
                scores.minus(
                    scores.map_leading_axes(lambda x: x[:, :1]).detach()
                ).double()
                / self.temperature
            )
            below = below.masked_fill(~valid, -torch.inf)
            probs = below.softmax(1).to(costs.dtype)
            losses = (probs * costs.masked_fill(~valid, 0)).sum(1)
        return reduce(losses, row_weight, self.reduction)

    def _sampled_losses(self, structure: Structure, y: Tensor) -> Tensor:
        if not hasattr(structure, "sample") or not hasattr(structure, "log_prob"):
            raise TypeError(
                'over: "samples" needs a structure with sample and log_prob, '
                f"got {type(structure).__name__}"
                + training_hint(structure, '; take "best"')
            )
        ys = structure.sample(self.k, generator=self.generator)
        # leave-one-out baselines do not bias the gradient
        costs = costs_of(structure, ys, y, self.cost)
        baselines = (costs.sum(1, keepdim=True) - costs) / (self.k - 1)
        surrogate = ((costs - baselines) * structure.log_prob(ys)).mean(1)
        # the value is the mean cost, the gradient is that of the surrogate (REINFORCE
        # with the mean cost of the other samples as baseline)
        losses: Tensor = costs.mean(1) + (surrogate - surrogate.detach())
        return losses

    def extra_repr(self) -> str:
        """Return the arguments that ``print`` shows."""
        return f"k={self.k}, over={self.over!r}, reduction={self.reduction!r}"


class RankingHinge(Loss):
    r"""Hinge of the gold output against each of the k best, with margin rescaling.

    .. math:: \frac{1}{k} \sum_{i \le k} \max(0, \; c(y_i, y) + s(y_i) - s(y))

    ``StructuralHinge`` compares the gold output with one worst output. ``RankingHinge``
    compares it with k outputs, each with its own margin. The gold output among them
    adds 0.

    Parameters
    ----------
    k
        Number of outputs, at least 1.
    cost
        As for :class:`MinimumRisk`; at least 0, and 0 for the gold output.
    reduction
        As for ``StructuralHinge``.

    Notes
    -----
    One call of ``decode_topk``. The mean is over the outputs that exist.
    Source: Crammer, McDonald and Pereira, "Scalable Large-Margin Online Learning for
    Structured Classification" (2005): the constraints of k-best MIRA.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.losses import RankingHinge
    >>> from smoothsp.oracles import Multiclass
    >>> scores = Multiclass(torch.tensor([[1.0, 0.5, -9.0]]))
    >>> RankingHinge(k=2)(scores, torch.tensor([0]))
    tensor(0.2500)
    """

    def __init__(
        self,
        k: int = 5,
        cost: ListCost = "hamming",
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__()
        self.k, self.cost = checks.as_output_count("k", k), _check_cost(cost)
        self.reduction = check_reduction(reduction)

    def forward(
        self, structure: TopKStructure, y: Tensor, weight: Tensor | None = None
    ) -> Tensor:
        """Return the loss of gold outputs y, with optional weights ``(batch,)``."""
        row_weight = row_weights(structure, y, weight, None, self.reduction)
        gold = gold_score(structure, y)
        scores, ys, valid = k_best(require_topk(structure), self.k)
        costs = costs_of(structure, ys, y, self.cost)
        _require_no_gain(costs, valid)
        score_gap = (costs + scores.minus(gold.unsqueeze(1))).clamp(min=0)
        # the gold output has cost and gap 0, so it adds 0 to the sum
        losses = score_gap.masked_fill(~valid, 0).sum(1) / valid.sum(1).clamp(min=1)
        return reduce(losses, row_weight, self.reduction)

    def extra_repr(self) -> str:
        """Return the arguments that ``print`` shows."""
        return f"k={self.k}, reduction={self.reduction!r}"


def k_best(structure: TopKStructure, k: int) -> tuple[DoubleDouble, Tensor, Tensor]:
    """Return scores, outputs and a validity mask of the k best.

    Invalid entries have score -inf and copy the best output.
    """
    scores, ys, valid = double_double.decode_topk(structure, k)
    missing = ~valid.reshape(*valid.shape, *[1] * (ys.dim() - 2))
    return scores.masked_fill(~valid), torch.where(missing, ys[:, :1], ys), valid


def costs_of(structure: Structure, ys: Tensor, y: Tensor, cost: ListCost) -> Tensor:
    """Return the costs ``(batch, k)`` of outputs ``ys`` for gold y; no gradient."""
    with torch.no_grad():
        if callable(cost):
            costs = cost(ys, y)
            if not isinstance(costs, Tensor) or costs.shape != ys.shape[:2]:
                shape = tuple(getattr(costs, "shape", ()))
                raise ValueError(
                    f"cost: expected a tensor (batch, k) = {tuple(ys.shape[:2])} for "
                    f"outputs {tuple(ys.shape)}, got {type(costs).__name__} {shape}"
                )
            like = structure.score(y)
            costs = costs.to(like.device, like.dtype)
            if is_eager_tensor(costs) and not bool(costs.isfinite().all()):
                raise ValueError("cost: expected finite numbers")
            return costs
        _check_cost(cost)
        if isinstance(cost, str):
            cost = hamming(structure, y)
        # a box search has no table of parts; it computes costs of outputs itself
        if isinstance(structure, BoxSearch):
            return structure.augment(cost).costs(ys)
        B, k = ys.shape[:2]
        parts = part_counts(repeat_rows(structure, k), ys.flatten(0, 1))
        parts = parts.reshape(B, k, *parts.shape[1:])
        if cost.shape != parts.shape[:1] + parts.shape[2:]:
            raise ValueError(
                f"cost: expected {tuple(parts.shape[:1] + parts.shape[2:])}, got "
                f"{tuple(cost.shape)}"
            )
        table = cost.to(parts.device, parts.dtype).unsqueeze(1)
        # unused parts may have infinite costs, and 0 inf is NaN
        costs = torch.where(parts != 0, parts * table, 0).flatten(2).sum(2)
        if is_eager_tensor(costs) and not bool(costs.isfinite().all()):
            raise ValueError("cost: expected finite numbers where an output has parts")
        return costs


def _require_no_gain(costs: Tensor, valid: Tensor) -> None:
    if is_eager_tensor(costs):
        gain = (costs < 0) & valid
        if bool(gain.any()):
            row, i = gain.nonzero()[0].tolist()
            raise ValueError(
                "cost: expected at least 0 for each output, got "
                f"{costs[row, i].item():.6g} at row {row}, output {i}"
            )


def _check_cost(cost: ListCost) -> ListCost:
    if isinstance(cost, str):
        if cost != "hamming":
            raise ValueError(
                f'cost: expected "hamming", a tensor or a function, got {cost!r}'
            )
    elif not isinstance(cost, Tensor) and not callable(cost):
        raise TypeError(
            'cost: expected "hamming", a tensor or a function, got '
            f"{type(cost).__name__}"
        )
    return cost
