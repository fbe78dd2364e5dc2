"""R and the spectral norm against all outputs listed, and what they bound."""

import itertools
import math
from functools import partial

import pytest
import torch
from torch import nn

from smoothsp.losses import (
    L2,
    Entropy,
    StructuralHinge,
    constants,
    smoothness_constants,
)
from smoothsp.optim import estimate_smoothness
from smoothsp.oracles import Chain, Multiclass
from tests.sweeps import thinned

T, S = 3, 3


def chain_network(kind):
    torch.manual_seed(2)
    x = torch.randn(1, T, 4, dtype=torch.float64)
    body = nn.Linear(4, S)
    if kind == "network":
        body = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, S))
    model = nn.ModuleList([body.double(), nn.Linear(S, S, bias=False).double()])
    y = torch.randint(S, (1, T))
    return model, lambda: (model[0](x), model[1].weight), y


def rows(model, potentials, structure, y, outputs):
    """``a_y``, one row an output, by the gradient of each score."""

    def gradient(output):
        score = structure(*potentials()).score(output)
        parts = torch.autograd.grad(score, list(model.parameters()), allow_unused=True)
        return torch.cat(
            [
                (torch.zeros_like(p) if g is None else g).flatten()
                for g, p in zip(parts, model.parameters(), strict=True)
            ]
        )

    gold = gradient(y)
    return torch.stack([gradient(one) - gold for one in outputs])


EVERY = [torch.tensor([one]) for one in itertools.product(range(S), repeat=T)]


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("kind", ["linear", "network"])
def test_of_a_chain_against_all_its_outputs(kind, listed, monkeypatch):
    model, potentials, y = chain_network(kind)
    A = rows(model, potentials, Chain, y, EVERY)
    if not listed:
        monkeypatch.setattr(constants, "_MAX_ENUMERATED", 1)
    found = smoothness_constants(Chain, potentials(), y, model.parameters())
    R = float(A.norm(dim=1).max())
    assert found.exact is listed
    assert pytest.approx(R, rel=1e-9) == found.R  # the search finds it here
    assert R * (1 - 1e-9) <= found.R_bound <= (R * (1 + 1e-9) if listed else 3 * R)
    spectral = float(torch.linalg.matrix_norm(A, 2)) ** 2
    assert math.exp(found.log_spectral) == pytest.approx(spectral, rel=1e-4)
    assert found.log_count == pytest.approx(T * math.log(S))


@pytest.mark.parametrize("mask", [-math.inf, -1e13])
def test_forbidden_outputs_do_not_count(mask):
    model, potentials, y = chain_network("linear")
    forbidden = torch.zeros(S, dtype=torch.float64)
    forbidden[(y[0, 0] + 1) % S] = mask
    structure = partial(Chain, start=forbidden)
    outputs = [one for one in EVERY if forbidden[one[0, 0]] == 0]
    A = rows(model, potentials, structure, y, outputs)
    found = smoothness_constants(structure, potentials(), y, model.parameters())
    assert pytest.approx(float(A.norm(dim=1).max())) == found.R
    assert found.log_count == pytest.approx(math.log(len(outputs)))

    emissions, transitions = potentials()
    emissions = emissions.masked_fill(torch.arange(S) == (y[0, 0] + 1) % S, mask)
    found = smoothness_constants(Chain, (emissions, transitions), y, model.parameters())
    assert found.log_count == pytest.approx(T * math.log(S - 1))


def test_of_classes_and_with_fixed_scores():
    model = nn.Linear(4, 5).double()
    x = torch.randn(1, 4, dtype=torch.float64, generator=torch.Generator())
    y = torch.tensor([2])
    found = smoothness_constants(Multiclass, model(x), y, model.parameters())
    square = 2 * float(x.square().sum() + 1)  # with the bias
    assert found.A(Entropy(0.3)) == pytest.approx(square)
    # a_y is e_y - e_2 times (x, 1): the largest eigenvalue is that of 4 such rows
    assert math.exp(found.log_spectral) == pytest.approx(square / 2 * 5, rel=1e-6)
    assert found.A(L2(1.0, 2)) == pytest.approx(2 * square)
    assert found.A(L2(1.0, 5)) == pytest.approx(square / 2 * 5, rel=1e-6)
    assert found.D(Entropy(1.0)) == pytest.approx(math.log(5))
    assert found.D(L2(1.0, 2)) == pytest.approx(1 / 4)
    assert found.D(L2(1.0, "exact")) == pytest.approx(2 / 5)


@pytest.mark.parametrize(
    "smoothing", thinned([Entropy(0.5), L2(0.5, 27), L2(0.5, "exact")], 3)
)
def test_gradients_of_the_loss_turn_no_faster(smoothing):
    """Between random weights, and where a line search looks."""
    model, potentials, y = chain_network("linear")
    found = smoothness_constants(Chain, potentials(), y, model.parameters())
    L, hinge = found.A(smoothing) / smoothing.mu, StructuralHinge(smoothing)

    def closure(_=None):
        model.zero_grad()
        loss = hinge(Chain(*potentials()), y)
        loss.backward()
        return loss

    params = list(model.parameters())
    last, generator = None, torch.Generator().manual_seed(0)
    for _ in range(12):
        with torch.no_grad():
            for p in params:
                p.add_(0.2 * torch.randn(p.shape, generator=generator).double())
        closure()
        w, g = (torch.cat([t.flatten() for t in ts]).detach().clone() for ts in (
            params, [p.grad for p in params]))  # fmt: skip
        if last is not None:
            assert (g - last[1]).norm() <= L * (w - last[0]).norm() * (1 + 1e-9)
        last = w, g
    assert estimate_smoothness(params, closure, range(32)) <= 2 * L


def test_messages():
    model, potentials, y = chain_network("linear")
    params = list(model.parameters())
    with pytest.raises(ValueError, match="y: "):
        smoothness_constants(
            Multiclass, nn.Linear(2, 3)(torch.ones(2, 2)), torch.tensor([0, 1]), params
        )
    with torch.no_grad():
        fixed = potentials()[0]
    with pytest.raises(ValueError, match="potentials: "):
        smoothness_constants(Multiclass, fixed[0], y[:, 0], params)

    class Only:
        def __init__(self, scores):
            self.scores = scores

    with pytest.raises(TypeError, match="structure: "):
        smoothness_constants(Only, potentials()[0], y, params)
