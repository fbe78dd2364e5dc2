"""The prox-linear loop on networks under a smoothed hinge."""

from functools import partial

import pytest
import torch
from torch import nn

from smoothsp.losses import L2, StructuralHinge
from smoothsp.optim import ProxLinear
from smoothsp.oracles import Multiclass
from tests.optim.problems import seeded
from tests.sweeps import thinned


def candidates():
    """Images' candidates with features of 6 x 2 x 2, and the best one of each."""
    generator = seeded(2)
    x = torch.randn(12, 5, 6, 2, 2, generator=generator)
    y = (x[:, :, 0].abs() - x[:, :, 1].abs()).sum((2, 3)).argmax(1)
    return list(zip(x.split(3), y.split(3), strict=True))


class Head(nn.Module):
    """The paper's nonlinear score: 1x1 convolution, ELU, linear."""

    def __init__(self):
        super().__init__()
        self.score = nn.Sequential(
            nn.Conv2d(6, 8, 1, bias=False), nn.ELU(), nn.Flatten(),
            nn.Linear(32, 1, bias=False),
        )  # fmt: skip

    def forward(self, x):
        return self.score(x.flatten(0, 1)).reshape(x.shape[:2])


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(24, 6, bidirectional=True, batch_first=True)
        self.out = nn.Linear(12, 1)

    def forward(self, x):
        return self.out(self.lstm(x.flatten(2))[0])[..., 0]


def localiser(network=Head):
    torch.manual_seed(3)
    model = network()
    hinge = StructuralHinge(L2(mu=1.0, k=3))
    optimizer = ProxLinear(
        model, 10.0, 1e-3, smoothness=4.0, smoothing=hinge.smoothing,
        generator=seeded(),
    )  # fmt: skip

    def closure(batch):
        loss = hinge(Multiclass(optimizer.model(batch[0])), batch[1])
        loss.backward()
        return loss

    def objective(batch):
        return StructuralHinge()(Multiclass(optimizer.model(batch[0])), batch[1])

    return model, optimizer, closure, objective


@pytest.mark.parametrize("network", thinned([Head, Recurrent], 2))
def test_trains_networks_under_a_smoothed_hinge(network):
    batches = candidates()
    model, optimizer, closure, objective = localiser(network)
    values = [optimizer.step(closure, batches, objective) for _ in range(2)]
    assert values == sorted(values, reverse=True)
    assert values[-1] < 0.95 * values[0]
    x, y = (torch.cat(part) for part in zip(*batches, strict=True))
    loss = StructuralHinge()(Multiclass(model(x)), y).item()
    norm = sum(p.square().sum().item() for p in model.parameters())
    assert values[-1] == pytest.approx(loss + 1e-3 / 2 * norm, rel=1e-5)


def test_frozen_parameters_are_constants():
    torch.manual_seed(3)
    model = Head()
    model.score[0].weight.requires_grad_(False)
    frozen, last = (model.score[i].weight.detach().clone() for i in (0, 3))
    optimizer = ProxLinear(model, 10.0, inner=partial(torch.optim.SGD, lr=0.1))

    def closure(batch):
        loss = StructuralHinge()(Multiclass(optimizer.model(batch[0])), batch[1])
        loss.backward()
        return loss

    optimizer.step(closure, candidates())
    assert torch.equal(model.score[0].weight, frozen)
    assert not torch.equal(model.score[3].weight, last)
