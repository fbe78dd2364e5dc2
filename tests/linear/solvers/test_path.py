"""The regularisation path: proposition 1, its first piece, certificates everywhere."""

import itertools

import numpy as np
import pytest

from smoothsp.linear.problems import ChainProblem, MulticlassProblem
from smoothsp.linear.solvers import BCFW, RegularisationPath
from smoothsp.linear.solvers.path import run
from smoothsp.linear.solvers.path.dual_point import DualPoint
from smoothsp.linear.solvers.path.run import crossing_lambda, dual_chord
from tests.sweeps import thinned
from tests.truth.frank_wolfe import as_callbacks, columns, optimum
from tests.truth.linear_chain import random_chain, random_rows

EPS, KAPPA = 0.1, 0.8


def random_costs(S):
    """With one worst label for each."""
    costs = 0.1 + np.random.default_rng(0).random((S, S))
    np.fill_diagonal(costs, 0)
    return costs


@pytest.fixture(scope="module")
def problem():
    # not separable, so that the hinge stays above eps
    return random_chain(0, n=9, S=3, d=1, longest=3, cost=random_costs(3))


@pytest.fixture(scope="module")
def separable():
    rng = np.random.default_rng(3)
    lengths = rng.integers(1, 4, size=6)
    labels = rng.integers(3, size=lengths.sum())
    X = np.eye(3)[labels] + rng.normal(scale=0.1, size=(len(labels), 3))
    return ChainProblem(X, labels, lengths=lengths, num_labels=3)


@pytest.fixture(scope="module")
def path(problem):
    return RegularisationPath(eps=EPS, kappa=KAPPA, smallest=1e-3).solve(problem)


def truth(problem, lam):
    """The least value of the objective, from above, and from a point far below tol."""
    found = BCFW(lam=lam, steps="pairwise", tol=1e-7, max_passes=20_000).solve(problem)
    assert found.converged
    return found.dual


def excess(problem, path, lam):
    return problem.primal(path.evaluate(lam), lam) - truth(problem, lam)


@pytest.mark.parametrize(
    ("kind", "steps", "cache"),
    thinned(
        [
            ("compiled", "pairwise", True),
            ("compiled", "fw", False),
            ("callbacks", "pairwise", True),
        ],
        3,
    ),
)
def test_weights_are_good_enough_for_every_lambda(problem, kind, steps, cache):
    given = problem if kind == "compiled" else as_callbacks(problem)
    found = RegularisationPath(
        eps=EPS, kappa=KAPPA, smallest=0.05, steps=steps, cache=cache
    ).solve(given)
    assert found.ends_at < 0.05 and not found.complete
    top = 100 * found.points[0].lam
    lams = np.geomspace(top, found.ends_at * (1 + 1e-12), 15)
    ends = [p.begins * x for p in found.points[1:] for x in (1 - 1e-12, 1 + 1e-12)]
    for lam in [*lams, *ends]:
        assert excess(problem, found, lam) <= EPS + 1e-9
    # and the bound is used: somewhere the weights are far from the best
    assert max(excess(problem, found, lam) for lam in lams) > 0.2 * EPS


def test_breakpoints_carry_their_certificates(problem, path):
    assert len(path.points) > 5
    lams = np.array([p.lam for p in path.points])
    assert (np.diff(lams) < 0).all() and path.ends_at < lams[-1]
    for p in path.points:
        assert 0 <= p.gap <= KAPPA * EPS + 1e-12
        np.testing.assert_allclose(p.primal, problem.primal(p.w, p.lam), rtol=1e-12)
    value = optimum(*columns(problem), path.points[-1].lam)[1]
    last = path.points[-1]
    assert last.primal - last.gap <= value + 1e-12
    calls = [p.oracle_calls for p in path.points]
    assert (np.diff(calls) > 0).all() and path.oracle_calls >= calls[-1]


