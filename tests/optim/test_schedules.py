"""The sequences of Casimir: golden numbers, identities, lemmas."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothsp.optim.schedules import (
    CasimirSchedule,
    ProxLinearSchedule,
    extrapolation,
    next_alpha,
    subgradient_rate,
    svrg_kappa,
)

FOUR = [
    CasimirSchedule(0.1, 0.7, 0.5),
    CasimirSchedule(0.1, 0.7, 0.5, decreasing=True),
    CasimirSchedule(0.0, 0.7, 0.5),
    CasimirSchedule(0.0, 0.7, 0.5, decreasing=True),
]
positive = st.floats(1e-3, 1e3)


def run(schedule, steps):
    """alpha_0 .. alpha_steps and beta_1 .. beta_steps."""
    decay = schedule.weight_decay
    alphas, betas = [schedule.alpha_0], []
    for k in range(1, steps + 1):
        kappas = schedule.kappa_at(k), schedule.kappa_at(k + 1)
        alphas.append(next_alpha(alphas[-1], *kappas, decay))
        betas.append(extrapolation(*alphas[-2:], *kappas, decay))
    return alphas, betas


def close(found, expected, digits=6):
    assert [round(x, digits) for x in found] == expected


def test_golden_numbers_of_the_adaptive_variant():
    schedule = CasimirSchedule(0.3, 0.3, mu=1.0, decreasing=True)
    alphas, betas = run(schedule, 5)
    close(alphas, [0.707107] * 6)
    close(betas, [0.171573] * 5)
    assert round(schedule.delta_at(1), 6) == 0.546918
    mus = [schedule.mu_at(k) for k in range(1, 7)]
    close(mus, [0.804019, 0.646447, 0.519755, 0.417893, 0.335994, 0.270146])


@given(positive, positive)
def test_constant_kappa_and_root_q_stay(decay, kappa):
    schedule = CasimirSchedule(decay, kappa)
    root = math.sqrt(decay / (decay + kappa))
    alphas, betas = run(schedule, 4)
    assert alphas == pytest.approx([root] * 5, rel=1e-12)
    assert betas == pytest.approx([(1 - root) / (1 + root)] * 4, rel=1e-9)


@given(
    st.sampled_from([0.0, 0.01, 1.0]),
    st.lists(st.floats(0.01, 5), min_size=9, max_size=9),
    st.floats(0, 0.3),
)
def test_alphas_satisfy_their_equation_and_lemma_21(decay, increments, slack):
    kappas = list(itertools.accumulate([0.05, *increments]))
    alpha = min(0.98, math.sqrt(decay / (decay + kappas[0])) + slack + 1e-3)
    for kappa, following in itertools.pairwise(kappas):
        found = next_alpha(alpha, kappa, following, decay)
        left = found**2 * (following + decay)
        right = (1 - found) * alpha**2 * (kappa + decay) + found * decay
        assert left == pytest.approx(right, rel=1e-12)
        assert 0 < found <= alpha * (1 + 1e-12) < 1
        assert found**2 >= decay / (decay + following) * (1 - 1e-12)
        alpha = found


@given(st.floats(1e-3, 1e4), st.integers(1, 1000), st.floats(1e-6, 10))
def test_kappa_rule(smoothness, n, decay):
    kappa = svrg_kappa(smoothness, n, decay)
    if smoothness / n > 4 * decay:
        assert kappa + decay == pytest.approx(smoothness / n)
        assert CasimirSchedule(decay, kappa).root_q < 1 / 2
    else:
        assert kappa == decay
    assert svrg_kappa(smoothness, n, 0.0) == smoothness / (n + 1)


@pytest.mark.parametrize("schedule", FOUR)
def test_corollaries_are_no_tighter_than_theorem_16(schedule):
    """Their bounds are derived from (30), so (30) is at most them."""
    gap, distance, D, decay = 1.3, 0.7, 0.5, schedule.weight_decay
    alphas, _ = run(schedule, 30)
    weight = (schedule.kappa_at(1) + decay) * alphas[0] ** 2 - decay * alphas[0]
    start = gap + weight / (2 * (1 - alphas[0])) * distance**2
    if decay:
        # the corollaries bound the distance by strong convexity
        start = 2 * gap

    def mu(k):
        return 2 * schedule.mu_at(1) if k == 0 else schedule.mu_at(k)

    for k in range(2, 31):
        shrink = [1 - alpha for alpha in alphas[:k]]
        slack = [1 - schedule.delta_at(j) for j in range(1, k + 1)]
        bound = math.prod(shrink) / math.prod(slack) * start + mu(k) * D
        for j in range(1, k + 1):
            factor = math.prod(shrink[j:]) / math.prod(slack[j - 1 :])
            bound += factor * (mu(j - 1) - slack[j - 1] * mu(j)) * D
        assert bound <= schedule.bound(k, gap, distance, D) * (1 + 1e-12)


def test_prox_linear_schedule():
    adaptive = ProxLinearSchedule(2.0, 5.0, 0.3)
    assert [adaptive.mu_at(k) for k in (1, 2, 4)] == [2.0, 1.0, 0.5]
    assert [adaptive.smoothness_at(k) for k in (1, 2, 4)] == [5.0, 10.0, 20.0]
    assert [adaptive.tolerance_at(k) for k in (1, 3)] == [0.3, 0.3 / 3]
    constant = ProxLinearSchedule(2.0, 5.0, 0.3, adaptive=False)
    assert (constant.mu_at(4), constant.smoothness_at(4)) == (2.0, 5.0)
    assert ProxLinearSchedule().smoothness_at(3) is None


def test_rates_of_subgradient_steps():
    steps = range(1, 6)
    assert [subgradient_rate("constant", t) for t in steps] == [1.0] * 5
    assert [subgradient_rate("inverse", t) for t in steps] == [1 / t for t in steps]
    roots = [subgradient_rate("inverse-sqrt", t) for t in steps]
    assert roots == pytest.approx([t**-0.5 for t in steps])
    stairs = [subgradient_rate("step", t, 2) for t in steps]
    assert stairs == [1, 1 / 2, 1 / 2, 1 / 3, 1 / 3]
