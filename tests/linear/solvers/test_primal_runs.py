"""What the solvers of the primal share: resuming, seeds, budgets, messages."""

import io

import numpy as np
import pytest
from scipy import sparse

from smoothsp.linear.problems import ChainProblem, MulticlassProblem
from smoothsp.linear.solvers import AGM, BMRM, LBFGS, SDCA, SGD, SVRG, CasimirSVRG
from tests.truth.linear_chain import random_chain

CHAIN = random_chain(0)
COSTS = random_chain(1, cost=[[0, 1, 2], [0.5, 0, 1], [3, 1, 0]])
# as many labels as a vector has lanes: no weight is padding
WIDE = random_chain(2, S=8)
MULTICLASS = MulticlassProblem(np.eye(3), [0, 1, 2])
SOLVERS = {
    "SGD": lambda **options: SGD(lam=0.1, loss="hinge-l2", average_after=2, **options),
    "SGD last": lambda **options: SGD(lam=0.1, averaging="none", **options),
    "SVRG": lambda **options: SVRG(lam=0.1, **options),
    "Casimir": lambda **options: CasimirSVRG(lam=0.1, schedule="adapt", **options),
}


@pytest.mark.parametrize("name", SOLVERS)
def test_a_seed_is_a_run(name):
    problem, make = CHAIN, SOLVERS[name]
    one, two, other = (make(max_passes=3, seed=s).solve(problem).w for s in (4, 4, 5))
    assert one.tobytes() == two.tobytes()
    assert one.tobytes() != other.tobytes()


@pytest.mark.parametrize("name", SOLVERS)
def test_callbacks_and_budgets_stop(name):
    problem, make = CHAIN, SOLVERS[name]
    found = make(callback=lambda record: True, evaluate_every=2).solve(problem)
    assert (found.passes, found.converged) == (2, False)
    assert "callback" in found.status
    assert "max_seconds" in make(max_seconds=1e-9).solve(problem).status
    warm = make(max_passes=1).solve(problem, start=found)
    assert warm.w.tobytes() != make(max_passes=1).solve(problem).w.tobytes()


def test_lbfgs_stops_at_its_budgets():
    problem = CHAIN
    assert LBFGS(lam=0.1, tol=0.0, max_passes=5).solve(problem).passes == 5
    found = LBFGS(lam=0.1, tol=0.0, callback=lambda record: True).solve(problem)
    assert "callback" in found.status

    def interrupt(record):
        raise KeyboardInterrupt

    found = LBFGS(lam=0.1, callback=interrupt).solve(problem)
    assert "interrupted" in found.status
    assert np.isfinite(found.w).all()
    best = LBFGS(lam=0.1, tol=1e-9).solve(problem)
    assert best.converged and best.gap <= 1e-9
    assert LBFGS(lam=0.1, tol=1e-9).solve(problem, start=best).passes == 1
    assert LBFGS(lam=0.1, tol=0.0).solve(problem).gap < 1e-13


def lbfgs(**options):
    return LBFGS(lam=0.01, loss="hinge-entropy", mu=0.3, memory=3, tol=0.0, **options)


@pytest.mark.parametrize("problem", [COSTS, WIDE], ids=["padded", "wide"])
def test_lbfgs_resumed_is_uninterrupted_wherever_it_was_cut(problem):
    whole = lbfgs(max_passes=40).solve(problem)
    assert len(whole.history) > 20
    # some line search has more than one step, and is cut
    taken = np.diff([r.passes for r in whole.history])
    assert taken.max() > 1
    for cut in range(1, 20, 3):
        part = lbfgs(max_passes=cut).solve(problem)
        assert part.passes == cut
        file = io.BytesIO()
        np.savez(file, **part.state)
        file.seek(0)
        state = dict(np.load(file, allow_pickle=False))
        again = lbfgs(max_passes=40).solve(problem, resume=state)
        assert whole.w.tobytes() == again.w.tobytes()
        assert [(r.passes, r.primal, r.gap) for r in whole.history] == [
            (r.passes, r.primal, r.gap) for r in again.history
        ]
    with pytest.raises(ValueError, match="start: expected None"):
        lbfgs().solve(problem, start=whole, resume=whole.state)