def test_two_breakpoints_prove_what_lies_between(problem, path):
    for above, below in itertools.pairwise(path.points):
        assert below.lam <= below.begins <= above.lam
        for lam in np.geomspace(above.lam, below.lam, 5):
            bound = dual_chord(above, below, lam)
            best = BCFW(lam=lam, steps="pairwise", tol=1e-4, max_passes=200)
            assert bound <= best.solve(problem).primal + 1e-12
            assert problem.primal(path.evaluate(lam), lam) - bound <= EPS + 1e-12
        lam, excess = crossing_lambda(above, below)
        assert (lam, excess <= EPS) == (below.begins, True)
        two = [problem.primal(p.w, lam) for p in (above, below)]
        # the same, or better from one end to the other
        if below.lam < lam < above.lam:
            np.testing.assert_allclose(*two, rtol=1e-10)
        np.testing.assert_allclose(max(two) - dual_chord(above, below, lam), excess)
    ends = [
        dual_chord(path.points[3], path.points[4], path.points[k].lam) for k in (3, 4)
    ]
    np.testing.assert_allclose(ends, [p.primal - p.gap for p in path.points[3:5]])


def test_a_step_too_far_is_taken_back(problem, monkeypatch):
    lams = []

    def seen(dual_point, rho):
        lams.append(rho)
        return before(dual_point, rho)

    before = DualPoint.scale_weights
    monkeypatch.setattr(DualPoint, "scale_weights", seen)
    monkeypatch.setattr(run, "_INITIAL_LOG_STEP", 9.0)
    monkeypatch.setattr(run, "_MAX_LOG_STEP", 9.0)
    found = RegularisationPath(eps=EPS, kappa=KAPPA, smallest=0.05).solve(problem)
    assert any(1 < rho < 1e6 for rho in lams)
    for lam in np.geomspace(2 * found.points[0].lam, 0.05, 15):
        assert excess(problem, found, lam) <= EPS + 1e-9


def test_it_ends_where_the_mean_hinge_is_at_most_eps(separable):
    found = RegularisationPath(eps=EPS, kappa=KAPPA).solve(separable)
    assert found.complete and found.ends_at == 0
    assert found.status.startswith("complete")
    hinges = [separable.hinges(p.w).mean() for p in found.points]
    assert hinges[-1] <= EPS < min(hinges[:-1])
    for lam in (1e-3, 1e-6, 1e-12):
        assert separable.primal(found.evaluate(lam), lam) <= EPS + 1e-2 * lam**0.5
        np.testing.assert_array_equal(found.evaluate(lam), found.points[-1].w)


@pytest.mark.parametrize("kind", thinned(["compiled", "callbacks"], 2))
def test_data_that_no_weights_fit_end_where_lambda_has_no_effect(kind):
    # twice the same features with one label, once with another
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 3)), rng.integers(3, size=12)
    labels = np.concatenate([y, y, (y + 1) % 3])
    whole = MulticlassProblem(np.tile(X, (3, 1)), labels, num_labels=3)
    given = whole if kind == "compiled" else as_callbacks(whole)
    path = RegularisationPath(eps=EPS, max_passes=2000)
    found = path.solve(given)
    assert found.flat and not found.complete
    assert found.status.startswith("flat: no weights fit these data. The mean hinge is")
    assert found.oracle_calls < 500 * len(whole)
    last = found.points[-1]
    hinge = whole.hinges(last.w).mean()
    assert hinge > EPS and f"still {hinge:.3g}" in found.status
    # what is said of the minimum holds
    above, here = truth(whole, 10 * last.lam), truth(whole, last.lam)
    assert 0 <= above - here <= EPS
    assert 0 < found.ends_at <= last.lam
    with pytest.raises(ValueError, match="where the path ends"):
        found.evaluate(found.ends_at / 2)
    on = RegularisationPath(
        eps=EPS, stop_when_flat=False,
        max_points=len(found.points) + 1,
    ).solve(given, resume=found.state)  # fmt: skip
    assert not on.flat and on.points[-1].lam < last.lam
    assert on.status.startswith("max_points")


