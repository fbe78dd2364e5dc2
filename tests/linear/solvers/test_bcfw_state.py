"""The bookkeeping of BCFW, step by step: weights, marginals, gaps, the cache."""

import numpy as np
import pytest

from smoothsp.linear.engines.callback_dual import CallbackEngine
from smoothsp.linear.solvers import BCFW, BatchFrankWolfe
from tests.linear.solvers.engines import KINDS, LAM, engine_of, exact_gaps, weights_of
from tests.sweeps import thinned
from tests.truth.frank_wolfe import as_callbacks, columns, optimum
from tests.truth.linear_chain import random_chain


@pytest.fixture(scope="module")
def problem():
    return random_chain(4, n=4, S=3, d=4, longest=3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("steps", "cache"),
    [("pairwise", True), ("away", False), ("safeguarded", False), ("best", True)],
)
def test_weights_are_the_image_of_the_dual_and_the_dual_never_falls(
    problem, kind, steps, cache
):
    engine = engine_of(kind, problem, steps=steps, cache=cache)
    rng = np.random.default_rng(0)
    n, before = len(problem), 0.0
    for _ in range(40):
        engine.visit_in_order(rng.integers(n, size=1))
        assert engine.dual >= before - 1e-14
        before = engine.dual
    v, ell, gaps = 0.0, 0.0, []
    for i in range(n):
        psi, loss, alpha = weights_of(engine, problem, i)
        assert alpha.min() >= 0
        np.testing.assert_allclose(alpha.sum(), 1)
        v = v + alpha @ psi / (LAM * n)
        ell += alpha @ loss / n
        H = loss - psi @ engine.w
        gaps.append((H.max() - alpha @ H) / n)
    np.testing.assert_allclose(engine.w, v, atol=1e-12)
    np.testing.assert_allclose(engine.dual, ell - LAM / 2 * v @ v, atol=1e-12)
    primal, dual, gap = engine.compute_certificate()
    np.testing.assert_allclose(engine.gap_estimates, gaps, atol=1e-12)
    np.testing.assert_allclose(gap, primal - dual, atol=1e-12)
    assert steps == "safeguarded" or drops_of(engine) > 0


