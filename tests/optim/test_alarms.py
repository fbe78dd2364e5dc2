"""Optimizers stop with a sentence where a structure refuses the scores they lead to."""

import math

import pytest
import torch
from torch import nn

from smoothsp.losses import StructuralHinge
from smoothsp.optim import SVRG, CasimirSVRG, ProxLinear
from smoothsp.oracles import Multiclass
from tests.optim.problems import seeded

HINGE = StructuralHinge()


def classes():
    x = torch.randn(40, 4, generator=seeded())
    return list(zip(x.split(10), x[:, :3].argmax(1).split(10), strict=True))


def closure_of(model):
    def closure(batch):
        loss = HINGE(Multiclass(model(batch[0])), batch[1])
        loss.backward()
        return loss

    return closure


@pytest.mark.parametrize("kind", [SVRG, CasimirSVRG])
@pytest.mark.parametrize("long", [1e15, 1e30])
def test_scores_that_a_structure_refuses_are_named_by_the_steps(kind, long):
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    more = {} if kind is SVRG else {"kappa": 0.1}
    optimizer = kind(model.parameters(), long, backtrack=None, **more)
    message = rf"{kind.__name__}: expected .* steps of length {long:.3g}.*; lower lr"
    with pytest.raises(RuntimeError, match=message.replace("+", r"\+")) as found:
        for _ in range(3):
            optimizer.epoch(closure_of(model), classes())
    assert "parameters below 10000" in str(found.value)
    assert "expected numbers below 2^40" in str(found.value.__cause__)


def test_data_that_a_structure_refuses_are_not_blamed_on_steps():
    model = nn.Linear(4, 3)
    broken = [(torch.full((10, 4), math.nan), torch.zeros(10, dtype=torch.long))]
    with pytest.raises(ValueError, match=r"scores: expected numbers below 2\^40"):
        SVRG(model.parameters(), 0.1).snapshot(closure_of(model), broken)


def prox_linear(w, **options):
    model = nn.Linear(1, 1, bias=False)
    model.weight.data.fill_(w)
    optimizer = ProxLinear(model, lr=0.25, smoothness=1.0, epochs=1, **options)

    def closure(x):
        loss = optimizer.model(x).square().mean()
        loss.backward()
        return loss

    return optimizer, closure


def test_prox_linear_refuses_an_objective_that_is_not_finite():
    optimizer, closure = prox_linear(math.nan)
    message = (
        "ProxLinear: expected a finite objective, got nan in outer iteration 1 with "
        "steps of length 0.25; lower lr, or raise smoothness"
    )
    with pytest.raises(RuntimeError, match=message):
        optimizer.step(closure, [torch.ones(2, 1)])


@pytest.mark.parametrize("accept", ["always", "if-better"])
def test_prox_linear_refuses_an_objective_that_has_grown_tenfold(accept):
    optimizer, closure = prox_linear(1.0, accept=accept)
    batches = [torch.ones(2, 1)]

    def worse(x):
        # as seen after the first iteration's step
        return closure(x) * (20.0 if calls.append(0) or len(calls) > 1 else 1.0)

    calls = []
    if accept == "if-better":
        assert optimizer.step(closure, batches, worse) == pytest.approx(1.0)
        assert not optimizer.progress["accepted"]
        return
    with pytest.raises(RuntimeError, match="expected an objective below 10, got"):
        optimizer.step(closure, batches, worse)
    assert optimizer.model.linearisation_point[0].item() == 1.0


def test_prox_linear_names_its_steps_where_a_structure_refuses_scores():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ELU(), nn.Linear(8, 3))
    optimizer = ProxLinear(model, lr=1e20, smoothness=1e-20, epochs=1, accept="always")
    with pytest.raises(RuntimeError, match="lower lr") as found:
        for _ in range(3):
            optimizer.step(closure_of(optimizer.model), classes())
    assert "parameters below 10000" in str(found.value)