@pytest.mark.parametrize(
    ("kind", "small"), [("compiled", 1.0), ("callbacks", 1e-2), ("compiled", 1e-4)]
)
def test_data_that_can_be_fitted_are(kind, small):
    # between the examples of large and of small features lambda has no effect
    X = np.diag([1.0, 1, 1, small, small, small])
    whole = MulticlassProblem(X, [0, 1, 2, 0, 1, 2])
    given = whole if kind == "compiled" else as_callbacks(whole)
    found = RegularisationPath(eps=EPS).solve(given)
    assert found.complete and not found.flat
    assert whole.hinges(found.points[-1].w).mean() <= EPS
    other = RegularisationPath(eps=EPS, stop_when_flat=False).solve(given)
    assert [p.lam for p in found.points] == [p.lam for p in other.points]


def worst_outputs(problem):
    """psi~, mean cost and lambda^inf times the goal, by enumeration."""
    psi, loss, owner = columns(problem)
    worst = [np.flatnonzero(owner == i)[loss[owner == i].argmax()] for i in range(9)]
    mean = psi[worst].mean(0)
    theta = [max(-psi[owner == i] @ mean) for i in range(9)]
    return mean, loss[worst].mean(), mean @ mean + np.mean(theta)


@pytest.mark.parametrize(
    ("kind", "steps", "cache"),
    [("compiled", "fw", False), ("callbacks", "pairwise", True)],
)
def test_one_dual_point_serves_all_large_lambda(problem, kind, steps, cache):
    given = problem if kind == "compiled" else as_callbacks(problem)
    found = RegularisationPath(
        eps=EPS, kappa=KAPPA, steps=steps, cache=cache, max_points=1
    ).solve(given)
    goal = KAPPA * EPS
    mean, loss, bound = worst_outputs(problem)
    # costs count beside scores of up to 2^20, and the bound stays one
    assert bound / goal <= found.lam_infinity * (1 + 1e-12)
    np.testing.assert_allclose(found.lam_infinity, bound / goal, rtol=2**-19)
    first = found.points[0]
    assert first.lam == found.lam_infinity
    np.testing.assert_allclose(first.w, mean / first.lam, atol=1e-12)
    psi, cost, owner = columns(problem)
    for lam in first.lam * np.array([1, 1.5, 10, 1000]):
        w = found.evaluate(lam)
        np.testing.assert_allclose(w, mean / lam, atol=1e-12)
        hinge = np.mean([max(cost[owner == i] - psi[owner == i] @ w) for i in range(9)])
        # primal less the dual value of the worst outputs
        gap = lam * w @ w + hinge - loss
        assert gap <= min(goal, bound / lam) + 1e-12


def test_budgets_and_callbacks_stop_with_a_sentence(problem):
    def status(**options):
        return RegularisationPath(eps=EPS, **options).solve(problem).status

    assert status(max_passes=1) == "max_passes = 1 passes are used up"
    assert status(max_seconds=1e-9) == "max_seconds = 1e-09 seconds are used up"
    assert status(smallest=1e9) == "lambda is below smallest = 1e+09"
    assert status(callback=lambda point: True) == "stopped by the callback"


def test_what_lies_below_the_end_raises(problem, path):
    with pytest.raises(ValueError, match=r"lam: expected at least .* where the path"):
        path.evaluate(path.ends_at / 2)
    with pytest.raises(ValueError, match="lam: expected a positive number"):
        path.evaluate(0)


def test_without_features_weights_are_zero():
    rows = random_rows(np.random.default_rng(0), 4, 3, density=0)
    problem = MulticlassProblem(rows, [0, 1, 2, 0])
    found = RegularisationPath().solve(problem)
    assert found.complete and len(found.points) == 1
    for lam in (1e-9, 1.0, 1e9):
        assert not found.evaluate(lam).any()


@pytest.mark.parametrize(
    "options,error,message",
    [
        ({"eps": 0}, ValueError, "eps: expected a positive number, got 0"),
        ({"kappa": 1.0}, ValueError, "kappa: expected a number below 1, got 1.0"),
        ({"max_points": 0}, ValueError, "max_points: expected at least 1"),
    ],
)
def test_wrong_parameters_are_named(options, error, message):
    with pytest.raises(error, match=message):
        RegularisationPath(**options)