@pytest.mark.parametrize("S", [3, 8])
def test_lbfgs_starts_at_weights_and_leaves_the_start_alone(S):
    problem = random_chain(3, S=S)
    # a feature that does not occur keeps no weight
    d = problem.num_features + 1
    rows = (problem.values, problem.indices, problem.indptr)
    X = sparse.csr_matrix(rows, shape=(len(problem.labels), d))
    problem = ChainProblem(X, problem.labels, problem.offsets, num_labels=S)
    start = np.random.default_rng(0).normal(size=problem.num_weights)
    given = start.copy()
    first = LBFGS(lam=0.1, max_passes=1).solve(problem, start=start)
    W = start.copy().reshape(-1, S)
    W[d - 1] = 0
    np.testing.assert_array_equal(first.w, W.ravel())
    np.testing.assert_array_equal(start, given)
    best = LBFGS(lam=0.1, tol=1e-12).solve(problem)
    again = LBFGS(lam=0.1, tol=1e-12).solve(problem, start=start)
    np.testing.assert_allclose(again.w, best.w, atol=1e-5)
    assert not again.w.reshape(-1, S)[d - 1].any()


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: SGD(lam=0), ValueError, "lam: expected a positive"),
        (lambda: SGD(lam=1, rate=2), ValueError, "rate: expected at most 1 / lam"),
        (lambda: SGD(lam=1, mu=-1), ValueError, "mu: expected a number of at least 0"),
        (lambda: SGD(lam=1, k=0), ValueError, "k: expected at least 1"),
        (lambda: SVRG(lam=1, rate=1), ValueError, "rate: expected less than"),
        (lambda: CasimirSVRG(lam=1, schedule="x"), ValueError, "schedule: expected"),
        (lambda: LBFGS(lam=1, loss="hinge"), ValueError, "loss: expected one of"),
    ],
)
def test_wrong_arguments(make, kind, message):
    with pytest.raises(kind, match=message):
        make()


@pytest.mark.parametrize("kind", [AGM, BMRM, CasimirSVRG, LBFGS, SDCA, SGD, SVRG])
def test_wrong_starts(kind):
    problem, solver = random_chain(0), kind(lam=0.1, max_passes=1)
    size = problem.num_weights
    for start in ("x", np.zeros(size, dtype=complex), [[1.0], [1.0, 2.0]]):
        with pytest.raises(TypeError, match=r"^start: expected a Solution or weights"):
            solver.solve(problem, start=start)
    for start in (np.zeros(size + 1), np.zeros((1, size)), 0.0):
        with pytest.raises(ValueError, match=rf"^start: expected \({size},\) weights"):
            solver.solve(problem, start=start)
    with pytest.raises(ValueError, match=r"^start: expected finite weights"):
        solver.solve(problem, start=np.full(size, np.inf))


def test_wrong_problems():
    problem = CHAIN
    with pytest.raises(TypeError, match="problem: expected a LinearProblem"):
        SGD(lam=1).solve(np.eye(3))
    with pytest.raises(ValueError, match=r"less than 1 / \(lam \+ kappa"):
        CasimirSVRG(lam=1, schedule="adapt", rate=0.6).solve(problem)


@pytest.mark.parametrize(
    "solver",
    [SGD(lam=1e-3, rate=999, decay="constant"), SVRG(lam=1e-3, mu=1e-3, rate=999)],
)
def test_weights_that_overflow_are_no_result(solver):
    problem = random_chain(7, d=3)
    problem.values *= 1e160
    with pytest.raises(FloatingPointError, match="overflowed"):
        solver.solve(problem)
