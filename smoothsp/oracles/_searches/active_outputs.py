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
_RANK = 1e-9
# Weights below 0 by less, and equations that are missed by less, relative to scores.
_ROUNDING = 1e-10


class Face(NamedTuple):
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

    structures: int
    cells: NDArray[np.int64]
    E: Floats
    pinv: Floats
    null: Floats
    curvature: Floats
    Q: Floats

    def derivative(self, gamma: float) -> Floats:
        """``dp / ds``, ``(K, K)``, symmetric."""
        found: Floats = self.null @ np.linalg.solve(self.curvature, self.null.T) / gamma
        return found


def block(parts: Sequence[Floats]) -> Floats:
    """Parts ``(cells, K)`` of outputs ``(k, cells)`` of each structure."""
    A = np.zeros((sum(x.shape[1] for x in parts), sum(len(x) for x in parts)))
    row = column = 0
    for x in parts:
        k, n = x.shape
        A[row : row + n, column : column + k] = x.T
        row, column = row + n, column + k
    return A


def face_of(
    A: Floats, owner: NDArray[np.int64], of_cell: NDArray[np.int64], degree: Floats
) -> Face:
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
    K, F = A.shape[1], int(owner.max()) + 1
    # shared cells of variables that no output uses agree
    used, touched = A.any(1), np.zeros(len(A), np.bool_)
    touched[of_cell[used]] = True
    cells = np.flatnonzero(touched[of_cell] & (degree > 1))
    names, group = np.unique(of_cell[cells], return_inverse=True)
    total = np.zeros((len(names), K))
    np.add.at(total, group, A[cells])
    apart = A[cells] - total[group] / degree[cells, None]
    E = np.concatenate([(owner == np.arange(F).reshape(F, 1)), apart])
    # at least as many rows as columns, so that all of the null space comes out
    square = np.concatenate([E, np.zeros((max(K - len(E), 0), K))])
    U, S, V = np.linalg.svd(square, full_matrices=False)
    rank = int((_RANK * S[0] < S).sum())
    pinv = (V[:rank].T / S[:rank]) @ U[: len(E), :rank].T
    null, Q = V[rank:].T, A[used].T @ (A[used] / degree[used, None])
    return Face(F, cells, E, pinv, null, null.T @ Q @ null, Q)


def solution(
    face: Face, p: Floats, scores: Floats, pull: Floats, gamma: float
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
    F = face.structures
    e = np.zeros(len(face.E))
    e[:F] = 1
    p = p + face.pinv @ (e - face.E @ p)
    if gamma > 0 and face.null.shape[1]:
        slope = face.null.T @ (scores - gamma * face.Q @ p)
        p = p + face.null @ np.linalg.solve(gamma * face.curvature, slope)
    if np.abs(face.E @ p - e).max() > _ROUNDING or p.min() < -_ROUNDING:
        return None
    # outputs with weight are all best: E' (tau, -change) is their score, up to a number
    # for each structure, of which the least are taken
    raised = scores + pull - gamma * face.Q @ p
    ones = face.E[:F]
    raised = raised - ones.T @ (ones @ raised / ones.sum(1))
    change = face.pinv.T @ raised
    size = 1 + np.abs(scores).max() + np.abs(pull).max()
    if np.abs(face.E.T @ change - raised).max() > _ROUNDING * size:
        return None
    return np.maximum(p, 0), -change[F:]
