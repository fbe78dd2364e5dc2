"""After ``model.double()`` or ``.to()`` the state of an optimizer follows."""

import itertools

import pytest
import torch
from torch import nn

from smoothsp.optim import SVRG, CasimirSVRG, ProxLinear
from tests.optim.problems import seeded
from tests.sweeps import thinned

X = torch.randn(24, 3, generator=seeded())
BUILDERS = {
    "svrg": lambda p: SVRG(p, 0.05, 0.01, generator=seeded()),
    "casimir": lambda p: CasimirSVRG(
        p, smoothness=8.0, kappa=0.3, weight_decay=0.01, generator=seeded()
    ),
    "relative": lambda p: CasimirSVRG(
        p, smoothness=8.0, kappa=0.3, stop="relative", generator=seeded()
    ),
}


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def closure_of(model, network):
    def closure(batch):
        batch = batch.to(next(network.parameters()).dtype)
        loss = (model(batch)[:, 0] - batch[:, 0] * batch[:, 1]).square().mean()
        loss.backward()
        return loss

    return closure


@pytest.mark.parametrize(
    ("name", "within"), thinned(itertools.product(BUILDERS, [False, True]), 3)
)
def test_a_run_goes_on_in_float64(name, within):
    ends = []
    for moved in (False, True):
        model = network() if moved else network().double()
        optimizer = BUILDERS[name](model.parameters())
        closure, batches = closure_of(model, model), list(X.split(4))
        for _ in range(2):
            optimizer.epoch(closure, batches)
        optimizer.snapshot(closure, batches)
        for number, batch in enumerate(batches):
            if moved and within and number == 3:
                model.double()
            optimizer.step(lambda batch=batch, closure=closure: closure(batch))
        optimizer.end_epoch()
        if moved:
            model.double()
        losses = [optimizer.epoch(closure, batches) for _ in range(2)]
        kinds = {x.dtype for kept in optimizer.state.values() for x in kept.values()}
        assert kinds == {torch.float64}
        ends.append(losses)
    assert ends[0] == pytest.approx(ends[1], rel=1e-4)


def test_prox_linear_goes_on_in_float64():
    ends = []
    for moved in (False, True):
        model = network() if moved else network().double()
        optimizer = ProxLinear(model, 2.0, 0.01, smoothness=8.0, generator=seeded())
        closure, batches = closure_of(optimizer.model, model), list(X.split(4))
        values = [optimizer.step(closure, batches)]
        if moved:
            model.double()
        values.append(optimizer.step(closure, batches))
        assert {p.dtype for p in model.parameters()} == {torch.float64}
        assert {u.dtype for u in optimizer.model.variables} == {torch.float64}
        ends.append(values)
    assert ends[0] == pytest.approx(ends[1], rel=1e-4)
