"""Optimizers on a chain: a resumed run equals an uninterrupted one."""

import io
import itertools

import pytest
import torch
from torch import nn

from smoothsp.losses import L2, StructuralHinge
from smoothsp.optim import SVRG, CasimirSVRG, ProxLinear
from smoothsp.oracles import Chain
from tests.optim.problems import seeded

VARIANTS = {
    "svrg": lambda p, s: SVRG(p, 0.05, 0.01, generator=seeded()),
    "const": lambda p, s: CasimirSVRG.const(
        p,
        smoothness=8.0,
        num_batches=6,
        weight_decay=0.01,
        smoothing=s,
        generator=seeded(),
    ),
    "adapt": lambda p, s: CasimirSVRG.adapt(
        p,
        0.05,
        weight_decay=0.01,
        smoothing=s,
        warm_start="extrapolation",
        generator=seeded(),
    ),
    "relative": lambda p, s: CasimirSVRG(
        p,
        smoothness=8.0,
        kappa=0.5,
        smoothing=s,
        decreasing=True,
        stop="relative",
        warm_start="prev-iterate",
        generator=seeded(),
    ),
}


def tagging():
    generator = seeded(7)
    x = torch.randn(24, 5, 4, generator=generator, dtype=torch.float64)
    tags = x[..., :3].argmax(-1)
    return list(zip(x.split(4), tags.split(4), strict=True))


def tagger(variant):
    torch.manual_seed(1)
    model = nn.ModuleList([nn.Linear(4, 3), nn.Linear(3, 3, bias=False)]).double()
    hinge = StructuralHinge(L2(mu=1.0, k=3))
    optimizer = VARIANTS[variant](model.parameters(), hinge.smoothing)

    def closure(batch):
        chain = Chain(model[0](batch[0]), model[1].weight)
        loss = hinge(chain, batch[1])
        loss.backward()
        return loss

    return model, hinge, optimizer, closure


def on_disk(state):
    """What torch.save and the restricted torch.load make of it."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("variant", VARIANTS)
def test_resumed_run_equals_uninterrupted_bit_for_bit(variant):
    batches = tagging()
    model, hinge, optimizer, closure = tagger(variant)
    for _ in range(3):
        optimizer.epoch(closure, batches)
    states = on_disk([model.state_dict(), optimizer.state_dict()])
    for _ in range(4):
        optimizer.epoch(closure, batches)

    again, other_hinge, resumed, other = tagger(variant)
    again.load_state_dict(states[0])
    resumed.load_state_dict(states[1])
    for _ in range(4):
        resumed.epoch(other, batches)
    same = zip(model.parameters(), again.parameters(), strict=True)
    assert all(torch.equal(p, q) for p, q in same)
    assert resumed.progress == optimizer.progress
    assert resumed.oracle_calls == optimizer.oracle_calls
    assert hinge.smoothing.mu == other_hinge.smoothing.mu


@pytest.mark.parametrize("variant", VARIANTS)
def test_run_resumed_in_the_middle_of_an_epoch(variant):
    batches = tagging()
    model, _, optimizer, closure = tagger(variant)
    optimizer.epoch(closure, batches)
    optimizer.snapshot(closure, batches)
    for batch in batches[:3]:
        optimizer.step(lambda batch=batch: closure(batch))
    again, _, resumed, other = tagger(variant)
    again.load_state_dict(model.state_dict())
    resumed.load_state_dict(optimizer.state_dict())
    for one, call in ((optimizer, closure), (resumed, other)):
        for batch in batches[3:]:
            one.step(lambda batch=batch, call=call: call(batch))
        one.end_epoch()
        one.epoch(call, batches)
    same = zip(model.parameters(), again.parameters(), strict=True)
    assert all(torch.equal(p, q) for p, q in same)


@pytest.mark.parametrize("variant", VARIANTS)
def test_trains_a_chain_with_a_smoothed_hinge(variant):
    batches = tagging()
    _, _, optimizer, closure = tagger(variant)
    losses = [optimizer.epoch(closure, batches) for _ in range(15)]
    assert losses[-1] < 0.5 * losses[0]


def test_snapshot_steps_end_epoch_are_an_epoch():
    batches = tagging()
    model, _, optimizer, closure = tagger("const")
    optimizer.epoch(closure, batches)
    again, _, other, call = tagger("const")
    drawn = torch.randint(len(batches), (len(batches),), generator=other.generator)
    other.snapshot(call, batches)
    for i in drawn.tolist():
        other.step(lambda i=i: call(batches[i]))
    other.snapshot(call, batches)  # ends the epoch before
    assert other.progress["outer"] == 1
    iterates = [other.state[p]["iterate"] for p in again.parameters()]
    same = zip(model.parameters(), iterates, strict=True)
    assert all(torch.equal(p, w) for p, w in same)


@pytest.mark.parametrize("variant", ["const", "adapt", "relative"])
def test_states_of_earlier_versions_load(variant):
    """They know neither restarts nor what is proved."""
    batches = tagging()
    model, _, optimizer, closure = tagger(variant)
    for _ in range(2):
        optimizer.epoch(closure, batches)
    state = optimizer.state_dict()
    for new in ("proved", "restarts", "start_objective", "start_mu", "epoch_steps"):
        del state["progress"][new]
    for new in ("terms", "num_batches", "weight_decay"):
        del state["progress"][new]
    for group in state["param_groups"]:
        del group["first_lr"]
        group["derived_lr"] = group["derived_lr"] is not None
    again, _, resumed, other = tagger(variant)
    again.load_state_dict(model.state_dict())
    resumed.load_state_dict(state)
    assert not resumed.progress["proved"]
    for _ in range(3):
        optimizer.epoch(closure, batches)
        resumed.epoch(other, batches)
    same = zip(model.parameters(), again.parameters(), strict=True)
    assert all(torch.equal(p, q) for p, q in same)


def network():
    """A network under prox-linear, with the tolerance and the smoothing that change."""
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 3)).double()
    hinge = StructuralHinge(L2(mu=1.0, k=3))
    optimizer = ProxLinear(
        model,
        0.5,
        0.01,
        smoothness=8.0,
        smoothing=hinge.smoothing,
        epochs=2,
        tolerance=5.0,
        generator=seeded(),
    )
    zeros = torch.zeros(3, 3, dtype=torch.float64)

    def closure(batch):
        loss = hinge(Chain(optimizer.model(batch[0]), zeros), batch[1])
        loss.backward()
        return loss

    return model, optimizer, closure


def test_prox_linear_resumed_from_each_of_40_steps():
    """The next step of each is the next one of the run, and so are all that follow."""
    batches = tagging()[:1]
    model, optimizer, closure = network()
    states = []
    for _ in range(41):
        states.append(on_disk([model.state_dict(), optimizer.state_dict()]))
        optimizer.step(closure, batches)
    assert optimizer.progress["objective"] < 0.9 * optimizer.progress["first_objective"]
    assert {states[k][1]["progress"]["epochs"] for k in range(1, 41)} == {1, 2}
    for (weights, state), after in itertools.pairwise(states):
        again, resumed, other = network()
        again.load_state_dict(weights)
        resumed.load_state_dict(state)
        resumed.step(other, batches)
        assert same([again.state_dict(), resumed.state_dict()], after)


def same(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other
