"""What the papers prove of BCFW, as assertions."""

import numpy as np
import pytest

from smoothsp.linear.engines.callback_dual import CallbackEngine
from smoothsp.linear.problems import CallbackProblem
from smoothsp.linear.solvers import BCFW
from tests.linear.solvers.engines import KINDS, LAM, engine_of, weights_of
from tests.truth.linear_chain import corners, random_chain


@pytest.fixture(scope="module")
def problem():
    return random_chain(4, n=4, S=3, d=4, longest=3)


def curvatures(problem):
    """``(1 / (lambda n^2)) max ||psi - psi'||^2`` of each example."""
    n = len(problem)
    found = []
    for i in range(n):
        psi = corners(problem, i)[0]
        apart = psi[:, None] - psi[None]
        found.append((apart**2).sum(-1).max() / (LAM * n**2))
    return np.array(found)


def test_a_step_gains_what_the_descent_lemma_says(problem):
    C, rng = curvatures(problem), np.random.default_rng(1)
    engine = engine_of("compiled", problem)
    gammas = np.linspace(0, 1, 21)
    for _ in range(30):
        engine.compute_certificate()
        i = int(rng.integers(len(problem)))
        before, gap = -engine.dual, engine.gap_estimates[i]
        engine.visit_in_order(np.array([i]))
        assert (
            -engine.dual <= before - gammas * gap + gammas**2 / 2 * C[i] + 1e-12
        ).all()


def toy(n, K):
    """One hard example of K labels, and n - 1 that one visit solves together."""

    def oracle(i, w):
        psi = np.zeros((K + 1, K + 1))
        if i == 0:
            psi[np.arange(1, K + 1), np.arange(K)] = 2**-0.5
        else:
            psi[1:, K] = 1
        violation = (np.arange(K + 1) > 0) - psi @ w
        k = int(violation.argmax())
        return psi[k], float(k > 0), k

    return CallbackProblem(n, K + 1, oracle)


@pytest.mark.parametrize("n,K", [(20, 15)])
@pytest.mark.parametrize("seed", range(2))
def test_gap_sampling_solves_the_toy_in_n_plus_k_calls(n, K, seed):
    problem = toy(n, K)
    engine = CallbackEngine(problem, BCFW(lam=1 / n).engine_settings)
    rng = np.random.default_rng(seed)
    value = (1 - 1 / (4 * K)) / n + 1 / (2 * n)
    engine.visit_in_order(rng.permutation(n))
    while value - engine.dual > 1e-12:
        engine.visit_by_gap(rng.random(1), 0.0)
    assert engine.oracle_calls == n + K
    truth = np.append(np.full(K, 0.5**0.5 / K), 1)
    np.testing.assert_allclose(engine.w, truth, atol=1e-12)
    assert engine.compute_certificate()[2] < 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_a_smaller_lambda_keeps_the_weights_and_shifts_each_gap(problem, kind):
    engine = engine_of(kind, problem, steps="pairwise")
    engine.visit_in_order(np.tile(np.arange(len(problem)), 5))
    w, rho = engine.w, 0.3
    engine.compute_certificate()
    gaps = engine.gap_estimates.copy()
    delta = engine.hinges / len(problem) - gaps
    np.testing.assert_allclose(delta.sum(), engine.dual + LAM / 2 * w @ w - LAM * w @ w)
    engine.shrink_duals(rho)
    engine.settings = BCFW(lam=rho * LAM, steps="pairwise").engine_settings
    np.testing.assert_array_equal(engine.w, w)
    engine.compute_certificate()
    np.testing.assert_allclose(
        engine.gap_estimates, gaps + (1 - rho) * delta, atol=1e-13
    )
    engine.rebuild_weights()
    np.testing.assert_allclose(engine.w, w, atol=1e-13)
    for i in range(len(problem)):
        np.testing.assert_allclose(weights_of(engine, problem, i)[2].sum(), 1)
