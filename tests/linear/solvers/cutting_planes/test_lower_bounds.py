"""Closed forms of every iterate on the problems that no cutting plane method solves.

Source: Saha, Zhang and Vishwanathan, "Lower Bounds for BMRM and Faster Rates for
Training SVMs", section 3, with the matrix that makes its theorems true.
"""

import numpy as np
import pytest

from smoothsp.linear.solvers import BMRM
from tests.linear.solvers.cutting_planes import lower_bounds

INNER = ["qp", "line-search"]


def run(problem, inner, lam, passes, start=None):
    solver = BMRM(lam=lam, inner=inner, tol=0, drop_after=None, max_passes=passes)
    return solver.solve(problem, start)


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("A", [lower_bounds.orthonormal(64), np.eye(40)])
def test_each_round_halves_nothing_but_one_over_t(A, inner):
    d, lam = len(A), 0.05
    found = run(lower_bounds.MaxOfColumns(A), inner, lam, d)
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


@pytest.mark.parametrize("inner", INNER)
def test_objectives_of_the_rounds_start_elsewhere(inner):
    d, lam = 32, 0.1
    A = lower_bounds.orthonormal(d)
    found = run(lower_bounds.MaxOfColumns(A), inner, lam, d - 1, A[:, 0] / lam)
    t = np.arange(1, d)
    primal = np.array([at.primal for at in found.history])
    np.testing.assert_allclose(primal, 1 / (2 * lam * t), atol=1e-9)


@pytest.mark.parametrize("inner", INNER)
def test_ties_in_favour_of_what_is_new(inner):
    d, lam = 32, 0.1
    A = lower_bounds.orthonormal(d)
    problem = lower_bounds.MaxOfColumns(A, floor=True)
    found = run(problem, inner, lam, d - 1, A[:, 0] / lam)
    t = np.arange(1, d)
    primal = [at.primal for at in found.history]
    np.testing.assert_allclose(primal, 1 / (2 * lam * t), atol=1e-9)
    gaps = [at.gap for at in found.history]
    np.testing.assert_allclose(gaps, 1 / (lam * t), atol=1e-9)


def test_the_matrix_as_printed_is_solved_in_two_rounds():
    A = lower_bounds.printed(32)
    assert np.linalg.matrix_rank(A) == 16
    np.testing.assert_array_equal(A[:, :16], -A[:, 16:])
    found = run(lower_bounds.MaxOfColumns(A), "qp", 0.05, 2)
    assert found.history[0].gap > 1
    assert found.history[1].gap <= 1e-9


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("seed", range(3))
def test_a_structured_example_with_ties_at_random(inner, seed):
    d, lam = 64, 0.05
    A = lower_bounds.orthonormal(d)
    found = run(lower_bounds.one_example(A, seed), inner, lam, d)
    t = np.arange(1, d)
    history = found.history[: d - 1]
    gaps = np.array([at.gap for at in history])
    np.testing.assert_allclose(gaps, 1 / (2 * lam * t), rtol=0, atol=1e-9)
    dual = np.array([at.dual for at in history])
    np.testing.assert_allclose(dual, 1 - 1 / (2 * lam * t), rtol=0, atol=1e-9)
    assert found.primal == pytest.approx(1 - 1 / (2 * lam * d), abs=1e-9)
    # the theorem's bound, with J(0) = G = 1, at each accuracy it speaks of
    for eps in (2.0, 0.5, 0.2):
        first = 1 + int((gaps <= eps).argmax())
        assert first <= np.log2(lam) + 8 / (lam * eps) - 4
        assert first >= 1 / (2 * lam * eps) - 1e-9
