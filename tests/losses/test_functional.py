"""Smooth maxima over a list of scores: golden numbers, and the theorems they obey.

Source of theorems and numbers: Pillutla et al., "A Smoother Way to Train Structured
Prediction Models", section 2, and computations by hand.
"""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck
from torch.testing import assert_close

from smoothsp.losses.functional import max_entropy, max_l2, topk_is_exact
from tests.instances.strategies import generators, values
from tests.truth.losses import projection, smooth_l2

F64 = torch.float64
Z = torch.tensor([3.0, 2.0, 1.5, 0.0], dtype=F64)

# mu, l2 weights, l2 value, weights and value over the two best, entropy value
GOLDEN = [
    (0.5, (1, 0, 0, 0), 3, (1, 0), 3, 3.0859676967),
    (1, (1, 0, 0, 0), 3, (1, 0), 3, 3.4951818981),
    (2, (0.75, 0.25, 0, 0), 3.125, (0.75, 0.25), 3.125, 4.6675804020),
    (
        4,
        (0.5416666667, 0.2916666667, 0.1666666667, 0),
        3.6458333333,
        (0.625, 0.375),
        3.5625,
        7.3115379300,
    ),
    (
        10,
        (0.3875, 0.2875, 0.2375, 0.0875),
        5.609375,
        (0.55, 0.45),
        5.025,
        15.5457949337,
    ),
]


@st.composite
def score_lists(draw, min_size=1, max_size=6, spreads=("ties", "normal", "wide")):
    """Draw (scores, generator): some lists have ties, some are far apart."""
    generator = draw(generators())
    size = draw(st.integers(min_size, max_size))
    return values(generator, draw(st.sampled_from(spreads)), size), generator


mus = st.sampled_from([1e-3, 0.3, 1.0, 2.5, 40.0, 3000.0])


@pytest.mark.parametrize(("mu", "u", "value", "u2", "value2", "soft"), GOLDEN)
def test_golden_numbers(mu, u, value, u2, value2, soft):
    close = {"rtol": 0, "atol": 1e-10}
    found, weights = max_l2(Z, mu)
    assert_close(found.item(), float(value), **close)
    assert_close(weights, torch.tensor(u, dtype=F64), **close)
    found, weights = max_l2(Z[:2], mu)
    assert_close(found.item(), float(value2), **close)
    assert_close(weights, torch.tensor(u2, dtype=F64), **close)
    assert_close(max_entropy(Z, mu).item(), soft, **close)
    exact = topk_is_exact(Z[:3], mu, torch.ones(3, dtype=torch.bool))
    assert exact.item() == (mu <= 2)


def test_golden_entropy_weights():
    z = Z.clone().requires_grad_()
    max_entropy(z, 1.0).backward()
    expected = torch.tensor([0.609460, 0.224208, 0.135989, 0.030343], dtype=F64)
    assert_close(z.grad, expected, rtol=0, atol=5e-7)


@given(score_lists(), mus)
def test_the_l2_maximum_is_attained_at_the_projection(drawn, mu):
    z, _ = drawn
    value, u = max_l2(z, mu)
    assert_close(value, smooth_l2(z, mu), rtol=1e-9, atol=1e-9)
    assert_close(u, projection(z, mu), rtol=1e-7, atol=1e-9)


@given(score_lists(spreads=("normal",)), st.sampled_from([0.3, 1.0, 2.5]))
def test_t2_the_gradient_is_the_maximiser_and_lies_in_the_simplex(drawn, mu):
    z = drawn[0].requires_grad_()
    assert gradcheck(lambda z: max_l2(z, mu)[0], z)
    assert gradcheck(lambda z: max_entropy(z, mu), z)
    value, u = max_l2(z, mu)
    (gradient,) = torch.autograd.grad(value, z)
    assert_close(gradient, u.detach())
    (soft,) = torch.autograd.grad(max_entropy(z, mu), z)
    for weights in (u.detach(), soft):
        assert (weights >= 0).all()
        assert_close(weights.sum().item(), 1.0)


