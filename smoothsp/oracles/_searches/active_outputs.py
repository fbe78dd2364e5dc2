"""Closed-form solution of the LP-SparseMAP relaxation for a given active set.

Let A hold the parts of the active outputs: one row for each cell of each structure, one
column for each output. With weights p, let u be the mean of A p over the structures of
each variable. The relaxation is

    max  <s, p> - gamma / 2 |u|^2    s.t.  E p = e

where E has a row of ones for each structure (e = 1), and a row of ``A - mean(A)`` for
each shared cell (e = 0). If the active set is right, weights and multipliers solve
linear equations. One singular value decomposition of E solves both.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Singular values below this fraction of the largest count as 0. Entries of E are simple
# fractions, so true singular values are far larger.
_RELATIVE_RANK_TOLERANCE = 1e-9
# Negative weights and residuals of the equations up to this count as 0; residuals of
# the multipliers are relative to the scores.
_TOLERANCE = 1e-10


class ActiveSetEquations(NamedTuple):
    """Equations ``E p = e`` of one row, factorised.

    Parameters
    ----------
    num_structures
        Number F of structures.
    cells
        Indices of the shared cells whose agreement is an equation.
    E
        ``(F + cells, K)``, for K active outputs.
    pinv
        ``(K, F + cells)``: pseudo-inverse of E.
    null
        ``(K, q)``: orthonormal basis of the null space of E.
    curvature
        ``(q, q)``: ``null' Q null``.
    Q
        ``(K, K)``: ``|u|^2 = p' Q p`` where structures agree.
    """

    num_structures: int
    cells: NDArray[np.int64]
    E: Floats
    pinv: Floats
    null: Floats
    curvature: Floats
    Q: Floats

    def derivative(self, gamma: float) -> Floats:
        """Jacobian ``dp / ds = N (N' Q N)^-1 N' / gamma``, ``(K, K)``, symmetric.

        N is the basis ``null``.
        """
        derivative: Floats = (
            self.null @ np.linalg.solve(self.curvature, self.null.T) / gamma
        )
        return derivative


def stack_block_diagonal(parts: Sequence[Floats]) -> Floats:
    """Stack ``parts[f] (k_f, cells_f)`` to the block-diagonal A ``(cells, K)``."""
    A = np.zeros((sum(x.shape[1] for x in parts), sum(len(x) for x in parts)))
    row = column = 0
    for x in parts:
        k, n = x.shape
        A[row : row + n, column : column + k] = x.T
        row, column = row + n, column + k
    return A


def build_equations(
    A: Floats,
    structure_of_output: NDArray[np.int64],
    variable_of_cell: NDArray[np.int64],
    num_structures: Floats,
) -> ActiveSetEquations:
    """Build the equations of one row and factorise E.

    Parameters
    ----------
    A
        ``(cells, K)``: parts of all active outputs; 0 in cells of other structures.
    structure_of_output
        ``(K,)``: index of the structure of each output.
    variable_of_cell, num_structures
        ``(cells,)``: the variable of each cell, and the number of structures that have
        this variable.
    """
    K, F = A.shape[1], int(structure_of_output.max()) + 1
    # a variable that no active output uses is 0 in all structures: no equation
    is_used, has_used_cell = A.any(1), np.zeros(len(A), np.bool_)
    has_used_cell[variable_of_cell[is_used]] = True
    cells = np.flatnonzero(has_used_cell[variable_of_cell] & (num_structures > 1))
    variables, group = np.unique(variable_of_cell[cells], return_inverse=True)
    total = np.zeros((len(variables), K))
    np.add.at(total, group, A[cells])
    deviation = A[cells] - total[group] / num_structures[cells, None]
    E = np.concatenate([(structure_of_output == np.arange(F).reshape(F, 1)), deviation])
    # zero rows make E at least square: the thin SVD then returns the whole null space
    padded = np.concatenate([E, np.zeros((max(K - len(E), 0), K))])
    U, S, V = np.linalg.svd(padded, full_matrices=False)
    rank = int((_RELATIVE_RANK_TOLERANCE * S[0] < S).sum())
    pinv = (V[:rank].T / S[:rank]) @ U[: len(E), :rank].T
    null, Q = V[rank:].T, A[is_used].T @ (A[is_used] / num_structures[is_used, None])
    return ActiveSetEquations(F, cells, E, pinv, null, null.T @ Q @ null, Q)


def solve_equations(
    equations: ActiveSetEquations,
    p: Floats,
    scores: Floats,
    multipliers: Floats,
    gamma: float,
) -> tuple[Floats, Floats] | None:
    """Solve for weights and changes of the multipliers of ``equations.cells``.

    Returns None if a weight is negative or the equations have no solution: the active
    set is wrong.

    Parameters
    ----------
    equations
        Equations of the row.
    p
        ``(K,)``: weights that agree approximately.
    scores
        ``(K,)``: scores of the outputs.
    multipliers
        ``(K,)``: ``A' lam``, the multipliers summed over the parts of each output.
    gamma
        Strength of the regularisation.
    """
    F = equations.num_structures
    e = np.zeros(len(equations.E))
    e[:F] = 1
    # project the weights onto E p = e, then one Newton step within the null space
    p = p + equations.pinv @ (e - equations.E @ p)
    if gamma > 0 and equations.null.shape[1]:
        reduced_grad = equations.null.T @ (scores - gamma * equations.Q @ p)
        p = p + equations.null @ np.linalg.solve(
            gamma * equations.curvature, reduced_grad
        )
    if np.abs(equations.E @ p - e).max() > _TOLERANCE or p.min() < -_TOLERANCE:
        return None
    # optimality: all active outputs of a structure f have the same augmented score, so
    # E' (tau, -change) = augmented up to a constant tau_f per structure. The constants
    # are centred, which gives the smallest change of multipliers
    augmented = scores + multipliers - gamma * equations.Q @ p
    ones = equations.E[:F]
    augmented = augmented - ones.T @ (ones @ augmented / ones.sum(1))
    multiplier_change = equations.pinv.T @ augmented
    magnitude = 1 + np.abs(scores).max() + np.abs(multipliers).max()
    if (
        np.abs(equations.E.T @ multiplier_change - augmented).max()
        > _TOLERANCE * magnitude
    ):
        return None
    return np.maximum(p, 0), -multiplier_change[F:]
