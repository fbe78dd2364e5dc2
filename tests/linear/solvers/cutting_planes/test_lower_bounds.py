"""Closed forms of every iterate on the problems that no cutting plane method solves.

Source: Saha, Zhang and Vishwanathan, "Lower Bounds for BMRM and Faster Rates for
Training SVMs", section 3, with the matrix that makes its theorems true.
"""

import numpy as np
import pytest
from scipy.linalg import hadamard

from smoothsp.linear.solvers import BMRM

INNER = ["qp", "line-search"]


class MaxOfColumns:
    """``max_i <a_i, w>`` over columns of A."""

    def __init__(self, A):
        self.A = A
        self.num_weights = len(A)
        self.asked = set()

    def __len__(self):
        return 1

    def risk(self, w):
        scores = self.A.T @ w
        best = scores.max()
        # in favour of a column that was not asked for
        ties = [int(i) for i in np.flatnonzero(scores >= best - 1e-12)]
        i = min(ties, key=lambda i: (i in self.asked, i))
        self.asked.add(i)
        return float(scores[i]), self.A[:, i].copy()


def orthonormal(d):
    return hadamard(d) / np.sqrt(d)


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("A", [orthonormal(64), np.eye(40)])
def test_each_round_halves_nothing_but_one_over_t(A, inner):
    d, lam = len(A), 0.05
    solver = BMRM(lam=lam, inner=inner, tol=0, drop_after=None, max_passes=d)
    found = solver.solve(MaxOfColumns(A))
    t = np.arange(1, d)
    history = found.history[: d - 1]
    dual = [at.dual for at in history]
    np.testing.assert_allclose(dual, -1 / (2 * lam * t), atol=1e-9)
    # what the start is worth is never beaten
    assert [at.primal for at in history] == [0.0] * (d - 1)
    gaps = [at.gap for at in history]
    np.testing.assert_allclose(gaps, 1 / (2 * lam * t), atol=1e-9)
    last = found.history[-1]
    assert last.gap <= 1e-9
    assert last.primal == pytest.approx(-1 / (2 * lam * d), abs=1e-9)
    np.testing.assert_allclose(found.w, -A.sum(axis=1) / (lam * d), atol=1e-9)
