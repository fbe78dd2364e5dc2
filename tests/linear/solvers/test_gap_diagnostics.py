"""How stale estimates of gaps are, and how uneven gaps."""

import numpy as np
import pytest

from smoothsp.linear.engines.runner import engine_for, one_pass
from smoothsp.linear.solvers import BCFW, CasimirSVRG, nonuniformity, staleness
from tests.linear.solvers.engines import exact_gaps
from tests.truth.linear_chain import random_chain

LAM = 0.2


@pytest.mark.parametrize("sampling", ["gap", "uniform"])
def test_staleness_is_the_exact_gap_over_the_sum_of_estimates(sampling):
    problem, found = random_chain(4, n=9), []
    solver = BCFW(
        lam=LAM, sampling=sampling, refresh_every=3, max_passes=9, tol=0.0, seed=5,
        callback=lambda record: found.append(staleness(record)),
    )  # fmt: skip
    solver.solve(problem)
    engine, stream = engine_for(problem, solver.plan), np.random.default_rng(5)
    expected = []
    for _ in range(3):
        for _ in range(3):
            one_pass(engine, stream, sampling, 0.0)
        estimates = float(engine.estimates.sum())
        # infinite where an example had no call yet
        known = estimates if np.isfinite(estimates) else np.nan
        expected.append(exact_gaps(engine, problem).sum() / known)
        engine.measure()
    np.testing.assert_allclose(found, expected)
    assert np.isfinite(found[1:]).all() and max(found[1:]) != 1.0


def test_staleness_survives_a_resumed_run():
    problem, whole, parts = random_chain(4, n=9), [], []
    options = {"lam": LAM, "refresh_every": 4, "tol": 0.0}

    def keep(rows):
        return lambda record: rows.append(staleness(record))

    BCFW(max_passes=8, callback=keep(whole), **options).solve(problem)
    half = BCFW(max_passes=6, **options).solve(problem)
    again = BCFW(max_passes=8, callback=keep(parts), **options)
    again.solve(problem, resume=half.state)
    assert parts == whole[1:]


def test_without_estimates_nothing_is_known():
    found = []
    solver = BCFW(
        lam=LAM, sampling="uniform", refresh_every=1, max_passes=1,
        callback=lambda record: found.append(staleness(record)),
    )  # fmt: skip
    solver.solve(random_chain(4, n=40))
    assert np.isnan(found).all()


def test_records_of_other_solvers_are_refused():
    def ask(record):
        with pytest.raises(ValueError, match=r"^record: expected a record of BCFW"):
            staleness(record)
        seen.append(record)

    seen = []
    CasimirSVRG(lam=LAM, max_passes=1, callback=ask).solve(random_chain(4))
    assert seen


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300])
def test_nonuniformity_is_that_of_the_variance_of_shares(scale):
    x = np.random.default_rng(0).exponential(size=50) ** 3
    p = x / x.sum()
    expected = np.sqrt(1 + 50**2 * p.var())
    assert nonuniformity(scale * x) == pytest.approx(expected, rel=1e-12)
    assert nonuniformity(np.full(50, scale)) == pytest.approx(1, rel=1e-12)
    assert nonuniformity([0.0] * 8 + [scale]) == pytest.approx(3, rel=1e-12)


@pytest.mark.parametrize(
    "numbers,said",
    [
        ([], "one or more in a row, got shape .0,."),
        ([[1.0]], "one or more in a row, got shape .1, 1."),
        ([1.0, -1.0], "finite ones of at least 0, got -1.0 at 1"),
        ([np.nan, 1.0], "finite ones of at least 0, got nan at 0"),
        ([1.0, np.inf], "finite ones of at least 0, got inf at 1"),
        ([0.0, 0.0], "one above 0, got zeros only"),
    ],
)
def test_what_has_no_nonuniformity(numbers, said):
    with pytest.raises(ValueError, match=rf"^numbers: expected {said}"):
        nonuniformity(numbers)
