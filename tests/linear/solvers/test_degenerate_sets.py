"""Sets of which little is to be learnt: certificates hold, and fits end."""

import cvxpy as cp
import numpy as np
import pytest
from scipy import sparse

from smoothsp.linear.problems import BinaryProblem, F1Problem, ROCAreaProblem
from smoothsp.linear.solvers import AGM, BMRM, Pragam

LAM, TOL = 0.05, 1e-2
SIGNS = np.array([-1, 1] * 5)
DRAWN = np.random.default_rng(0).normal(size=(10, 3))
SETS = {
    "zeros": (np.zeros((10, 3)), SIGNS),
    "zeros, classes apart in size": (np.zeros((10, 3)), np.repeat([-1, 1], [7, 3])),
    "sparse zeros": (sparse.csr_array((10, 3)), SIGNS),
    "constant": (np.ones((10, 3)), SIGNS),
    "a constant column": (np.hstack([DRAWN, np.full((10, 1), 7.0)]), SIGNS),
    "one example": (DRAWN[:1], SIGNS[:1]),
    "one class": (DRAWN, np.ones(10)),
    "each five times": (np.repeat(DRAWN, 5, axis=0), np.repeat(SIGNS, 5)),
    "contradictions": (np.repeat(DRAWN[:5], 2, axis=0), SIGNS),
    "tiny": (DRAWN * 1e-150, SIGNS),
    "more features than examples": (DRAWN.reshape(3, 10), SIGNS[:3]),
    "one feature": (DRAWN[:, :1], SIGNS),
}
SOLVERS = {
    "cutting planes": lambda: BMRM(lam=LAM, tol=TOL),
    "line search": lambda: BMRM(lam=LAM, tol=TOL, inner="line-search"),
    "excessive gaps": lambda: Pragam(lam=LAM, tol=TOL),
    "adaptive gaps": lambda: Pragam(lam=LAM, tol=TOL, lipschitz="adaptive"),
    "primal": lambda: AGM(lam=LAM, tol=TOL),
    "dual": lambda: AGM(lam=LAM, tol=TOL, scheme="dual"),
}


def least(X, y, bias):
    """The minimum, by a cone programme."""
    X = X.toarray() if sparse.issparse(X) else X
    w, b = cp.Variable(X.shape[1]), cp.Variable()
    hinges = cp.pos(1 - cp.multiply(y, X @ w + (b if bias else 0)))
    goal = cp.Minimize(LAM / 2 * cp.sum_squares(w) + cp.sum(hinges) / len(y))
    return cp.Problem(goal).solve(solver=cp.CLARABEL)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", SETS)
def test_the_optimum_lies_between_the_bounds(name, bias):
    X, y = SETS[name]
    best = least(X, y, bias)
    for how, solver in SOLVERS.items():
        found = solver().solve(BinaryProblem(X, y, bias=bias))
        assert found.converged, how
        assert found.dual <= best + 1e-7 and best - 1e-7 <= found.primal, how
        assert found.primal - found.dual <= TOL + 1e-12, how


@pytest.mark.parametrize("kind", [BinaryProblem, F1Problem, ROCAreaProblem])
@pytest.mark.parametrize("power", [8, 150])
def test_features_too_large_prove_nothing(kind, power):
    # weights that are not 0 are known to do better
    problem = kind(DRAWN * 10.0**power, SIGNS)
    w = AGM(lam=LAM, tol=TOL).solve(kind(DRAWN, SIGNS)).w
    reached = problem.risk(w / 10.0**power)[0]
    assert reached < 0.95
    for inner in ("qp", "line-search"):
        found = BMRM(lam=LAM, tol=TOL, inner=inner).solve(problem)
        assert found.dual <= reached + LAM / 2 * w @ w / 10.0 ** (2 * power)
    if power == 150:
        for scheme in ("primal-smoothing", "dual"):
            with pytest.raises(ValueError, match="X: expected features for which"):
                AGM(lam=LAM, tol=TOL, scheme=scheme).solve(problem)
