"""Paths and grids of weights with signs: certified as those without."""

import numpy as np
import pytest

from smoothsp.linear.solvers import BCFW, RegularisationPath, grid_search
from tests.sweeps import thinned
from tests.truth.frank_wolfe import as_callbacks, columns, optimum
from tests.truth.linear_chain import random_chain

EPS = 0.1


@pytest.fixture(scope="module")
def problem():
    return random_chain(0, n=7, S=3, d=2, longest=3)


@pytest.fixture(scope="module")
def bounds(problem):
    """The first half of the weights at least 0, the last one 0."""
    lower = np.full(problem.num_weights, -np.inf)
    lower[: len(lower) // 2] = 0
    upper = np.full(len(lower), np.inf)
    lower[-1] = upper[-1] = 0
    return lower, upper


def within(w, bounds):
    return (w >= bounds[0]).all() and (w <= bounds[1]).all()


def least(problem, bounds, lam):
    """A bound below the minimum, and how far below it is at most."""
    solver = BCFW(lam=lam, bounds=bounds, steps="pairwise", tol=1e-6, max_passes=9000)
    found = solver.solve(problem)
    assert found.converged
    return found.dual


@pytest.mark.parametrize(
    ("kind", "steps", "cache"),
    [("compiled", "fw", False), ("callbacks", "pairwise", True)],
)
def test_weights_with_signs_are_good_enough_for_every_lambda(
    problem, bounds, kind, steps, cache
):
    given = problem if kind == "compiled" else as_callbacks(problem)
    found = RegularisationPath(
        eps=EPS, smallest=0.05, steps=steps, cache=cache, bounds=bounds
    ).solve(given)
    assert found.ends_at < 0.05 and len(found.points) > 3
    excess = []
    for lam in np.geomspace(100 * found.points[0].lam, 0.05, 12):
        w = found.evaluate(lam)
        assert within(w, bounds)
        excess.append(problem.primal(w, lam) - least(problem, bounds, lam))
    assert min(excess) >= -1e-6 and max(excess) <= EPS + 1e-6
    # the signs matter
    free = RegularisationPath(eps=EPS, smallest=0.05).solve(problem)
    assert not within(free.points[-1].w, bounds)


@pytest.mark.parametrize(
    ("warm", "kind"),
    thinned(
        [
            ("primal", "compiled"),
            ("dual", "callbacks"),
            ("none", "compiled"),
        ],
        2,
    ),
)
def test_a_grid_has_any_bounds(problem, warm, kind):
    given = problem if kind == "compiled" else as_callbacks(problem)
    lams = [4.0, 1.0, 0.25]
    box = (-0.05, 0.1)
    grid = grid_search(given, lams, tol=0.02, warm_start=warm, bounds=box)
    assert grid.complete
    for p in grid.points:
        assert (p.w >= -0.05).all() and (p.w <= 0.1).all() and p.gap <= 0.02
        value = optimum(*columns(problem), p.lam, *box)[1]
        assert -1e-7 < problem.primal(p.w, p.lam) - value <= p.gap + 1e-7


@pytest.mark.parametrize("bounds", [(0.5, None), (None, [1.0]), (np.nan, None)])
def test_a_path_needs_bounds_that_scale(bounds):
    with pytest.raises(ValueError, match=r"bounds: expected .* or 0 as"):
        RegularisationPath(bounds=bounds)
    with pytest.raises(TypeError, match="bounds: expected"):
        RegularisationPath(bounds=0)
