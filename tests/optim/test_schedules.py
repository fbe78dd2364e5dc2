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


def test_golden_sequences_without_weight_decay():
    alphas, betas = run(CasimirSchedule(0.0, 3.0), 7)
    close(
        alphas,
        [
            0.618034,
            0.455887,
            0.363664,
            0.303501,
            0.260919,
            0.229091,
            0.204348,
            0.184533,
        ],
    )
    close(betas, [0.281754, 0.434043, 0.531064, 0.598779, 0.648923, 0.687646, 0.7185])
    alphas, betas = run(CasimirSchedule(0.0, 3.0, decreasing=True), 7)
    close(
        alphas,
        [
            0.618034,
            0.351836,
            0.248958,
            0.193611,
            0.158825,
            0.134856,
            0.117302,
            0.103871,
        ],
    )
    close(betas, [0.217446, 0.45864, 0.584073, 0.661505, 0.714233, 0.752525, 0.781631])


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


@pytest.mark.parametrize("schedule", FOUR)
def test_auxiliary_sequences_of_the_proof_agree(schedule):
    """Equations (32) to (41): gamma, eta and v give the same extrapolation."""
    decay, first = schedule.weight_decay, schedule.alpha_0
    alphas, betas = run(schedule, 8)
    kappa = schedule.kappa_at(1)
    gamma = ((kappa + decay) * first**2 - decay * first) / (1 - first)
    assert gamma == pytest.approx(decay if decay else kappa, rel=1e-12)
    w = [0.0, 1.0, -0.5, 2.0, 0.3, 0.1, 0.7, -1.0, 0.4]
    for k in range(1, 9):
        kappa = schedule.kappa_at(k)
        gamma = (1 - alphas[k - 1]) * gamma + decay * alphas[k - 1]
        assert gamma == pytest.approx((kappa + decay) * alphas[k - 1] ** 2, rel=1e-12)
        v = w[k - 1] + (w[k] - w[k - 1]) / alphas[k - 1]
        eta = alphas[k] * gamma / (gamma + alphas[k] * decay)
        assert betas[k - 1] == pytest.approx(eta * (1 / alphas[k - 1] - 1), rel=1e-9)
        z = eta * v + (1 - eta) * w[k]
        assert z == pytest.approx(w[k] + betas[k - 1] * (w[k] - w[k - 1]), rel=1e-9)


def test_lemma_52_without_weight_decay():
    alphas, _ = run(CasimirSchedule(0.0, 1.0), 300)
    product = 1.0
    for k, alpha in enumerate(alphas):
        product *= 1 - alpha
        assert math.sqrt(2) / (k + 3) <= alpha <= 2 / (k + 3)
        assert product == pytest.approx(alpha**2, rel=1e-9)
        assert 2 / (k + 3) ** 2 <= product <= 4 / (k + 3) ** 2


def test_lemma_53_with_growing_kappa():
    alphas, _ = run(CasimirSchedule(0.0, 1.0, decreasing=True), 300)
    product = 1.0
    for k, alpha in enumerate(alphas):
        product *= 1 - alpha
        assert product == pytest.approx((k + 1) * alpha**2, rel=1e-9)
        assert (1 - 1 / math.sqrt(2)) / (k + 1) <= product <= 1 / (k + 2) + 1e-12


def test_accuracies_multiply_as_in_the_proofs():
    schedule = CasimirSchedule(0.0, 1.0)
    product = 1.0
    for k in range(1, 50):
        product *= 1 - schedule.delta_at(k)
        assert product == pytest.approx(1 / 2 + 1 / (2 * (k + 1)), rel=1e-12)
    schedule = CasimirSchedule(0.2, 0.5)
    shrink = (1 - schedule.alpha_0) / (1 - schedule.delta_at(1))
    assert shrink == pytest.approx(1 - schedule.root_q / 2, rel=1e-12)


@pytest.mark.parametrize("schedule", FOUR)
def test_schedules_satisfy_what_theorem_16_asks(schedule):
    steps = range(1, 200)
    kappas = [schedule.kappa_at(k) for k in steps]
    mus = [schedule.mu_at(k) for k in steps]
    decay = schedule.weight_decay
    assert kappas == sorted(kappas) and kappas[0] > 0
    assert mus == sorted(mus, reverse=True) and mus[-1] > 0
    assert all(0 <= schedule.delta_at(k) < 1 for k in steps)
    assert 1 > schedule.alpha_0**2 >= decay / (decay + kappas[0]) * (1 - 1e-12)


def test_mu_never_underflows():
    schedule = CasimirSchedule(1.0, 1e-6, mu=2.0, decreasing=True)
    assert schedule.mu_at(100_000) == 2e-12


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
