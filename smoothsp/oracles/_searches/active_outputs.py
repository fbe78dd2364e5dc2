"""Relaxed solutions of a graph, given the outputs that have weight in each structure.

With A the parts of these outputs, one column each and all cells of all structures, and
u the mean over the structures of each variable,

    max  <s, p> - gamma / 2 |u|^2    s.t.  E p = e

where E has a row of ones for each structure (e = 1), and ``A - mean of A`` of the
shared cells (e = 0). Where the outputs are those of the solution, its weights and
multipliers solve linear equations: one singular value decomposition of E gives both.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Singular values below this share of the largest are 0: entries of E are simple
# fractions.
_RELATIVE_RANK_TOLERANCE = 1e-9
# Weights below 0 by less, and equations that are missed by less, relative to scores.
_TOLERANCE = 1e-10


class ActiveSetEquations(NamedTuple):
    """The equations of a row.

    Parameters
    ----------
    structures
        Number F of structures.
    cells
        Shared cells whose agreement is an equation.
    E
        ``(F + cells, K)``: agreement of K outputs.
    pinv
        ``(K, F + cells)``: its pseudo-inverse.
    null
        ``(K, q)``: orthonormal basis of the changes of weights that keep E p.
    curvature
        ``(q, q)``: ``null' Q null``, with ``|u|^2 = p' Q p`` where structures agree.
    Q
        ``(K, K)``.
    """

    num_structures: int
    cells: NDArray[np.int64]
    E: Floats
    pinv: Floats
    null: Floats
    curvature: Floats
    Q: Floats

    def derivative(self, gamma: float) -> Floats:
        """``dp / ds``, ``(K, K)``, symmetric."""
        derivative: Floats = (
            self.null @ np.linalg.solve(self.curvature, self.null.T) / gamma
        )
        return derivative


def stack_block_diagonal(parts: Sequence[Floats]) -> Floats:
    """Parts ``(cells, K)`` of outputs ``(k, cells)`` of each structure."""
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
    """The equations of a row.

    Parameters
    ----------
    A
        ``(cells, K)``: parts of outputs of all structures, 0 for cells of others.
    owner
        ``(K,)``: the structure of each output.
    of_cell, degree
        ``(cells,)``: the variable of each cell, and how many cells it has.
    """
    K, F = A.shape[1], int(structure_of_output.max()) + 1
    # shared cells of variables that no output uses agree
    is_used, has_used_cell = A.any(1), np.zeros(len(A), np.bool_)
    has_used_cell[variable_of_cell[is_used]] = True
    cells = np.flatnonzero(has_used_cell[variable_of_cell] & (num_structures > 1))
    variables, group = np.unique(variable_of_cell[cells], return_inverse=True)
    total = np.zeros((len(variables), K))
    np.add.at(total, group, A[cells])
    deviation = A[cells] - total[group] / num_structures[cells, None]
    E = np.concatenate([(structure_of_output == np.arange(F).reshape(F, 1)), deviation])
    # at least as many rows as columns, so that all of the null space comes out
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
    """Weights, and changes of multipliers of ``face.cells``; None if there are none.

    Parameters
    ----------
    face
        The equations.
    p
        ``(K,)``: weights that nearly agree.
    scores
        ``(K,)``: scores of the outputs.
    pull
        ``(K,)``: multipliers of the outputs, ``A' lam``.
    gamma
        Strength of the regularisation.
    """
    F = equations.num_structures
    e = np.zeros(len(equations.E))
    e[:F] = 1
    p = p + equations.pinv @ (e - equations.E @ p)
    if gamma > 0 and equations.null.shape[1]:
        reduced_grad = equations.null.T @ (scores - gamma * equations.Q @ p)
        p = p + equations.null @ np.linalg.solve(
            gamma * equations.curvature, reduced_grad
        )
    if np.abs(equations.E @ p - e).max() > _TOLERANCE or p.min() < -_TOLERANCE:
        return None
    # outputs with weight are all best: E' (tau, -change) is their score, up to a number
    # for each structure, of which the least are taken
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
