"""Duals of multiclass SVMs for sparse features and for Gram matrices."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp._kernels.svm import csr_rows, weston_watkins_gram
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp.linear.descent.coordinate_descent import (
    CertificateTerms,
    split_into_chunks,
    squared_norm,
)
from smoothsp.linear.descent.dual_blocks import DualBlocks
from smoothsp.linear.engines.solution import State
from smoothsp.linear.inputs import arrays as linear_arrays
from smoothsp.linear.inputs.sparse_matrices import SparseRows

Kernel = Callable[..., None]


class LinearDual:
    """Dual of a multiclass SVM with weights ``W = sum_i x_i a_i'``.

    Parameters
    ----------
    blocks
        Coefficients a.
    rows
        Samples x.
    descend_kernel, gap_kernel
        Kernels of one loss: ``descend`` and ``gaps``.
    stopping_thresholds
        Arguments of ``descend_kernel`` after the number of classes: thresholds at which
        a block is left.
    losses_at_zero
        ``(n,)``: losses at W = 0.
    """

    def __init__(
        self,
        blocks: DualBlocks,
        rows: SparseRows,
        descend_kernel: Kernel,
        gap_kernel: Kernel,
        stopping_thresholds: tuple[Any, ...],
        losses_at_zero: NDArray[np.float64],
    ) -> None:
        self._dual_blocks, self._rows, self._losses_at_zero = (
            blocks,
            rows,
            losses_at_zero,
        )
        self._descend_kernel, self._gap_kernel, self._stopping_thresholds = (
            descend_kernel,
            gap_kernel,
            stopping_thresholds,
        )
        self.blocks, self.dtype = blocks.optimised_rows, blocks.dtype
        self.skip_counts, self.idle_sweeps = blocks.skip_counts, blocks.idle_sweeps
        self.sweep_stats, self.num_checked = np.zeros(3), len(blocks.labels)
        self.work = 2 * len(rows.data) * blocks.padded_num_classes
        self.weights = linear_arrays.aligned_zeros(
            rows.features * blocks.padded_num_classes, blocks.bounds.dtype
        )

    @property
    def w(self) -> NDArray[Any]:
        """Weights W, a view ``(features, classes)``."""
        return self.weights.reshape(-1, self._dual_blocks.padded_num_classes)[
            :, : self._dual_blocks.classes
        ]

    def sweep(self, order: NDArray[np.intp], first: int, last: int) -> None:
        """Minimise over each of the blocks ``order[first:last]``, in order."""
        dual_blocks = self._dual_blocks
        self._descend_kernel(
            first,
            last,
            order,
            *self._rows.arrays,
            dual_blocks.squared_norms,
            dual_blocks.labels,
            dual_blocks.bounds,
            dual_blocks.costs,
            dual_blocks.classes,
            dual_blocks.padded_num_classes,
            *self._stopping_thresholds,
            dual_blocks.max_skip_doublings,
            dual_blocks.zero_vector,
            self.weights,
            dual_blocks.coefficients,
            dual_blocks.skip_counts,
            dual_blocks.idle_sweeps,
            self.sweep_stats,
        )

    def certify(self) -> CertificateTerms:
        """Compute primal, dual and the gap of each block."""
        dual_blocks = self._dual_blocks
        return compute_certificate_terms(
            dual_blocks.scale,
            self._losses_at_zero,
            squared_norm(self.weights) / 2,
            self._gap_kernel,
            self.work // 2,
            *self._rows.arrays,
            dual_blocks.labels,
            dual_blocks.bounds,
            dual_blocks.costs,
            dual_blocks.classes,
            dual_blocks.padded_num_classes,
            dual_blocks.zero_vector,
            self.weights,
            dual_blocks.coefficients,
        )

    @property
    def variables(self) -> State:
        """Arrays that sweeps change, by their names in saved states; no copies."""
        return {"w": self.w, **self._dual_blocks.variables}

    @property
    def checksum(self) -> int:
        """Checksum of the constant arrays."""
        return self._dual_blocks.checksum(
            *self._rows.arrays, np.array(self._stopping_thresholds)
        )

    def rebuild_from_duals(self) -> None:
        """Recompute W from the coefficients."""
        dual_blocks = self._dual_blocks
        # a_iy is the sum of |a_ij| over j != y: if it is 0, so is the row.
        gold_coefficients = dual_blocks.coefficients[
            np.arange(len(dual_blocks.labels)) * dual_blocks.padded_num_classes
            + dual_blocks.labels
        ]
        rows = np.flatnonzero(gold_coefficients)
        csr_rows.weights_from_dual(
            0,
            len(rows),
            rows,
            *self._rows.arrays,
            dual_blocks.padded_num_classes,
            dual_blocks.zero_vector,
            dual_blocks.coefficients,
            self.weights,
        )


class GramDual:
    """Dual of a multiclass SVM with a Gram matrix G, ``z_i = sum_s G(i, s) a_s``.

    Scores z, ``(n, classes)``, take the place of the weights.
    """

    # A Gram matrix has no features, and so no weights.
    w = None

    def __init__(
        self,
        blocks: DualBlocks,
        gram: NDArray[Any],
        stopping_thresholds: tuple[Any, ...],
        stakes: NDArray[np.float64],
    ) -> None:
        self._dual_blocks, self._gram, self._stopping_thresholds = (
            blocks,
            gram,
            stopping_thresholds,
        )
        self._losses_at_zero = stakes
        self.blocks, self.dtype = blocks.optimised_rows, blocks.dtype
        self.skip_counts, self.idle_sweeps = blocks.skip_counts, blocks.idle_sweeps
        self.sweep_stats, self.num_checked = np.zeros(3), len(blocks.labels)
        self.work = len(gram) * len(gram) * blocks.padded_num_classes
        self._scores = linear_arrays.aligned_zeros(
            len(gram) * blocks.padded_num_classes, blocks.bounds.dtype
        )

    def sweep(self, order: NDArray[np.intp], first: int, last: int) -> None:
        """Minimise over each of the blocks ``order[first:last]``, in order."""
        dual_blocks = self._dual_blocks
        weston_watkins_gram.coordinate_descent(
            first,
            last,
            order,
            self._gram,
            dual_blocks.squared_norms,
            dual_blocks.labels,
            dual_blocks.bounds,
            dual_blocks.costs,
            dual_blocks.classes,
            dual_blocks.padded_num_classes,
            *self._stopping_thresholds,
            dual_blocks.max_skip_doublings,
            dual_blocks.zero_vector,
            self._scores,
            dual_blocks.coefficients,
            dual_blocks.skip_counts,
            dual_blocks.idle_sweeps,
            self.sweep_stats,
        )

    def certify(self) -> CertificateTerms:
        """Compute primal, dual and the gap of each block."""
        dual_blocks = self._dual_blocks
        # |w|^2 = sum_i a_i'z_i
        norm = sum(
            float(np.dot(a.astype(np.float64), z.astype(np.float64)))
            for a, z in split_into_chunks(dual_blocks.coefficients, self._scores)
        )
        return compute_certificate_terms(
            dual_blocks.scale,
            self._losses_at_zero,
            norm / 2,
            weston_watkins_gram.compute_gaps,
            len(self._scores),
            dual_blocks.labels,
            dual_blocks.bounds,
            dual_blocks.costs,
            dual_blocks.classes,
            dual_blocks.padded_num_classes,
            dual_blocks.zero_vector,
            self._scores,
            dual_blocks.coefficients,
        )

    @property
    def variables(self) -> State:
        """Arrays that sweeps change, by their names in saved states; no copies."""
        return {"scores": self._scores, **self._dual_blocks.variables}

    @property
    def checksum(self) -> int:
        """Checksum of the constant arrays."""
        return self._dual_blocks.checksum(
            self._gram, np.array(self._stopping_thresholds)
        )

    def rebuild_from_duals(self) -> None:
        """Recompute the scores from the coefficients."""
        shape = len(self._gram), self._dual_blocks.padded_num_classes
        np.matmul(
            self._gram,
            self._dual_blocks.coefficients.reshape(shape),
            out=self._scores.reshape(shape),
        )


def compute_certificate_terms(
    scale: float,
    losses_at_zero: NDArray[np.float64],
    half_squared_norm: float,
    kernel: Kernel,
    work: int,
    *arrays: Any,
) -> CertificateTerms:
    """Compute ``scale`` times primal, dual and block gaps with a kernel of gaps."""
    n = len(losses_at_zero)
    block_losses, block_duals, gaps = np.empty(n), np.empty(n), np.empty(n)
    run_rows(kernel, n, work, *arrays, block_losses, block_duals, gaps)
    primal, dual = (
        half_squared_norm + float(block_losses.sum()),
        float(block_duals.sum()) - half_squared_norm,
    )
    loss_at_zero = float(np.dot(losses_at_zero, (block_losses > 0) | (block_duals > 0)))
    return CertificateTerms(
        scale * primal, scale * dual, scale * gaps, scale * loss_at_zero
    )