@given(score_lists(min_size=2, spreads=("normal", "wide")), mus, st.integers(0, 4))
def test_t5_topk_is_called_exact_iff_it_is(drawn, mu, index):
    z, _ = drawn
    ranked = z.sort(descending=True).values
    k = index % (len(z) - 1) + 1
    flag = topk_is_exact(ranked[: k + 1], mu, torch.ones(k + 1, dtype=torch.bool))
    everything, u = max_l2(ranked, mu)
    some, v = max_l2(ranked[:k], mu)
    v = torch.cat([v, v.new_zeros(len(z) - k)])
    same = bool(torch.allclose(u, v, rtol=0, atol=1e-9))
    assert flag.item() == same
    if same:
        assert_close(some, everything)
        for smaller in (0.9 * mu, 0.1 * mu):
            assert topk_is_exact(ranked[: k + 1], smaller, torch.ones(k + 1).bool())


def test_t5_topk_is_exact_when_no_more_outputs_exist():
    scores = torch.tensor([[1.0, 0.9, -math.inf], [1.0, 0.9, 0.8]])
    valid = scores > -math.inf
    assert topk_is_exact(scores, 5.0, valid).tolist() == [True, False]


@given(score_lists(spreads=("normal", "ties")))
def test_t10_small_mu_is_the_maximum_and_large_mu_is_uniform(drawn):
    z, _ = drawn
    m = len(z)
    for mu in (1e-8, 1e-30, 1e-300):
        value, u = max_l2(z, mu)
        assert_close(value, z.max())
        assert_close((u * z).sum(), z.max())
    assert_close(max_entropy(z, 1e-10), z.max())
    leaf = z.clone().requires_grad_()
    (soft,) = torch.autograd.grad(max_entropy(leaf, 1e9), leaf)
    for weights in (max_l2(z, 1e9)[1], soft):
        assert_close(weights, torch.full_like(z, 1 / m), rtol=0, atol=1e-8)


@given(score_lists(min_size=2), mus, st.integers(1, 5))
def test_scores_that_are_not_valid_are_as_if_absent(drawn, mu, index):
    z, generator = drawn
    keep = torch.rand(z.shape, generator=generator) < 0.6
    keep[index % len(z)] = True
    expected, weights = max_l2(z[keep], mu)
    for filled in (-math.inf, 1e30, math.nan):
        padded = z.masked_fill(~keep, filled).requires_grad_()
        value, u = max_l2(padded, mu, keep)
        assert_close(value, expected, rtol=0, atol=1e-12)
        assert_close(u[keep], weights, rtol=0, atol=1e-12)
        assert (u[~keep] == 0).all()
        (gradient,) = torch.autograd.grad(value, padded)
        assert_close(gradient, u.detach())


def test_forbidden_scores_get_no_weight_and_no_nan():
    z = torch.tensor([1.0, -math.inf, 0.5], dtype=F64, requires_grad=True)
    for value in (max_l2(z, 2.0)[0], max_entropy(z, 2.0)):
        (gradient,) = torch.autograd.grad(value, z)
        assert value.isfinite()
        assert gradient.isfinite().all()
        assert gradient[1] == 0


def test_batches_keep_their_axes():
    z = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0), dtype=F64)
    value, u = max_l2(z, 0.7)
    assert value.shape == (2, 3)
    assert u.shape == (2, 3, 4)
    assert max_entropy(z, 0.7).shape == (2, 3)
    assert_close(value[1, 2], max_l2(z[1, 2], 0.7)[0])
    assert_close(max_entropy(z, 0.7)[1, 2], max_entropy(z[1, 2], 0.7))


def test_in_float32_the_value_survives_large_scores():
    z = torch.tensor([1e6, 1e6 - 0.25, 1e6 - 3])
    value, u = max_l2(z, 1.0)
    assert_close(u, max_l2(z.double(), 1.0)[1].float(), rtol=0, atol=1e-6)
    assert_close(value.double(), max_l2(z.double(), 1.0)[0], rtol=1e-6, atol=0)
