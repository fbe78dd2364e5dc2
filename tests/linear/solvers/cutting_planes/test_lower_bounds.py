"""Closed forms of every iterate on the problems that no cutting plane method solves.

Source: Saha, Zhang and Vishwanathan, "Lower Bounds for BMRM and Faster Rates for
Training SVMs", section 3, with the matrix that makes its theorems true.
"""

import numpy as np
import pytest
from scipy.linalg import hadamard

from smoothsp.linear.problems import LowerBoundProblem
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
def test_public_problem_takes_as_many_rounds_as_the_bound(inner):
    d, lam = 64, 0.05
    solver = BMRM(lam=lam, inner=inner, tol=0, drop_after=None, max_passes=d)
    found = solver.solve(LowerBoundProblem(d))
    t = np.arange(1, d)
    history = found.history
    gaps = [at.gap for at in history]
    np.testing.assert_allclose(gaps[:-1], 1 / (2 * lam * t), atol=1e-9)
    dual = [at.dual for at in history[:-1]]
    np.testing.assert_allclose(dual, 1 - 1 / (2 * lam * t), atol=1e-9)
    assert gaps[-1] <= 1e-9
    assert history[-1].primal == pytest.approx(1 - 1 / (2 * lam * d), abs=1e-9)
    np.testing.assert_allclose(found.w, -np.ones(d) / (lam * d), atol=1e-9)


@pytest.mark.parametrize("eps", [0.7, 0.15])
def test_accuracy_takes_one_over_two_lambda_eps_rounds(eps):
    found = BMRM(lam=0.05, tol=eps).solve(LowerBoundProblem(200))
    assert found.passes == np.ceil(1 / (2 * 0.05 * eps))


def test_public_problem_has_a_gold_output_below_the_kink():
    problem = LowerBoundProblem(3)
    w = np.array([-2.0, -1.0, -3.0])
    assert problem.risk(w)[0] == 0
    assert problem.worst(0, w).loss == 0
    assert problem.risk(w + 1)[0] == 1
    assert problem.risk(w + 1)[1].tolist() == [0, 1, 0]


@pytest.mark.parametrize("inner", INNER)
def test_printed_matrix_is_solved_in_two_rounds(inner):
    H = hadamard(32) / 8
    A = np.block([[H, -H], [-H, H]])
    found = BMRM(lam=0.05, inner=inner, tol=1e-9).solve(MaxOfColumns(A))
    assert found.passes == 2
    assert found.primal == 0


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
