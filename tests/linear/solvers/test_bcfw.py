"""BCFW: the optimum of outside solvers, its certificate, its twin, its manners."""

import itertools

import numpy as np
import pytest

from smoothsp.linear.problems import CallbackProblem, MulticlassProblem
from smoothsp.linear.solvers import BCFW
from tests.sweeps import thinned
from tests.truth.frank_wolfe import as_callbacks, columns, optimum
from tests.truth.linear_chain import random_chain, random_rows

SAMPLINGS = ("gap", "uniform", "permutation")
STEPS = ("fw", "pairwise", "away", "safeguarded", "best")
VARIANTS = list(itertools.product(SAMPLINGS, STEPS, (False, True)))[::3]
LAM = 0.2


@pytest.fixture(scope="module")
def problem():
    costs = np.random.default_rng(0).random((3, 3))
    np.fill_diagonal(costs, 0)
    return random_chain(0, n=5, S=3, d=4, longest=3, cost=costs)


@pytest.fixture(scope="module")
def best(problem):
    return optimum(*columns(problem), LAM)


@pytest.mark.parametrize("sampling,steps,cache", VARIANTS)
def test_every_variant_certifies_the_optimum(problem, best, sampling, steps, cache):
    tol = 1e-6 if steps != "fw" else 1e-3
    solution = BCFW(
        lam=LAM, sampling=sampling, steps=steps, cache=cache, tol=tol, max_passes=5000
    ).solve(problem)
    w, value = best
    assert solution.converged and solution.gap <= tol, solution.status
    np.testing.assert_allclose(
        solution.gap, solution.primal - solution.dual, atol=1e-12
    )
    np.testing.assert_allclose(problem.primal(solution.w, LAM), solution.primal)
    # SLSQP stops a little above the optimum
    assert -1e-8 < solution.primal - value <= solution.gap + 1e-12
    assert solution.dual <= value + 1e-12
    # strong convexity: lambda / 2 ||w - w*||^2 is at most the gap
    assert LAM / 2 * np.sum((solution.w - w) ** 2) <= solution.gap + 1e-7


@pytest.mark.parametrize("sampling,steps,cache", VARIANTS)
def test_compiled_loops_take_the_steps_of_plain_numpy(problem, sampling, steps, cache):
    solver = BCFW(
        lam=LAM, sampling=sampling, steps=steps, cache=cache, tol=0, max_passes=9,
        refresh_every=4, cache_size=3, seed=2,
    )  # fmt: skip
    fast, slow = solver.solve(problem), solver.solve(as_callbacks(problem))
    np.testing.assert_allclose(fast.w, slow.w, atol=1e-9)
    np.testing.assert_allclose(
        [(r.passes, r.primal, r.dual, r.gap) for r in fast.history],
        [(r.passes, r.primal, r.dual, r.gap) for r in slow.history],
        atol=1e-9,
    )
    assert fast.oracle_calls == slow.oracle_calls


@pytest.mark.parametrize("steps,cache", [("fw", False), ("pairwise", True)])
def test_the_certificate_holds_at_every_pass(problem, best, steps, cache):
    records = []
    BCFW(
        lam=LAM, steps=steps, cache=cache, tol=0, max_passes=40, refresh_every=1,
        callback=records.append,
    ).solve(problem)  # fmt: skip
    duals = [r.dual for r in records]
    assert (np.diff(duals) >= -1e-14).all()
    assert len(records) == 40
    for r in records:
        assert r.dual <= best[1] + 1e-12
        assert r.gap >= r.primal - best[1] - 1e-9
        np.testing.assert_allclose(r.gap, r.primal - r.dual, atol=1e-12)


# float32 features have compiled loops of their own
@pytest.mark.parametrize("dtype", thinned([np.float64, np.float32], 2))
def test_classes_are_solved(dtype):
    rng = np.random.default_rng(1)
    X, y = random_rows(rng, 9, 4), rng.integers(3, size=9)
    problem = MulticlassProblem(X.astype(dtype), y, num_labels=3)
    value = optimum(*columns(problem), LAM)[1]
    solution = BCFW(lam=LAM, steps="pairwise", tol=1e-7).solve(problem)
    assert solution.converged
    np.testing.assert_allclose(solution.primal, value, atol=2e-7)


@pytest.mark.parametrize("steps", ["fw", "pairwise", "best"])
def test_long_sentences_with_few_features_take_the_same_steps(steps):
    # no products of words are kept for them
    rng = np.random.default_rng(0)
    problem = random_chain(3, n=3, S=3, d=2, longest=3)
    X = random_rows(rng, 60, 3, density=0.3)
    problem = type(problem)(X, rng.integers(3, size=60), lengths=[25, 5, 30])
    solver = BCFW(lam=0.1, tol=0, max_passes=6, sampling="uniform", steps=steps)
    fast, slow = solver.solve(problem), solver.solve(as_callbacks(problem))
    np.testing.assert_allclose(fast.w, slow.w, atol=1e-9)


def test_a_seed_gives_the_same_bits(problem):
    runs = [
        BCFW(lam=LAM, tol=0, max_passes=5, seed=s).solve(problem).w for s in (3, 3, 4)
    ]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert (runs[0] != runs[2]).any()