def drops_of(engine):
    return (
        engine.num_drop_steps
        if isinstance(engine, CallbackEngine)
        else engine._counters.counts[3]
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_cache_without_a_certificate_goes_by_the_estimates(problem, kind):
    engine = engine_of(kind, problem, cache=True, cache_local=1e-12)
    n = len(problem)
    assert np.isinf(engine.last_gap)
    # one example is not known yet, so that nothing is compared with the gap
    engine.visit_in_order(np.tile(np.arange(n - 1), 4))
    assert engine.num_cache_hits == 0 and engine.oracle_calls == 4 * (n - 1)
    engine.visit_in_order(np.tile(np.arange(n), 4))
    assert engine.num_cache_hits == 0
    engine.visit_in_order(np.tile(np.arange(n), 4))
    assert engine.num_cache_hits > 0 and engine.certificate_oracle_calls == 0
    primal, dual, gap = engine.compute_certificate()
    assert engine.last_gap == gap == pytest.approx(primal - dual)


@pytest.mark.parametrize("kind", KINDS)
def test_a_cache_saves_a_call_only_where_its_corner_is_good_enough(problem, kind):
    options = {"cache": True, "cache_local": 1e-12, "cache_global": 1e-12}
    eager = engine_of(kind, problem, **options)
    n = len(problem)
    eager.visit_in_order(np.arange(n))
    # the gold labels alone: their gap is 0 at the first visit
    assert eager.num_cache_hits == 0
    eager.visit_in_order(np.repeat(np.arange(n), 3))
    assert eager.num_cache_hits > 0
    strict = engine_of(kind, problem, cache=True, cache_global=1e9)
    strict.visit_in_order(np.tile(np.arange(n), 5))
    assert (
        strict.num_cache_hits == 0
        and strict.oracle_calls - strict.certificate_oracle_calls == 5 * n
    )


@pytest.mark.parametrize("kind", thinned(KINDS, 2))
def test_a_hit_costs_no_call_and_leaves_the_estimate(problem, kind):
    engine = engine_of(kind, problem, cache=True)
    n, seen = len(problem), set()
    engine.compute_certificate()
    base = engine.certificate_oracle_calls
    for k in range(60):
        i = k % n
        hits, calls = (
            engine.num_cache_hits,
            engine.oracle_calls - engine.certificate_oracle_calls,
        )
        before = engine.gap_estimates[i]
        exact = exact_gaps(engine, problem)[i]
        engine.visit_in_order(np.array([i]))
        hit = engine.num_cache_hits - hits
        seen.add(hit)
        assert engine.oracle_calls - engine.certificate_oracle_calls == calls + 1 - hit
        if hit:
            assert engine.gap_estimates[i] == before
        else:
            np.testing.assert_allclose(engine.gap_estimates[i], exact, atol=1e-13)
    assert seen == {0, 1}
    engine.compute_certificate()
    assert engine.certificate_oracle_calls == base + n
    exact = exact_gaps(engine, problem)
    np.testing.assert_allclose(engine.gap_estimates, exact, atol=1e-13)


def test_marginals_are_kept_exact_where_nothing_is_left_to_move(problem):
    engine = engine_of("compiled", problem)
    engine.visit_in_order(np.tile(np.arange(len(problem)), 30))
    s, d = engine._sequences, engine._duals
    mu = d.mu.reshape(-1, s.P)
    np.testing.assert_allclose(mu[:, : s.S].sum(1), 1)
    assert not mu[:, s.S :].any() and mu.min() >= -1e-15
    for i in range(len(problem)):
        lo, hi = problem.offsets[i : i + 2]
        table = d.edges.reshape(-1, s.S, s.P)[i, :, : s.S]
        np.testing.assert_allclose(
            table.sum(1), mu[lo : hi - 1, : s.S].sum(0), atol=1e-12
        )
        np.testing.assert_allclose(
            table.sum(0), mu[lo + 1 : hi, : s.S].sum(0), atol=1e-12
        )
    before = engine.w
    engine.rebuild_weights()
    np.testing.assert_allclose(engine.w, before, atol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
def test_batch_and_block_steps_agree_on_one_example(problem, kind):
    part = problem.subset([1])
    given = part if kind == "compiled" else as_callbacks(part)
    for passes in range(1, 6):
        block = BCFW(lam=LAM, tol=0, max_passes=passes).solve(given)
        # the certificate of a batch pass is the one before its step
        batch = BatchFrankWolfe(lam=LAM, tol=0, max_passes=passes + 1).solve(given)
        np.testing.assert_allclose(batch.w, block.w, atol=1e-13)
        np.testing.assert_allclose(batch.gap, block.gap, atol=1e-13)


@pytest.mark.parametrize("bounds", [(None, None), (0.01, 0.2)])
def test_batch_frank_wolfe_certifies_the_optimum(problem, bounds):
    low = -np.inf if bounds[0] is None else bounds[0]
    high = np.inf if bounds[1] is None else bounds[1]
    value = optimum(*columns(problem), LAM, low, high)[1]
    options = {"lam": LAM, "tol": 1e-2, "bounds": bounds}
    solution = BatchFrankWolfe(**options, max_passes=5000).solve(problem)
    assert solution.converged
    assert -1e-8 < solution.primal - value <= solution.gap + 1e-12
    np.testing.assert_allclose(solution.primal, problem.primal(solution.w, LAM))
    for r in solution.history:
        assert r.dual <= value + 1e-12
        np.testing.assert_allclose(r.gap, r.primal - r.dual, atol=1e-12)
    twin = BatchFrankWolfe(**options, max_passes=50).solve(as_callbacks(problem))
    first = BatchFrankWolfe(**options, max_passes=50).solve(problem)
    np.testing.assert_allclose(twin.w, first.w, atol=1e-10)
