"""Dual coefficients of multiclass SVMs: one block of classes for each sample."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.descent.coordinate_descent import (
    MAX_SKIP_DOUBLINGS,
    ZERO_VIOLATION_ULPS,
    require_finite_sum,
)
from smoothsp.linear.engines.solution import State
from smoothsp.linear.inputs import arrays


class DualBlocks:
    """Dual coefficients ``(n, classes)`` with their bounds and costs.

    Parameters
    ----------
    labels
        ``(n,)``, from 0 to ``classes - 1``.
    bounds
        ``(n,)``: factors of the losses of the samples; their dtype is that of all
        computations. For two classes the attribute has half of them, and ``scale`` = 2
        multiplies the objective. With w the weights of the second class minus those of
        the first, ``|W|^2 = |w|^2 / 2`` at the optimum. So the objective is that of the
        binary SVM: ``|w|^2 / 2`` plus the losses times ``bounds``.
    squared_norms
        ``(n,)``: squared norms of the samples.
    classes
        Number of classes.
    costs
        ``(classes, classes)``: required margins, rows for gold classes; None for 1.
    padding_cost
        Cost of the padding past the last class, which is never the maximum.
    shrinking
        Whether sweeps skip blocks that did not move at their last visits.
    """

    def __init__(
        self,
        labels: NDArray[np.intp],
        bounds: NDArray[Any],
        squared_norms: NDArray[np.float64],
        classes: int,
        costs: NDArray[np.float64] | None,
        padding_cost: float,
        shrinking: bool,
    ) -> None:
        n, dtype = len(labels), bounds.dtype
        self.labels, self.classes = labels, classes
        self.scale = 2.0 if classes == 2 else 1.0
        self.bounds = bounds / dtype.type(self.scale)
        self.squared_norms = squared_norms.astype(dtype)
        self.padded_num_classes = arrays.round_up_to_lanes(classes, dtype)
        self.zero_vector = np.zeros(arrays.num_simd_lanes(dtype), dtype=dtype)
        self.coefficients = arrays.aligned_zeros(n * self.padded_num_classes, dtype)
        self.class_costs = np.ones((1, classes)) if costs is None else costs
        padded_costs = np.full(
            (len(self.class_costs), self.padded_num_classes), padding_cost
        )
        padded_costs[:, :classes] = self.class_costs
        self.costs = padded_costs.astype(dtype).ravel()
        self.dtype = dtype
        epsilon = float(np.finfo(dtype).eps)
        self.zero_violation_tol = dtype.type(
            ZERO_VIOLATION_ULPS * epsilon * self.class_costs.max()
        )
        self.max_skip_doublings = MAX_SKIP_DOUBLINGS if shrinking else 0
        self.skip_counts = np.zeros(n, dtype=np.uint8)
        self.idle_sweeps = np.zeros(n, dtype=np.uint8)
        # The loss of a sample of norm 0 is the same for all weights.
        is_nonzero = squared_norms >= np.finfo(dtype).tiny
        self.optimised_rows = np.flatnonzero(is_nonzero & (bounds > 0))
        self.zero_norm_rows = np.flatnonzero(~is_nonzero)

    @property
    def coefficient_matrix(self) -> NDArray[Any]:
        """Coefficients as ``(n, classes)``; a view."""
        return self.coefficients.reshape(-1, self.padded_num_classes)[:, : self.classes]

    @property
    def variables(self) -> State:
        """Arrays that sweeps change, by their names in saved states; no copies."""
        return {
            "coefficients": self.coefficients,
            "waits": self.skip_counts,
            "calm": self.idle_sweeps,
        }

    def checksum(self, *arrays_to_add: NDArray[Any]) -> int:
        """Checksum of the constant arrays and of ``arrays_to_add``."""
        constants = self.labels, self.bounds, self.squared_norms, self.costs
        return arrays.checksum(*constants, *arrays_to_add)

    def costs_without_gold(self, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """Costs of the classes for these samples, ``(rows, classes)``, 0 for gold."""
        y = self.labels[rows]
        is_shared = len(self.class_costs) == 1
        class_costs = self.class_costs[np.zeros_like(y) if is_shared else y].copy()
        class_costs[np.arange(len(y)), y] = 0
        return class_costs

    def losses_at_zero(self, max_over_classes: bool) -> NDArray[np.float64]:
        """Losses ``(n,)`` at w = 0: sum or maximum of the costs over classes."""
        with np.errstate(over="ignore"):
            per_class = (
                self.class_costs.max(1) if max_over_classes else self.class_costs.sum(1)
            )
        if len(per_class) == 1:
            # A shared row has cost 1 for the gold class, too: subtract it from the sum.
            losses = per_class[0] - (0 if max_over_classes else 1)
        else:
            losses = per_class[self.labels]
        with np.errstate(over="ignore", invalid="ignore"):
            losses = losses * self.bounds.astype(np.float64)
        return require_finite_sum(losses)


def warm_start_blocks(
    blocks: DualBlocks, start_coefficients: NDArray[Any], max_over_classes: bool
) -> None:
    """Set the coefficients to ``(n, classes)`` values, clipped to the bounds.

    Bounds limit each coefficient of a wrong class, or, with ``max_over_classes``, their
    sum.
    """
    rows, y = np.arange(len(start_coefficients)), blocks.labels
    wrong_class_weights = np.maximum(-start_coefficients, 0)
    wrong_class_weights[rows, y] = 0
    wrong_class_weights[blocks.zero_norm_rows] = 0
    bounds = blocks.bounds
    if max_over_classes:
        total = wrong_class_weights.sum(1)
        exceeds_bound = total > bounds
        wrong_class_weights[exceeds_bound] *= (
            bounds[exceeds_bound] / total[exceeds_bound]
        )[:, None]
    else:
        wrong_class_weights = np.minimum(wrong_class_weights, bounds[:, None])
    gold_coefficients = (
        np.minimum(wrong_class_weights.sum(1), bounds)
        if max_over_classes
        else wrong_class_weights.sum(1)
    )
    blocks.coefficient_matrix[:] = -wrong_class_weights
    blocks.coefficient_matrix[rows, y] = gold_coefficients


def saturate_zero_norm_rows(blocks: DualBlocks) -> None:
    """Set rows of norm 0 to their Weston-Watkins optimum: all at their bounds."""
    rows = blocks.zero_norm_rows
    coefficients = -blocks.bounds[rows, None] * (blocks.costs_without_gold(rows) > 0)
    coefficients[np.arange(len(rows)), blocks.labels[rows]] = -coefficients.sum(1)
    blocks.coefficient_matrix[rows] = coefficients


def saturate_costliest_class(blocks: DualBlocks) -> None:
    """Set rows of norm 0 to their Crammer-Singer optimum, the costliest class."""
    rows = blocks.zero_norm_rows
    costliest = blocks.costs_without_gold(rows).argmax(1)
    coefficients = blocks.coefficient_matrix
    coefficients[rows, costliest] -= blocks.bounds[rows]
    coefficients[rows, blocks.labels[rows]] += blocks.bounds[rows]
