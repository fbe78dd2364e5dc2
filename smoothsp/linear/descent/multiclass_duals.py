"""Multiclass duals as the loop of ``coordinate_descent`` takes them."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp._kernels.svm import csr_rows, weston_watkins_gram
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp.linear.descent.coordinate_descent import Parts, chunks, squared_norm
from smoothsp.linear.descent.dual_blocks import DualBlocks
from smoothsp.linear.engines.solution import State
from smoothsp.linear.inputs import arrays as linear_arrays
from smoothsp.linear.inputs.sparse_matrices import SparseRows

Kernel = Callable[..., None]


class LinearDual:
    """Weights of features, ``w = sum_i x_i a_i'``.

    Parameters
    ----------
    blocks
        The coefficients a.
    rows
        The samples.
    solve, gaps
        Kernels of one loss: ``descend`` and ``gaps``.
    stops
        Extra arguments of ``solve``, between the number of classes and ``patience``:
        its stopping thresholds.
    stakes
        ``(n,)``: losses where all weights are 0.
    """

    def __init__(
        self,
        blocks: DualBlocks,
        rows: SparseRows,
        solve: Kernel,
        gaps: Kernel,
        stops: tuple[Any, ...],
        stakes: NDArray[np.float64],
    ) -> None:
        self._state, self._rows, self._stakes = blocks, rows, stakes
        self._solve, self._gaps, self._stops = solve, gaps, stops
        self.blocks, self.dtype = blocks.solvable, blocks.dtype
        self.waits, self.calm = blocks.waits, blocks.calm
        self.met, self.num_checked = np.zeros(3), len(blocks.labels)
        self.work = 2 * len(rows.data) * blocks.width
        self.weights = linear_arrays.aligned_zeros(
            rows.features * blocks.width, blocks.bounds.dtype
        )

    @property
    def w(self) -> NDArray[Any]:
        """Weights as ``(features, classes)``; a view."""
        return self.weights.reshape(-1, self._state.width)[:, : self._state.classes]

    def sweep(self, order: NDArray[np.intp], first: int, last: int) -> None:
        """Solve the blocks ``order[first:last]``."""
        state = self._state
        self._solve(
            first,
            last,
            order,
            *self._rows.arrays,
            state.squares,
            state.labels,
            state.bounds,
            state.costs,
            state.classes,
            state.width,
            *self._stops,
            state.patience,
            state.zeros,
            self.weights,
            state.coefficients,
            state.waits,
            state.calm,
            self.met,
        )

    def certify(self) -> Parts:
        """Primal, dual, and the part of the gap that each block has."""
        state = self._state
        return measure(
            state.scale,
            self._stakes,
            squared_norm(self.weights) / 2,
            self._gaps,
            self.work // 2,
            *self._rows.arrays,
            state.labels,
            state.bounds,
            state.costs,
            state.classes,
            state.width,
            state.zeros,
            self.weights,
            state.coefficients,
        )

    @property
    def variables(self) -> State:
        """Arrays that sweeps change, by name; no copies."""
        return {"w": self.w, **self._state.variables}

    @property
    def checksum(self) -> int:
        """Checksum of the constant arrays."""
        return self._state.checksum(*self._rows.arrays, np.array(self._stops))

    def rebuild(self) -> None:
        """Weights anew from the coefficients."""
        state = self._state
        # a row is 0 where its own class has no coefficient
        own = state.coefficients[
            np.arange(len(state.labels)) * state.width + state.labels
        ]
        rows = np.flatnonzero(own)
        csr_rows.weights_from_dual(
            0,
            len(rows),
            rows,
            *self._rows.arrays,
            state.width,
            state.zeros,
            state.coefficients,
            self.weights,
        )


class GramDual:
    """Scores of the samples, ``z_i = sum_s G(i, s) a_s``, for a Gram matrix G."""

    # there are no features
    w = None

    def __init__(
        self,
        blocks: DualBlocks,
        gram: NDArray[Any],
        stops: tuple[Any, ...],
        stakes: NDArray[np.float64],
    ) -> None:
        self._state, self._gram, self._stops = blocks, gram, stops
        self._stakes = stakes
        self.blocks, self.dtype = blocks.solvable, blocks.dtype
        self.waits, self.calm = blocks.waits, blocks.calm
        self.met, self.num_checked = np.zeros(3), len(blocks.labels)
        self.work = len(gram) * len(gram) * blocks.width
        self._scores = linear_arrays.aligned_zeros(
            len(gram) * blocks.width, blocks.bounds.dtype
        )

    def sweep(self, order: NDArray[np.intp], first: int, last: int) -> None:
        """Solve the blocks ``order[first:last]``."""
        state = self._state
        weston_watkins_gram.coordinate_descent(
            first,
            last,
            order,
            self._gram,
            state.squares,
            state.labels,
            state.bounds,
            state.costs,
            state.classes,
            state.width,
            *self._stops,
            state.patience,
            state.zeros,
            self._scores,
            state.coefficients,
            state.waits,
            state.calm,
            self.met,
        )

    def certify(self) -> Parts:
        """Primal, dual, and the part of the gap that each block has."""
        state = self._state
        # |w|^2 = sum_i a_i'z_i
        norm = sum(
            float(np.dot(a.astype(np.float64), z.astype(np.float64)))
            for a, z in chunks(state.coefficients, self._scores)
        )
        return measure(
            state.scale,
            self._stakes,
            norm / 2,
            weston_watkins_gram.compute_gaps,
            len(self._scores),
            state.labels,
            state.bounds,
            state.costs,
            state.classes,
            state.width,
            state.zeros,
            self._scores,
            state.coefficients,
        )

    @property
    def variables(self) -> State:
        """Arrays that sweeps change, by name; no copies."""
        return {"scores": self._scores, **self._state.variables}

    @property
    def checksum(self) -> int:
        """Checksum of the constant arrays."""
        return self._state.checksum(self._gram, np.array(self._stops))

    def rebuild(self) -> None:
        """Scores anew from the coefficients."""
        shape = len(self._gram), self._state.width
        np.matmul(
            self._gram,
            self._state.coefficients.reshape(shape),
            out=self._scores.reshape(shape),
        )


def measure(
    scale: float,
    stakes: NDArray[np.float64],
    half: float,
    kernel: Kernel,
    work: int,
    *arrays: Any,
) -> Parts:
    """``scale`` times primal, dual and gaps; ``half`` is that of the squared norm."""
    n = len(stakes)
    loss, linear, gaps = np.empty(n), np.empty(n), np.empty(n)
    run_rows(kernel, n, work, *arrays, loss, linear, gaps)
    primal, dual = half + float(loss.sum()), float(linear.sum()) - half
    at_stake = float(np.dot(stakes, (loss > 0) | (linear > 0)))
    return Parts(scale * primal, scale * dual, scale * gaps, scale * at_stake)
