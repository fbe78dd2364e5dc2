"""How stale estimates of gaps are, and how uneven gaps."""

import numpy as np
import pytest

from smoothsp.linear.engines.runner import make_engine, run_block_pass
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
    engine, stream = (
        make_engine(problem, solver.engine_settings),
        np.random.default_rng(5),
    )
    expected = []
    for _ in range(3):
        for _ in range(3):
            run_block_pass(engine, stream, sampling, 0.0)
        estimates = float(engine.gap_estimates.sum())
        # infinite where an example had no call yet
        known = estimates if np.isfinite(estimates) else np.nan
        expected.append(exact_gaps(engine, problem).sum() / known)
        engine.compute_certificate()
    np.testing.assert_allclose(found, expected)
    assert np.isfinite(found[1:]).all() and max(found[1:]) != 1.0


def test_records_of_other_solvers_raise():
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
