"""Means over the examples of a problem of any structure."""

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
    """Methods of a ``BatchProblem`` for problems with structures."""

    # of the problem
    num_weights: int

    def __len__(self) -> int:
        """Number of examples of the problem."""
        raise NotImplementedError

    def _chunks(self) -> Iterator[NDArray[np.int64]]:
        raise NotImplementedError

    def structure(self, w: Weights, rows: Any = None) -> Any:
        """Structure of the problem."""
        raise NotImplementedError

    def mean_slope(self, w: Weights, loss: str, mu: float, k: int) -> ValueAndGradient:
        """Mean gradient of the problem."""
        raise NotImplementedError

    def tangent(
        self, w: Weights, loss: str, mu: float, k: int
    ) -> tuple[float, Weights, float]:
        """Tangent of the problem."""
        raise NotImplementedError

    def risk(self, w: Weights) -> ValueAndGradient:
        """Mean hinge at w, and a subgradient; see :class:`BatchProblem`."""
        return self.mean_slope(w, "hinge", 0.0, 1)

    def smoothed_risk(
        self, w: Weights, mu: float, smoothing: str = "entropy", k: int = 5
    ) -> ValueAndGradient:
        """Mean hinge smoothed from below, and its gradient."""
        require_smoothing(smoothing, mu, k)
        value, slope = self.mean_slope(w, f"hinge-{smoothing}", float(mu), k)
        return value - mu * self.diameter(smoothing), slope

    def smoothed_tangent(
        self, w: Weights, mu: float, smoothing: str = "entropy", k: int = 5
    ) -> tuple[float, Weights, float]:
        """Result of ``smoothed_risk``, and the expected cost: a tangent at 0.

        ``<v, slope>`` and the expected cost are at most the risk at any v.
        """
        require_smoothing(smoothing, mu, k)
        value, slope, cost = self.tangent(w, f"hinge-{smoothing}", float(mu), k)
        return value - mu * self.diameter(smoothing), slope, cost

    def has_more_outputs(self, k: int) -> bool:
        """Whether an example has more than k outputs."""
        zero = np.zeros(self.num_weights)
        return any(
            bool(self.structure(zero, chosen).decode_topk(k + 1)[2][:, k].any())
            for chosen in self._chunks()
        )

    def diameter(self, smoothing: str = "entropy") -> float:
        """Largest gap between risk and smoothed risk, divided by mu."""
        require_smoothing(smoothing, 1.0, 1)
        return 0.5 if smoothing == "l2" else self._mean_log_count

    @cached_property
    def _mean_log_count(self) -> float:
        zero, total = np.zeros(self.num_weights), 0.0
        for chosen in self._chunks():
            structure = self.structure(zero, chosen)
            if not hasattr(structure, "log_partition"):
                raise TypeError(
                    "smoothing: expected 'l2' for a structure that has no"
                    f" log_partition, {type(structure).__name__}"
                )
            total += float(structure.log_partition().sum())
        return total / len(self)

    def likelihood(self, w: Weights) -> ValueAndGradient:
        """Mean negative log-likelihood of the gold outputs, and its gradient."""
        return self.mean_slope(w, "likelihood", 1.0, 1)


def compute_gradients(values: Tensor, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Gradients of the sum; zeros for tensors that it does not depend on."""
    if not values.requires_grad:
        return [torch.zeros_like(x) for x in inputs]
    found = torch.autograd.grad(values.sum(), inputs, allow_unused=True)
    return [
        torch.zeros_like(x) if slope is None else slope
        for x, slope in zip(inputs, found, strict=True)
    ]


def compute_costs(
    cost: Any, structure: Any, y: Tensor, scale: Tensor, chosen: NDArray[np.int64]
) -> Tensor:
    """Scaled costs for ``augment``: a leaf tensor of finite numbers of at least 0."""
    found = cost(structure, y) if callable(cost) else structure.hamming(y)
    if not isinstance(found, Tensor):
        raise TypeError(
            "cost: expected a function that returns a tensor, as augment takes it,"
            f" got one that returns {type(found).__name__}"
        )
    if found.layout is not torch.strided or found.is_complex():
        raise TypeError(
            "cost: expected a dense tensor of real numbers, got"
            f" {found.layout}, {found.dtype}"
        )
    if not found.dim() or len(found) != len(chosen):
        raise ValueError(
            f"cost: expected a tensor (batch, ...) = ({len(chosen)}, ...), as augment"
            f" takes it, got shape {tuple(found.shape)}"
        )
    scaled: Tensor = found.detach() * scale.reshape(-1, *[1] * (found.dim() - 1))
    wrong = ~((scaled >= 0) & (scaled < torch.inf))
    if bool(wrong.any()):
        place = tuple(wrong.nonzero()[0].tolist())
        raise ValueError(
            "cost: expected finite numbers of at least 0, got"
            f" {scaled[place].item():.6g} at example {chosen[place[0]]}, entry"
            f" {list(place[1:])}"
        )
    return scaled.requires_grad_()


def require_valid_costs(
    structure: Any, y: Tensor, cost: Tensor, chosen: NDArray[np.int64]
) -> None:
    """Gold outputs, which score 0 without costs, are free; others cost by a slope."""
    paid = structure.augment(cost.detach()).score(y).detach()
    if bool(paid.any()):
        i = int(paid.ne(0).int().argmax())
        raise ValueError(
            "cost: expected 0 for all that the gold output uses, got"
            f" {paid[i].item():.6g} for it at example {chosen[i]}"
        )
    one = torch.ones_like(cost).requires_grad_()
    paid = structure.augment(one).score(y)
    [slope] = compute_gradients(paid, [one])
    if bool((paid.detach().ne(0) & ~slope.reshape(len(one), -1).any(1)).any()):
        raise ValueError(
            "build: expected a structure whose augment(cost) is differentiable in the"
            f" cost, got {type(structure).__name__}, whose scores have no derivative in"
            " it; add the cost without detach()"
        )