@pytest.mark.parametrize(
    ("kind", "steps"), [("compiled", "away"), ("compiled", "fw"), ("callbacks", "fw")]
)
def test_weights_stay_in_their_box(problem, kind, steps):
    lower, upper = 0.01, 0.2
    value = optimum(*columns(problem), LAM, lower, upper)[1]
    given = problem if kind == "compiled" else as_callbacks(problem)
    records = []
    solution = BCFW(
        lam=LAM, steps=steps, bounds=(lower, upper), tol=1e-3, max_passes=2000,
        refresh_every=1, callback=records.append,
    ).solve(given)  # fmt: skip
    assert solution.converged, solution.gap
    assert solution.w.min() >= lower and solution.w.max() <= upper
    assert (np.diff([r.dual for r in records]) >= -1e-14).all()
    assert -1e-8 < solution.primal - value <= solution.gap + 1e-12
    assert solution.dual <= value + 1e-12
    for r in records:
        np.testing.assert_allclose(r.gap, r.primal - r.dual, atol=1e-12)


@pytest.mark.parametrize("kind", ["compiled", "callbacks"])
def test_the_average_weighs_iterate_k_with_k(problem, kind):
    given = problem if kind == "compiled" else as_callbacks(problem)
    # one example only, so that a pass is a step
    part = problem.subset([0])
    given = part if kind == "compiled" else as_callbacks(part)
    options = {"lam": LAM, "tol": 0, "sampling": "permutation"}
    K = 7
    runs = [BCFW(**options, max_passes=k).solve(given).w for k in range(1, K + 1)]
    average = BCFW(**options, max_passes=K, averaging=True).solve(given)
    weights = np.arange(1, K + 1) * 2 / (K * (K + 1))
    np.testing.assert_allclose(average.w, weights @ np.array(runs), atol=1e-12)
    assert average.dual <= optimum(*columns(part), LAM)[1] + 1e-12
    np.testing.assert_allclose(average.primal, part.primal(average.w, LAM))
    np.testing.assert_allclose(average.gap, average.primal - average.dual)


@pytest.mark.parametrize(
    ("steps", "kind", "warm", "other"),
    thinned(
        (
            ("pairwise", "compiled", "primal", 0.05),
            ("fw", "compiled", "dual", 0.05),
            ("pairwise", "callbacks", "dual", 0.05),
            ("fw", "callbacks", "dual", 1.0),
        ),
        2,
    ),
)
def test_another_lambda_starts_from_a_solution(problem, kind, steps, warm, other):
    given = problem if kind == "compiled" else as_callbacks(problem)
    options = {"steps": steps, "tol": 1e-3, "max_passes": 2000}
    first = BCFW(lam=LAM, **options).solve(given)
    still = BCFW(lam=other, steps=steps, tol=1e9, max_passes=1, warm_start=warm)
    value = optimum(*columns(problem), other)[1]
    begun = still.solve(given, start=first)
    assert begun.dual <= value + 1e-12
    after = BCFW(lam=other, warm_start=warm, **options).solve(given, start=first)
    assert after.converged and after.primal - value <= after.gap + 1e-12


def test_oracle_calls_are_those_that_happen(problem):
    inner, calls = as_callbacks(problem), []

    def counted(i, w):
        calls.append(i)
        return inner.max_oracle(i, w)

    given = CallbackProblem(len(problem), problem.num_weights, counted)
    for cache in (False, True):
        calls.clear()
        solution = BCFW(lam=LAM, cache=cache, tol=0, max_passes=12).solve(given)
        assert solution.oracle_calls == len(calls)


def test_budgets_and_callbacks_stop_with_a_sentence(problem):
    def status(**options):
        solution = BCFW(lam=LAM, **{"tol": 0, **options}).solve(problem)
        assert np.isfinite(solution.gap) and solution.history
        return solution.status, solution.converged

    assert status(max_passes=2) == ("max_passes = 2 passes are used up", False)
    found = status(max_seconds=1e-9)
    assert found == ("max_seconds = 1e-09 seconds are used up", False)
    found = status(callback=lambda record: True)
    assert found == ("stopped by the callback after 10 passes", False)
    assert status(tol=10.0) == ("the gap is at most tol = 10", True)


@pytest.mark.parametrize(
    "options,error,message",
    [
        ({"lam": 0}, ValueError, "lam: expected a positive number, got 0"),
        ({"sampling": "x"}, ValueError, "sampling: expected one of"),
        ({"steps": "x"}, ValueError, "steps: expected one of"),
        ({"tol": -1}, ValueError, "tol: expected a number of at least 0"),
        ({"max_passes": 0}, ValueError, "max_passes: expected at least 1"),
        ({"callback": 3}, TypeError, "callback: expected a callable or None"),
        ({"bounds": 1.0}, TypeError, "bounds: expected"),
    ],
)
def test_wrong_parameters_are_named(options, error, message):
    with pytest.raises(error, match=message):
        BCFW(**{"lam": 1.0, **options})


def test_what_does_not_fit_the_problem_is_named(problem):
    other = random_chain(1, n=3)
    with pytest.raises(ValueError, match="bounds: expected lower <= upper"):
        BCFW(lam=1.0, bounds=(1.0, 0.0)).solve(problem)
    with pytest.raises(TypeError, match="problem: expected a LinearProblem"):
        BCFW(lam=1.0).solve(np.eye(2))
    solver = BCFW(lam=1.0, max_passes=1)
    solution = solver.solve(problem)
    with pytest.raises(TypeError, match="start: expected a Solution"):
        solver.solve(problem, start=solution.w)
    with pytest.raises(ValueError, match="same features, labels and costs"):
        solver.solve(other, start=solution)
    with pytest.raises(ValueError, match="start: expected None"):
        solver.solve(problem, start=solution, resume=solution.state)
    with pytest.raises(ValueError, match="weights of labellings are missing"):
        BCFW(lam=1.0, steps="pairwise").solve(problem, start=solution)
