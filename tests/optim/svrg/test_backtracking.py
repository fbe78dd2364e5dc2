"""Steps that are too long: SVRG and Casimir return to the snapshot and halve them."""

import warnings

import pytest
import torch
from torch import nn

from smoothsp.optim import SVRG, CasimirSVRG
from tests.optim.problems import seeded
from tests.sweeps import thinned

BUILDERS = {
    "svrg": lambda p, lr, **options: SVRG(p, lr, generator=seeded(), **options),
    "casimir": lambda p, lr, **options: CasimirSVRG(
        p, lr, kappa=0.1, generator=seeded(), **options
    ),
}
every_kind = pytest.mark.parametrize("kind", thinned(BUILDERS, 2))


def training(kind, lr, epochs=12, **options):
    """Losses at the snapshots of a small network, and its optimizer."""
    torch.manual_seed(0)
    x = torch.randn(64, 6, dtype=torch.float64, generator=seeded())
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1)).double()
    optimizer = BUILDERS[kind](model.parameters(), lr, **options)

    def closure(batch):
        loss = (model(batch)[:, 0] - 4 * batch[:, 0] * batch[:, 1]).square().mean()
        loss.backward()
        return loss

    batches = x.split(4)
    return [optimizer.epoch(closure, batches) for _ in range(epochs)], optimizer


@every_kind
def test_a_rate_that_is_far_too_long_shrinks_until_the_network_learns(kind):
    with pytest.warns(RuntimeWarning, match="steps of length 3; .* are halved") as seen:
        losses, optimizer = training(kind, 3.0)
    assert len(seen) == 1
    halvings = optimizer.progress["halvings"]
    assert halvings >= 2
    assert optimizer.step_sizes == [3.0 * 0.5**halvings]
    assert losses[-1] < losses[0] / 2
    with pytest.raises(RuntimeError, match=r"SVRG: expected a .* lower lr"):
        training(kind, 3.0, backtrack=None)


@every_kind
def test_it_changes_no_bit_where_steps_are_short_enough(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        protected, _ = training(kind, 0.02, epochs=3)
    assert protected == training(kind, 0.02, epochs=3, backtrack=None)[0]


@pytest.mark.parametrize("averaging", [False, True])
def test_the_parameters_return_to_the_snapshot_and_the_average_begins_anew(averaging):
    w = nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    optimizer = SVRG([w], lr=1.5, averaging=averaging)

    def closure():
        loss = w.square().sum()
        loss.backward()
        return loss

    optimizer.snapshot(closure)
    seen = []
    with pytest.warns(RuntimeWarning, match="returns? to the snapshot"):
        for _ in range(4):
            optimizer.step(closure)
            seen.append(w.item())
    # each step of 1.5 multiplies by -2; rises 0, 3 and 15 are 6 on average
    assert seen == [-2.0, 4.0, 1.0, -0.5]
    optimizer.end_epoch()
    assert w.item() == -0.5


def test_a_loss_that_is_not_finite_within_an_epoch_returns_or_is_refused():
    for backtrack in (0.5, None):
        w = nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
        optimizer = SVRG([w], lr=1e200, backtrack=backtrack)

        def closure(w=w):
            loss = w.pow(4).sum()
            loss.backward()
            return loss

        optimizer.snapshot(closure)
        optimizer.step(closure)
        if backtrack is None:
            message = r"expected a finite loss, got inf after 0 epochs and 2 steps"
            with pytest.raises(RuntimeError, match=message):
                optimizer.step(closure)
        else:
            with pytest.warns(RuntimeWarning, match="return to the snapshot"):
                optimizer.step(closure)
            assert w.item() == 1.0 and optimizer.step_sizes == [0.5e200]


def test_a_loss_that_has_grown_tenfold_is_refused():
    w = nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    optimizer = SVRG([w], lr=0.1)

    def closure():
        loss = w.square().sum()
        loss.backward()
        return loss

    optimizer.snapshot(closure)
    with torch.no_grad():
        w.fill_(4.0)
    message = r"SVRG: expected a loss below 10, got 16 .* steps of length 0.1; lower lr"
    with pytest.raises(RuntimeError, match=message):
        optimizer.snapshot(closure)
