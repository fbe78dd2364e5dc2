"""A question in one compiled call is answered as by the ops it stands for."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from smoothsp.oracles import Chain
from smoothsp.oracles._inference.positions import Positions
from tests.instances.strategies import (
    chains,
    draw_outputs,
    generators,
    structure,
)


def leaves(case):
    """The potentials as leaves that want gradients, and the chain of them."""
    given_ = {k: v.clone().requires_grad_() for k, v in case.potentials().items()}
    return list(given_.values()), structure(case.replace(**given_))


def gradients(value, inputs):
    return torch.autograd.grad(value, inputs, materialize_grads=True)


WEIGHTS = st.sampled_from(["of rows", -0.3])


def weight_of(weight, case):
    return torch.linspace(-1, 2, len(case)).double() if weight == "of rows" else weight


@given(chains(), generators(), WEIGHTS)
def test_log_likelihood_is_the_weighted_sum(case, generator, weight):
    y, weight = draw_outputs(case, generator), weight_of(weight, case)
    inputs, built = leaves(case)
    found, expected = built.log_likelihood(y, weight), built.log_prob(y) * weight
    assert_close(found, expected.sum(), rtol=1e-12, atol=1e-12)
    slopes = gradients(3 * found, inputs), gradients(3 * expected.sum(), inputs)
    for a, b in zip(*slopes, strict=True):
        assert_close(a, b, rtol=1e-9, atol=1e-9)


@given(chains(), generators(), WEIGHTS, st.sampled_from([0.0, 0.5, 2.5]))
def test_violation_is_the_weighted_sum(case, generator, weight, scale):
    y, weight = draw_outputs(case, generator), weight_of(weight, case)
    inputs, built = leaves(case)
    costly = built.augment(built.hamming(y) * scale)
    (value, _), found = costly.decode(), built.violation(y, weight, scale)
    expected = (value - built.score(y)) * weight
    assert_close(found, expected.sum(), rtol=1e-9, atol=1e-9)
    assert built.violation(y, 1.0, scale) >= 0
    values, _, valid = costly.decode_topk(2)
    if len(case) and (valid[:, 1] & (values.diff(dim=1)[:, 0] > -1e-6)).any():
        return  # of outputs that tie either has a gradient
    slopes = gradients(3 * found, inputs), gradients(3 * expected.sum(), inputs)
    for a, b in zip(*slopes, strict=True):
        assert_close(a, b, rtol=1e-12, atol=1e-12)


@given(chains(spreads=("normal",), forbid=False, poison=False), generators())
def test_second_derivatives_of_log_likelihood(case, generator):
    y = draw_outputs(case, generator)
    inputs, built = leaves(case)

    def second(value):
        first = torch.autograd.grad(
            value, inputs, create_graph=True, materialize_grads=True
        )
        total = sum(
            (g * torch.linspace(1, 2, g.numel()).view(g.shape)).sum() for g in first
        )
        return gradients(total, inputs)

    found = second(built.log_likelihood(y, 0.5))
    expected = second((built.log_prob(y) * 0.5).sum())
    for a, b in zip(found, expected, strict=True):
        assert_close(a, b, rtol=1e-9, atol=1e-9)


@given(chains())
def test_decoding_without_gradients_attains_the_same_value(case):
    _, built = leaves(case)
    value, _ = built.decode()
    with torch.no_grad():
        found, y = built.decode()
    assert torch.equal(found, value)
    assert torch.equal(found, built.score(y).detach())


@given(st.integers(0, 9), st.integers(1, 9), generators())
def test_positions_of_a_mask_are_the_true_ones_in_order(B, T, generator):
    mask = torch.rand(B, T, generator=generator) < 0.6
    found = Positions.from_mask(mask)
    assert torch.equal(found.lengths, mask.sum(1))
    assert torch.equal(found.mask, mask)
    for row, steps, n in zip(mask, found.steps, found.lengths, strict=True):
        assert torch.equal(steps[:n], row.nonzero().squeeze(1))
        assert torch.equal(steps.sort().values, torch.arange(T))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_row_too_wide_for_its_dtype_is_not_lost(dtype):
    emissions = torch.zeros(6, 40, 3, dtype=dtype)
    emissions[4, ::2] = torch.tensor([0.0, 3000.0, -3000.0], dtype=dtype)
    transitions = torch.tensor([[0.0, -2000, 0], [-2000, 0, 0], [0, 0, 0]], dtype=dtype)
    y = torch.zeros(6, 40, dtype=torch.int64)
    chain = Chain(emissions, transitions)
    expected = chain.log_prob(y).double().sum()
    assert expected < -1e4
    assert_close(chain.log_likelihood(y).double(), expected, rtol=1e-6, atol=0)


def test_labels_out_of_range_are_named():
    chain = Chain(torch.zeros(5, 4, 3), torch.zeros(3, 3), lengths=torch.full((5,), 3))
    y = torch.zeros(5, 4, dtype=torch.int64)
    y[:, 3] = 99
    chain.log_likelihood(y)
    chain.violation(y)
    y[3, 1] = 3
    for ask in (chain.log_likelihood, chain.violation):
        with pytest.raises(ValueError, match=r"got 3 at row 3, step 1"):
            ask(y)


def test_a_negative_cost_is_refused():
    built = Chain(torch.zeros(5, 4, 3), torch.zeros(3, 3))
    y = torch.zeros(5, 4, dtype=torch.int64)
    with pytest.raises(ValueError, match="cost_scale: "):
        built.violation(y, cost_scale=-1)


def test_weights_of_every_kind_give_one_result():
    chain = Chain(torch.randn(6, 4, 3), torch.randn(3, 3))
    y = torch.zeros(6, 4, dtype=torch.int64)
    number = chain.log_likelihood(y, 0.5)
    for weight in (
        torch.full((6,), 0.5),
        torch.full((6,), 0.5).double(),
        torch.tensor(0.5),
        torch.full((6,), 0.5, requires_grad=True),
    ):
        assert_close(chain.log_likelihood(y, weight), number)
    assert chain.log_likelihood(y, weight).requires_grad


def test_potentials_changed_in_place():
    emissions = torch.randn(6, 4, 3, requires_grad=True)
    scores = emissions * 1
    y = torch.zeros(6, 4).long()
    move = torch.randn(3, 3)
    (expected,) = torch.autograd.grad(
        Chain(emissions, move).log_likelihood(y), emissions
    )
    loss = Chain(scores, move).log_likelihood(y)
    with torch.no_grad():
        scores.zero_()
    # those of the loss that was computed; what has to be computed anew cannot be
    (found,) = torch.autograd.grad(loss, scores, retain_graph=True)
    assert_close(found, expected)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(loss, scores)


@pytest.mark.parametrize("question", ["log_likelihood", "violation"])
def test_a_graph_that_is_kept_gives_the_same_gradients_again(question):
    torch.manual_seed(0)
    emissions = torch.randn(3, 4, 5, requires_grad=True)
    transitions = torch.randn(5, 5)
    y = torch.randint(5, (3, 4))
    value = getattr(Chain(emissions, transitions), question)(y)
    (first,) = torch.autograd.grad(value, emissions, retain_graph=True)
    kept = first.clone()
    first.mul_(0)  # what was given away is the caller's
    (second,) = torch.autograd.grad(-2 * value, emissions, retain_graph=True)
    assert_close(second, -2 * kept)
    value.backward()
    assert_close(emissions.grad, kept)
    assert kept.abs().max() > 0.1
