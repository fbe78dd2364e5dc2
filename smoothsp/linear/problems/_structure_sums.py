"""Risks of structure problems: mean losses and gradients over all examples."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothsp.linear.problems.batch import ValueAndGradient, require_smoothing

Weights = NDArray[np.float64]


class StructureRiskMixin:
    """Mixin that derives ``BatchProblem`` from ``mean_slope`` and ``tangent``."""

    # set by the problem class
    num_weights: int

    def __len__(self) -> int:
        """Number of examples of the problem."""
        raise NotImplementedError

    def _iter_chunks(self) -> Iterator[NDArray[np.int64]]:
        raise NotImplementedError

    def structure(self, w: Weights, rows: Any = None) -> Any:
        """Return the structure of the examples ``rows`` at weights w."""
        raise NotImplementedError

    def mean_slope(self, w: Weights, loss: str, mu: float, k: int) -> ValueAndGradient:
        """Return the mean loss and its gradient."""
        raise NotImplementedError

    def tangent(
        self, w: Weights, loss: str, mu: float, k: int
    ) -> tuple[float, Weights, float]:
        """Return the mean loss, its gradient and the expected cost."""
        raise NotImplementedError

    def risk(self, w: Weights) -> ValueAndGradient:
        """Mean hinge at w, and a subgradient; see :class:`BatchProblem`."""
        return self.mean_slope(w, "hinge", 0.0, 1)

    def smoothed_risk(
        self, w: Weights, mu: float, smoothing: str = "entropy", k: int = 5
    ) -> ValueAndGradient:
        """Mean hinge smoothed from below, and its gradient."""
        require_smoothing(smoothing, mu, k)
        # losses are smoothed from above: subtract mu D for a lower bound of the risk
        value, gradient = self.mean_slope(w, f"hinge-{smoothing}", float(mu), k)
        return value - mu * self.diameter(smoothing), gradient

    def smoothed_tangent(
        self, w: Weights, mu: float, smoothing: str = "entropy", k: int = 5
    ) -> tuple[float, Weights, float]:
        """Result of ``smoothed_risk``, and the expected cost: a tangent at 0.

        ``<v, gradient>`` plus the expected cost is at most the risk at any v.
        """
        require_smoothing(smoothing, mu, k)
        value, gradient, cost = self.tangent(w, f"hinge-{smoothing}", float(mu), k)
        return value - mu * self.diameter(smoothing), gradient, cost

    def has_more_outputs(self, k: int) -> bool:
        """Whether an example has more than k outputs."""
        zero = np.zeros(self.num_weights)
        return any(
            bool(self.structure(zero, chunk).decode_topk(k + 1)[2][:, k].any())
            for chunk in self._iter_chunks()
        )

    def diameter(self, smoothing: str = "entropy") -> float:
        """Largest gap between risk and smoothed risk, divided by mu."""
        require_smoothing(smoothing, 1.0, 1)
        return 0.5 if smoothing == "l2" else self._mean_log_num_outputs

    @cached_property
    def _mean_log_num_outputs(self) -> float:
        zero, total = np.zeros(self.num_weights), 0.0
        for chunk in self._iter_chunks():
            structure = self.structure(zero, chunk)
            if not hasattr(structure, "log_partition"):
                raise TypeError(
                    "smoothing: expected 'l2' for a structure that has no"
                    f" log_partition, {type(structure).__name__}"
                )
            # at weights 0 all scores are 0: log Z is the log of the number of outputs
            total += float(structure.log_partition().sum())
        return total / len(self)

    def likelihood(self, w: Weights) -> ValueAndGradient:
        """Mean negative log-likelihood of the gold outputs, and its gradient."""
        return self.mean_slope(w, "likelihood", 1.0, 1)


def compute_gradients(values: Tensor, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Gradients of ``values.sum()``; zeros for inputs that it does not depend on."""
    if not values.requires_grad:
        return [torch.zeros_like(x) for x in inputs]
    gradients = torch.autograd.grad(values.sum(), inputs, allow_unused=True)
    return [
        torch.zeros_like(x) if gradient is None else gradient
        for x, gradient in zip(inputs, gradients, strict=True)
    ]


def compute_costs(
    cost: Any,
    structure: Any,
    y: Tensor,
    scale: Tensor,
    example_indices: NDArray[np.int64],
) -> Tensor:
    """Return costs times ``scale`` for ``augment``: a leaf tensor, at least 0."""
    costs = cost(structure, y) if callable(cost) else structure.hamming(y)
    if not isinstance(costs, Tensor):
        raise TypeError(
            "cost: expected a function that returns a tensor, as augment takes it,"
            f" got one that returns {type(costs).__name__}"
        )
    if costs.layout is not torch.strided or costs.is_complex():
        raise TypeError(
            "cost: expected a dense tensor of real numbers, got"
            f" {costs.layout}, {costs.dtype}"
        )
    if not costs.dim() or len(costs) != len(example_indices):
        raise ValueError(
            f"cost: expected a tensor (batch, ...) = ({len(example_indices)}, ...),"
            f" as augment"
            f" takes it, got shape {tuple(costs.shape)}"
        )
    scaled: Tensor = costs.detach() * scale.reshape(-1, *[1] * (costs.dim() - 1))
    invalid = ~((scaled >= 0) & (scaled < torch.inf))
    if bool(invalid.any()):
        entry = tuple(invalid.nonzero()[0].tolist())
        raise ValueError(
            "cost: expected finite numbers of at least 0, got"
            f" {scaled[entry].item():.6g} at example {example_indices[entry[0]]}, entry"
            f" {list(entry[1:])}"
        )
    return scaled.requires_grad_()


def require_valid_costs(
    structure: Any, y: Tensor, cost: Tensor, example_indices: NDArray[np.int64]
) -> None:
    """Raise unless the gold output costs 0 and scores are differentiable in the cost.

    Scores of the gold output at weights 0 are its costs, since potentials are 0.
    """
    gold_cost = structure.augment(cost.detach()).score(y).detach()
    if bool(gold_cost.any()):
        i = int(gold_cost.ne(0).int().argmax())
        raise ValueError(
            "cost: expected 0 for all that the gold output uses, got"
            f" {gold_cost[i].item():.6g} for it at example {example_indices[i]}"
        )
    unit_cost = torch.ones_like(cost).requires_grad_()
    gold_cost = structure.augment(unit_cost).score(y)
    [gradient] = compute_gradients(gold_cost, [unit_cost])
    if bool(
        (gold_cost.detach().ne(0) & ~gradient.reshape(len(unit_cost), -1).any(1)).any()
    ):
        raise ValueError(
            "build: expected a structure whose augment(cost) is differentiable in the"
            f" cost, got {type(structure).__name__}, whose scores have no derivative in"
            " it; add the cost without detach()"
        )
