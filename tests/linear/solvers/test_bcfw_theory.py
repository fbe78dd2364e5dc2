"""What the papers prove of BCFW, as assertions."""

import numpy as np
import pytest

from smoothsp.linear.engines.callback_dual import CallbackEngine
from smoothsp.linear.problems import CallbackProblem
from smoothsp.linear.solvers import BCFW
from tests.linear.solvers.engines import KINDS, LAM, engine_of, weights_of
from tests.truth.frank_wolfe import columns, optimum
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
        engine.measure()
        i = int(rng.integers(len(problem)))
        before, gap = -engine.dual, engine.estimates[i]
        engine.in_order(np.array([i]))
        assert (
            -engine.dual <= before - gammas * gap + gammas**2 / 2 * C[i] + 1e-12
        ).all()


@pytest.mark.parametrize("theorem", [1, 2, 3])
def test_the_rates_of_the_theorems_hold_on_average(problem, theorem):
    n, C = len(problem), curvatures(problem)
    value = optimum(*columns(problem), LAM)[1]
    overall = 2.0
    chis = []

    def run(rng, steps):
        options = {"cache": True, "cache_global": overall} if theorem == 3 else {}
        engine = engine_of("compiled", problem, **options)
        yield engine.dual
        for _ in range(steps):
            i = rng.integers(n)
            if theorem == 2:
                engine.measure()
                gaps = engine.estimates
                if gaps.sum() <= 0:
                    yield engine.dual
                    continue
                chis.append(chi(C) / chi(gaps) ** 3)
                i = rng.choice(n, p=gaps / gaps.sum())
            if theorem == 3:
                engine.measure()
            engine.in_order(np.array([i]))
            yield engine.dual

    steps, runs = (1500, 8) if theorem == 3 else (400, 20)
    found = np.zeros(steps + 1)
    for seed in range(runs):
        duals = run(np.random.default_rng(seed), steps)
        found += (value - np.fromiter(duals, float)) / runs
    k = np.arange(steps + 1)
    # the theorem has the largest mean; the largest of all is no less
    factor = max(chis) if theorem == 2 else 1.0
    rate = overall / n if theorem == 3 else 1.0
    bound = 2 * n / (rate * k + 2 * n) * (C.sum() * factor / rate + found[0])
    assert (found <= bound).all()
    assert found[0] > bound[-1], "a solver that stands still has to fail"


def chi(x):
    p = x / x.sum()
    return np.sqrt(1 + len(x) ** 2 * np.var(p))


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


@pytest.mark.parametrize("n,K", [(20, 15), (8, 5)])
@pytest.mark.parametrize("seed", range(4))
def test_gap_sampling_solves_the_toy_in_n_plus_k_calls(n, K, seed):
    problem = toy(n, K)
    engine = CallbackEngine(problem, BCFW(lam=1 / n).plan)
    rng = np.random.default_rng(seed)
    value = (1 - 1 / (4 * K)) / n + 1 / (2 * n)
    engine.in_order(rng.permutation(n))
    while value - engine.dual > 1e-12:
        engine.by_gap(rng.random(1), 0.0)
    assert engine.oracle_calls == n + K
    truth = np.append(np.full(K, 0.5**0.5 / K), 1)
    np.testing.assert_allclose(engine.w, truth, atol=1e-12)
    assert engine.measure()[2] < 1e-12


def test_uniform_sampling_needs_about_n_times_k_calls_for_the_toy():
    n, K = 20, 15
    value = (1 - 1 / (4 * K)) / n + 1 / (2 * n)
    calls = []
    for seed in range(20):
        engine = CallbackEngine(toy(n, K), BCFW(lam=1 / n).plan)
        rng = np.random.default_rng(seed)
        while value - engine.dual > 1e-12:
            engine.in_order(rng.integers(n, size=1))
        calls.append(engine.oracle_calls)
    # K visits of one example in n: mean nK, deviation sqrt(K n (n - 1))
    error = np.sqrt(K * n * (n - 1) / 20)
    assert abs(np.mean(calls) - n * K) < 3 * error


@pytest.mark.parametrize("length,gamma", [(1, 1.0), (2, 0.25)])
def test_the_first_step_is_the_one_worked_by_hand(length, gamma):
    def oracle(i, w):
        psi = np.array([length, 0.0])
        return (psi, 1.0, 1) if 1 - w @ psi > 0 else (0 * psi, 0.0, 0)

    solution = BCFW(lam=1.0, tol=0, max_passes=1).solve(CallbackProblem(1, 2, oracle))
    np.testing.assert_array_equal(solution.w, [length * gamma, 0])
    assert solution.gap == 0 and solution.dual == gamma - (length * gamma) ** 2 / 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_smaller_lambda_keeps_the_weights_and_shifts_each_gap(problem, kind):
    engine = engine_of(kind, problem, steps="pairwise")
    engine.in_order(np.tile(np.arange(len(problem)), 5))
    w, rho = engine.w, 0.3
    engine.measure()
    gaps = engine.estimates.copy()
    delta = engine.hinges / len(problem) - gaps
    np.testing.assert_allclose(delta.sum(), engine.dual + LAM / 2 * w @ w - LAM * w @ w)
    engine.mix_with_gold(rho)
    engine.plan = BCFW(lam=rho * LAM, steps="pairwise").plan
    np.testing.assert_array_equal(engine.w, w)
    engine.measure()
    np.testing.assert_allclose(engine.estimates, gaps + (1 - rho) * delta, atol=1e-13)
    engine.rebuild()
    np.testing.assert_allclose(engine.w, w, atol=1e-13)
    for i in range(len(problem)):
        np.testing.assert_allclose(weights_of(engine, problem, i)[2].sum(), 1)
