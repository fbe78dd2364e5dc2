"""The calculator: propositions 27 and 29 to 32."""

import math

import pytest

from smoothsp.optim import plan
from smoothsp.optim.schedules import CasimirSchedule, svrg_steps

PROBLEM = {"eps": 0.1, "n": 200, "A": 4.0, "D": 0.5}


def test_proposition_29():
    found = plan(weight_decay=1e-3, gap=2.0, **PROBLEM)
    assert found.mu == pytest.approx(0.1 / (10 * 0.5))
    assert found.smoothness == pytest.approx(4.0 / found.mu)
    assert found.kappa == pytest.approx(4.0 / found.mu / 200 - 1e-3)
    root = math.sqrt(1e-3 / (1e-3 + found.kappa))
    assert found.alpha_0 == pytest.approx(root)
    assert found.delta == pytest.approx(root / (2 - root))
    # the number of iterations in the proof, with c_q mu D < eps / 2
    c = (3 - root) / (1 - root) * found.mu * 0.5
    assert c < 0.05
    enough = 2 / root * math.log(2 * 2.0 / (0.1 - c))
    assert 0.5 * enough < found.outer_iterations <= enough + 1


def test_proposition_31():
    found = plan(weight_decay=0.0, gap=2.0, distance=3.0, **PROBLEM)
    assert found.mu == pytest.approx(0.1 / (20 * 0.5))
    assert found.kappa == pytest.approx(4.0 / found.mu / 201)
    assert found.alpha_0 == pytest.approx((math.sqrt(5) - 1) / 2)
    assert found.delta == 1 / 4
    start = 2.0 + found.kappa / 2 * 9
    enough = math.sqrt(8 * start / (0.1 - 10 * found.mu * 0.5))
    assert found.outer_iterations <= enough


def test_propositions_30_and_32_have_decreasing_smoothing():
    found = plan(weight_decay=0.01, gap=2.0, mu=2.0, **PROBLEM)
    assert found.kappa == 0.01 and found.schedule.decreasing
    root = math.sqrt(1 / 2)
    eta = 1 - root / 2
    assert found.mu == pytest.approx(2 * math.sqrt(eta))
    bracket = 2 * 2.0 + 2 * 0.5 / (1 - root) * (2 - root + root / (1 - math.sqrt(eta)))
    enough = math.log(bracket / 0.1) / math.log(1 / math.sqrt(eta))
    assert found.outer_iterations == math.ceil(enough)

    found = plan(weight_decay=0.0, gap=2.0, distance=3.0, mu=2.0, kappa=0.5, **PROBLEM)
    bracket = 2 * 2.0 + 0.5 * 9 + 27 * 2 * 0.5
    enough = 2 * bracket / 0.1 * math.log(2 * bracket / 0.1)
    assert 0.1 * enough < found.outer_iterations <= enough


def test_proposition_27_by_hand():
    schedule = CasimirSchedule(0.5, 1.5, mu=0.1)
    smooth, convex, n = 2.0 / 0.1 + 0.5 + 1.5, 2.0, 10
    tau = 1 / (8 * smooth / convex + n)
    C = smooth / convex * (1 + n * (smooth / convex) * tau)
    inside = 8 * C / tau * smooth / (1.5 * schedule.delta_at(1))
    expected = math.log(inside) / tau + 1
    delta = schedule.delta_at(1)
    assert svrg_steps(2.0 / 0.1, n, 0.5, 1.5, delta) == pytest.approx(expected)
    found = plan(0.1, 10, 0.5, 2.0, 0.5, gap=1.0)
    each = svrg_steps(found.smoothness, 10, 0.5, found.kappa, found.delta)
    assert found.inner_iterations == pytest.approx(found.outer_iterations * each)


def test_messages():
    with pytest.raises(ValueError, match="eps: expected a positive number, got 0"):
        plan(0, 10, 0.1, 1.0, 0.5, gap=1.0)
    with pytest.raises(TypeError, match=r"n: expected an int, got 1\.5"):
        plan(0.1, 1.5, 0.1, 1.0, 0.5, gap=1.0)
    with pytest.raises(ValueError, match="weight_decay: expected a number of at least"):
        plan(0.1, 10, -0.1, 1.0, 0.5, gap=1.0)
    with pytest.raises(ValueError, match="distance: expected a bound"):
        plan(0.1, 10, 0.0, 1.0, 0.5, gap=1.0)
    with pytest.raises(ValueError, match="kappa: expected a positive number with mu"):
        plan(0.1, 10, 0.0, 1.0, 0.5, gap=1.0, distance=1.0, mu=1.0)
    with pytest.raises(ValueError, match="kappa: expected a positive number, got -1"):
        plan(0.1, 10, 0.1, 1.0, 0.5, gap=1.0, kappa=-1)
