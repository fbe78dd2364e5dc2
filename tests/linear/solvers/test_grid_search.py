"""The grid search: every value solved, and what a warm start saves."""

import numpy as np
import pytest

from smoothsp.linear.solvers import PathPoint, grid_search
from tests.sweeps import thinned
from tests.truth.frank_wolfe import as_callbacks, columns, optimum
from tests.truth.linear_chain import random_chain

LAMS = [2.0**k for k in range(6, -7, -2)]


@pytest.fixture(scope="module")
def problem():
    return random_chain(0, n=6, S=3, d=4, longest=3)


# plain steps take most passes; each start, and each kind of problem, is met
@pytest.mark.parametrize(
    ("steps", "cache", "warm", "kind"),
    thinned(
        [
            ("pairwise", True, "primal", "compiled"),
            ("pairwise", True, "dual", "callbacks"),
            ("fw", False, "none", "compiled"),
            ("fw", False, "dual", "compiled"),
        ],
        2,
    ),
)
def test_each_value_has_its_certificate(problem, kind, warm, steps, cache):
    given = problem if kind == "compiled" else as_callbacks(problem)
    grid = grid_search(
        given, LAMS[::-1], tol=0.02, warm_start=warm, steps=steps, cache=cache
    )
    points = grid.points
    assert grid.complete and grid.status == "all values are solved"
    assert [p.lam for p in points] == LAMS
    for p in points:
        assert isinstance(p, PathPoint) and p.gap <= 0.02
        np.testing.assert_allclose(p.primal, problem.primal(p.w, p.lam), rtol=1e-9)
    for p in points[::4]:
        value = optimum(*columns(problem), p.lam)[1]
        assert -1e-7 < p.primal - value <= p.gap + 1e-12


@pytest.mark.parametrize("warm", ["primal", "dual"])
def test_a_warm_start_takes_fewer_calls_than_none(warm):
    many = random_chain(1, n=30, S=3, d=10, longest=4)

    def calls(start):
        return grid_search(many, LAMS, tol=0.05, warm_start=start).oracle_calls

    assert calls(warm) < calls("none")


def test_oracle_calls_are_those_that_happen(problem):
    inner, calls = as_callbacks(problem), []

    def counted(i, w):
        calls.append(i)
        return inner.max_oracle(i, w)

    given = type(inner)(len(problem), problem.num_weights, counted)
    for warm in ("primal", "dual"):
        calls.clear()
        grid = grid_search(given, LAMS, warm_start=warm)
        assert grid.oracle_calls == grid.points[-1].oracle_calls == len(calls)


def test_budgets_interrupts_and_callbacks_keep_what_is_done(problem):
    def interrupt(point):
        if point.lam == LAMS[2]:
            raise KeyboardInterrupt

    def values(**options):
        grid = grid_search(problem, LAMS, **options)
        assert not grid.complete
        return len(grid.points), grid.status

    found = values(callback=lambda p: p.lam == LAMS[4])
    assert found == (5, "stopped by the callback")
    found = values(callback=interrupt)
    assert found == (3, f"interrupted at lambda = {LAMS[2]:g}")
    found = values(max_seconds=1e-9)
    assert found == (0, "max_seconds = 1e-09 seconds are used up")
    whole = grid_search(problem, LAMS, tol=1e-3).points
    few = grid_search(problem, LAMS, tol=1e-3, max_passes=30)
    assert few.status == "max_passes = 30 passes are used up"
    assert 0 < len(few.points) < len(whole)
    assert [p.gap for p in few.points] == [p.gap for p in whole[: len(few.points)]]


@pytest.mark.parametrize(
    "options,message",
    [
        ({"lams": []}, "lams: expected at least one value, got none"),
        ({"lams": [1.0, 0.0]}, "lams: expected a positive number, got 0.0"),
        ({"tol": 0}, "tol: expected a positive number"),
        ({"warm_start": "x"}, "warm_start: expected one of"),
    ],
)
def test_wrong_parameters_are_named(problem, options, message):
    with pytest.raises(ValueError, match=message):
        grid_search(problem, **options)
