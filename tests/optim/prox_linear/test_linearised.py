"""The linearised model: against explicit Jacobians, for many kinds of modules."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from smoothsp.losses import L2, StructuralHinge
from smoothsp.losses.functional import max_l2
from smoothsp.optim import Linearised
from smoothsp.oracles import Chain, Multiclass
from tests.optim.networks import (
    MODELS,
    REVERSE_ONLY,
    WORDS,
    Apply,
    CubeOnce,
    layers,
)


def build(name):
    torch.manual_seed(0)
    make, given = MODELS[name]
    model = make().double()
    x = given if isinstance(given, torch.Tensor) else torch.randn(given).double()
    return model, x


def jacobian(model, x):
    """Outputs and explicit Jacobian, by one reverse pass for each output."""
    torch.manual_seed(1)
    params = list(model.parameters())
    outputs = model(x).flatten()
    rows = [
        torch.autograd.grad(one, params, retain_graph=True, allow_unused=True)
        for one in outputs
    ]
    filled = [
        torch.cat(
            [
                (torch.zeros_like(p) if g is None else g).flatten()
                for p, g in zip(params, row, strict=True)
            ]
        )
        for row in rows
    ]
    return outputs.detach(), torch.stack(filled)


@pytest.mark.parametrize("name", MODELS)
def test_outputs_and_gradient_are_those_of_the_jacobian(name):
    model, x = build(name)
    values, J = jacobian(copy.deepcopy(model), x)
    linear = Linearised(model)
    with torch.no_grad():
        for u in linear.variables:
            u.normal_()
    d = torch.cat([u.detach().flatten() for u in linear.variables])
    torch.manual_seed(1)
    outputs = linear(x)
    assert_close(outputs.detach().flatten(), values + J @ d)
    cotangent = torch.randn_like(outputs)
    (outputs * cotangent).sum().backward()
    pulled = torch.cat(
        [
            (torch.zeros_like(u) if u.grad is None else u.grad).flatten()
            for u in linear.variables
        ]
    )
    assert_close(pulled, J.T @ cotangent.flatten())
    assert linear._uses_double_backward == (name in REVERSE_ONLY)
    evaluating = Linearised(model)
    with torch.no_grad():
        for u, own in zip(evaluating.variables, linear.variables, strict=True):
            u.copy_(own)
        torch.manual_seed(1)
        assert_close(evaluating(x), outputs.detach())
    assert evaluating._uses_double_backward == (name in REVERSE_ONLY)


def test_loss_of_a_linearised_chain_is_that_of_linearised_scores():
    """Potentials are linearised part by part; outputs' scores are linear in them."""

    class Potentials(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden, self.out = nn.Linear(3, 4), nn.Linear(4, 2)
            self.transitions = nn.Parameter(torch.randn(2, 2))

        def forward(self, x):
            scores = self.out(nn.functional.elu(self.hidden(x)))
            return {"emissions": scores, "transitions": self.transitions.sin()}

    torch.manual_seed(0)
    model = Potentials().double()
    x, tags = torch.randn(1, 3, 3).double(), torch.tensor([[0, 1, 1]])
    linear = Linearised(model)
    with torch.no_grad():
        for u in linear.variables:
            u.normal_()
    loss = StructuralHinge(L2(1.0, 3))(Chain(**linear(x)), tags)
    loss.backward()

    every = torch.cartesian_prod(*[torch.arange(2)] * 3)

    def scores(params):
        found = torch.func.functional_call(model, params, (x,))
        emissions = found["emissions"][0, torch.arange(3), every].sum(1)
        return emissions + found["transitions"][every[:, :-1], every[:, 1:]].sum(1)

    w = {name: p.detach() for name, p in model.named_parameters()}
    J = torch.func.jacrev(scores)(w)
    rows = torch.cat([J[name].flatten(1) for name in linear.names], 1)
    d = torch.cat([u.detach().flatten() for u in linear.variables])
    z = (scores(w) + rows @ d).requires_grad_()
    gold = (every == tags).all(1).nonzero().item()
    augmented = z + (every != tags).sum(1) - z[gold]
    expected, _ = max_l2(augmented.topk(3).values, 1.0)
    (weights,) = torch.autograd.grad(expected, z)
    assert_close(loss.detach(), expected.detach())
    pulled = torch.cat([u.grad.flatten() for u in linear.variables])
    assert_close(pulled, rows.T @ weights)


def test_outputs_keep_their_structure_and_what_is_no_float():
    class Many(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(2.0))

        def forward(self, x, *, flag):
            mask = x > 0
            return {"scores": (self.scale**2 * x, mask), "fixed": x, "flag": flag}

    linear = Linearised(Many())
    with torch.no_grad():
        linear.variables[0].fill_(0.5)
    x = torch.tensor([1.0, -1.0])
    found = linear(x, flag=True)
    assert_close(found["scores"][0].detach(), (4 + 4 * 0.5) * x)
    assert torch.equal(found["scores"][1], x > 0)
    assert torch.equal(found["fixed"], x) and found["flag"] is True


def test_frozen_and_left_out_parameters_are_constants():
    model, x = build("elu")
    model[0].weight.requires_grad_(False)
    assert len(Linearised(model).names) == 3
    linear = Linearised(model, [model[2].bias])
    with torch.no_grad():
        linear.variables[0].fill_(1.0)
    assert_close(linear(x).detach(), model(x).detach() + 1)
    assert not list(linear.children())[1:]  # the model is not registered


def test_exact_mode_is_the_module_with_a_cheap_backward():
    model, x = build("dropout")
    linear = Linearised(model)
    linear.exact = True
    torch.manual_seed(3)
    outputs = linear(x)
    torch.manual_seed(3)
    assert_close(outputs.detach(), model(x).detach())
    outputs.sum().backward()
    assert all(p.grad is None for p in model.parameters())
    assert all(u.grad is None for u in linear.variables)


def test_message_names_the_module_without_derivatives():
    model = layers(nn.Linear(3, 4), layers(Apply(CubeOnce.apply)), nn.Linear(4, 2))
    with pytest.raises(RuntimeError, match=r"neither in 1\.0 \(Apply\): .*; replace"):
        Linearised(model)(torch.randn(2, 3))
    bag = layers(nn.EmbeddingBag(5, 3), nn.Linear(3, 2))
    with pytest.raises(RuntimeError, match=r"neither in 0 \(EmbeddingBag\)"):
        Linearised(bag)(WORDS)
    bag[0].requires_grad_(False)
    Linearised(bag)(WORDS)


def test_messages():
    class Structured(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.zeros(2, 3))

        def forward(self):
            return Multiclass(self.w)

    with pytest.raises(TypeError, match=r"return tensors, .* got a Multiclass; build"):
        Linearised(Structured())()
    with pytest.raises(ValueError, match="parameters that require grad, got none"):
        Linearised(nn.ReLU())
    with pytest.raises(ValueError, match="parameters of the model, got 1"):
        Linearised(nn.Linear(2, 2), [torch.zeros(1)])
