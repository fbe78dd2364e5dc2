"""The coefficients of a multiclass problem: one block a sample."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.descent.coordinate_descent import (
    PATIENCE,
    STILL,
    require_finite_sum,
)
from smoothsp.linear.engines.solution import State
from smoothsp.linear.inputs import arrays


class DualBlocks:
    """Coefficients that a solver changes, and what bounds them.

    Parameters
    ----------
    labels
        ``(n,)``, from 0 to ``classes - 1``.
    bounds
        ``(n,)``: factors of the losses of the samples. All is computed in their dtype.
        For two classes the attribute has half of them, and the objective is taken twice
        (``scale``). With w the weights of the second class less those of the first,
        ``|W|^2 = |w|^2 / 2`` at the optimum. So this is the binary problem:
        ``|w|^2 / 2`` and the losses times ``bounds``.
    squares
        ``(n,)``: squared norms of the samples.
    classes
        How many.
    costs
        ``(classes, classes)`` margins, or None for 1.
    padding
        The cost of what stands past the last class.
    shrinking
        Whether blocks that do not move are passed over for a while.
    """

    def __init__(
        self,
        labels: NDArray[np.intp],
        bounds: NDArray[Any],
        squares: NDArray[np.float64],
        classes: int,
        costs: NDArray[np.float64] | None,
        padding: float,
        shrinking: bool,
    ) -> None:
        n, dtype = len(labels), bounds.dtype
        self.labels, self.classes = labels, classes
        self.scale = 2.0 if classes == 2 else 1.0
        self.bounds = bounds / dtype.type(self.scale)
        self.squares = squares.astype(dtype)
        self.width = arrays.round_up_to_lanes(classes, dtype)
        self.zeros = np.zeros(arrays.num_simd_lanes(dtype), dtype=dtype)
        self.coefficients = arrays.aligned_zeros(n * self.width, dtype)
        self.class_costs = np.ones((1, classes)) if costs is None else costs
        flat = np.full((len(self.class_costs), self.width), padding)
        flat[:, :classes] = self.class_costs
        self.costs = flat.astype(dtype).ravel()
        self.dtype = dtype
        epsilon = float(np.finfo(dtype).eps)
        self.still = dtype.type(STILL * epsilon * self.class_costs.max())
        self.patience = PATIENCE if shrinking else 0
        self.waits = np.zeros(n, dtype=np.uint8)
        self.calm = np.zeros(n, dtype=np.uint8)
        # no weights change the loss of a sample without length
        long = squares >= np.finfo(dtype).tiny
        self.solvable = np.flatnonzero(long & (bounds > 0))
        self.constant = np.flatnonzero(~long)

    @property
    def table(self) -> NDArray[Any]:
        """Coefficients as ``(n, classes)``; a view."""
        return self.coefficients.reshape(-1, self.width)[:, : self.classes]

    @property
    def variables(self) -> State:
        """Arrays that solvers change, by name; no copies."""
        return {
            "coefficients": self.coefficients,
            "waits": self.waits,
            "calm": self.calm,
        }

    def checksum(self, *others: NDArray[Any]) -> int:
        """Checksum of the constant arrays and of other arrays."""
        mine = self.labels, self.bounds, self.squares, self.costs
        return arrays.checksum(*mine, *others)

    def costs_without_gold(self, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """Costs of the classes for samples, ``(rows, classes)``, 0 at their own."""
        y = self.labels[rows]
        shared = len(self.class_costs) == 1
        own = self.class_costs[np.zeros_like(y) if shared else y].copy()
        own[np.arange(len(y)), y] = 0
        return own

    def losses_at_zero(self, max_over_classes: bool) -> NDArray[np.float64]:
        """Losses ``(n,)`` at weights 0: costs of all classes, or of the worst."""
        with np.errstate(over="ignore"):
            per_class = (
                self.class_costs.max(1) if max_over_classes else self.class_costs.sum(1)
            )
        if len(per_class) == 1:
            # the own class is among those of a shared row
            found = per_class[0] - (0 if max_over_classes else 1)
        else:
            found = per_class[self.labels]
        with np.errstate(over="ignore", invalid="ignore"):
            found = found * self.bounds.astype(np.float64)
        return require_finite_sum(found)


def warm_start_blocks(
    blocks: DualBlocks, table: NDArray[Any], max_over_classes: bool
) -> None:
    """Start from coefficients ``(n, classes)``, as far as the bounds allow.

    A bound is that of each coefficient, or, with ``worst_only``, of their sum.
    """
    rows, y = np.arange(len(table)), blocks.labels
    b = np.maximum(-table, 0)
    b[rows, y] = 0
    b[blocks.constant] = 0
    bounds = blocks.bounds
    if max_over_classes:
        total = b.sum(1)
        over = total > bounds
        b[over] *= (bounds[over] / total[over])[:, None]
    else:
        b = np.minimum(b, bounds[:, None])
    own = np.minimum(b.sum(1), bounds) if max_over_classes else b.sum(1)
    blocks.table[:] = -b
    blocks.table[rows, y] = own


def saturate_zero_norm_rows(blocks: DualBlocks) -> None:
    """The Weston-Watkins optimum of samples without length: every bound is reached."""
    rows = blocks.constant
    full = -blocks.bounds[rows, None] * (blocks.costs_without_gold(rows) > 0)
    full[np.arange(len(rows)), blocks.labels[rows]] = -full.sum(1)
    blocks.table[rows] = full


def saturate_costliest_class(blocks: DualBlocks) -> None:
    """The Crammer-Singer optimum of samples without length: all at the worst class."""
    rows = blocks.constant
    worst = blocks.costs_without_gold(rows).argmax(1)
    table = blocks.table
    table[rows, worst] -= blocks.bounds[rows]
    table[rows, blocks.labels[rows]] += blocks.bounds[rows]
