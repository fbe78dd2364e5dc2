"""One contract for all optimizers: a run that is cut goes on, bit for bit.

From each of its states, by epochs and by steps within them; after Ctrl-C in a closure;
and only on the parameters that it began with.
"""

import copy
import functools
import io
import itertools
import math
import warnings
from collections.abc import Callable
from operator import getitem
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, TensorDataset

from smoothsp.losses import L2, StructuralHinge
from smoothsp.optim import (
    SVRG,
    CasimirSVRG,
    ProxLinear,
    SubgradientLR,
    weighted_average,
)
from smoothsp.oracles import Chain, Multiclass
from tests import sweeps
from tests.optim.problems import Vector, ridge, seeded, squares
from tests.optim.prox_linear.test_prox_linear_networks import Head, candidates
from tests.sweeps import thinned

OPTIMIZERS = {
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


class Run(NamedTuple):
    """All that has a state, one unit of training, and the closure that it calls."""

    parts: list[Any]
    advance: Callable[[], Any]


def tagging():
    x = torch.randn(24, 5, 4, generator=seeded(7), dtype=torch.float64)
    tags = x[..., :3].argmax(-1)
    return list(zip(x.split(4), tags.split(4), strict=True))


def tagger(variant):
    torch.manual_seed(1)
    model = nn.ModuleList([nn.Linear(4, 3), nn.Linear(3, 3, bias=False)]).double()
    hinge = StructuralHinge(L2(mu=1.0, k=3))
    optimizer = OPTIMIZERS[variant](model.parameters(), hinge.smoothing)

    def closure(batch):
        loss = hinge(Chain(model[0](batch[0]), model[1].weight), batch[1])
        loss.backward()
        return loss

    return model, optimizer, closure


def epochs(variant, press):
    model, optimizer, closure = tagger(variant)
    batches = tagging()
    return Run([model, optimizer], lambda: optimizer.epoch(press(closure), batches))


def steps(model, optimizer, closure, batches, press):
    """One step of an epoch, whose snapshot and end belong to the first and the last."""

    def advance():
        progress = optimizer.progress
        if not progress["open"]:
            optimizer.snapshot(press(closure), batches)
        batch = batches[progress["step"] % len(batches)]
        optimizer.step(lambda: press(closure)(batch))
        if progress["step"] % len(batches) == 0:
            optimizer.end_epoch()

    return Run([model, optimizer], advance)


def batch_norm(press):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))

    def closure(batch):
        loss = network(batch).square().mean()
        loss.backward()
        return loss

    batches = list(torch.randn(4, 6, 3, generator=seeded()))
    return steps(network, SVRG(network.parameters(), 0.1), closure, batches, press)


def halved(kind, press):
    """Steps that are too long at first."""
    torch.manual_seed(0)
    x = torch.randn(64, 6, dtype=torch.float64, generator=seeded())
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1)).double()
    options = {} if kind is SVRG else {"kappa": 0.1}
    optimizer = kind(model.parameters(), 3.0, generator=seeded(), **options)

    def closure(batch):
        loss = (model(batch)[:, 0] - 4 * batch[:, 0] * batch[:, 1]).square().mean()
        loss.backward()
        return loss

    return Run([model, optimizer], lambda: optimizer.epoch(press(closure), x.split(4)))


def squared(press, scheduled=False):
    """Least squares, by a loader that shares the generator, or by a scheduler."""
    problem = ridge()
    model = Vector(torch.zeros(3, dtype=torch.float64))
    closure = press(squares(model.w))
    if scheduled:
        growing = {"smoothness": 8.0, "kappa": 0.5, "mu": 2.0, "decreasing": True}
        optimizer = CasimirSVRG(model.parameters(), generator=seeded(), **growing)
        scheduler = lr_scheduler.ExponentialLR(optimizer, 0.5)

        def advance():
            optimizer.epoch(closure, problem.batches(8))
            scheduler.step()

        return Run([model, optimizer, scheduler], advance)
    optimizer = SVRG(model.parameters(), 0.15, 0.1, generator=seeded())
    data = TensorDataset(problem.X, problem.y)
    load = functools.partial(DataLoader, data, 8, shuffle=True)
    return Run(
        [model, optimizer],
        lambda: optimizer.epoch(closure, load(generator=optimizer.generator)),
    )


def subgradient(press):
    """Steps of torch's SGD, with our step sizes and average."""
    problem = ridge()
    model = Vector(torch.zeros(3, dtype=torch.float64))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scheduler = SubgradientLR(optimizer, "inverse")
    average = AveragedModel(model, avg_fn=weighted_average)
    closure = press(squares(model.w))

    def advance():
        optimizer.zero_grad()
        closure((problem.X, problem.y))
        optimizer.step()
        scheduler.step()
        average.update_parameters(model)

    return Run([model, optimizer, scheduler, average], advance)


def prox_linear(press, structure=Chain):
    """A network, with the tolerance and the smoothing that change."""
    torch.manual_seed(2)
    hinge = StructuralHinge(L2(mu=1.0, k=3))
    options = {"smoothing": hinge.smoothing, "generator": seeded()}
    if structure is Chain:
        model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 3)).double()
        options |= {"smoothness": 8.0, "epochs": 2, "tolerance": 5.0}
        optimizer = ProxLinear(model, 0.5, 0.01, **options)
        further, batches = (torch.zeros(3, 3, dtype=torch.float64),), tagging()[:1]
    else:
        model = Head()
        optimizer = ProxLinear(model, 10.0, 1e-3, smoothness=4.0, **options)
        further, batches = (), candidates()

    def closure(batch):
        loss = hinge(structure(optimizer.model(batch[0]), *further), batch[1])
        loss.backward()
        return loss

    return Run([model, optimizer], lambda: optimizer.step(press(closure), batches))


RUNS = {
    **{name: functools.partial(epochs, name) for name in OPTIMIZERS},
    **{
        f"{name}, by steps": lambda press, name=name: steps(
            *tagger(name), tagging(), press
        )
        for name in ("svrg", "adapt")
    },
    "batch norm, by steps": batch_norm,
    "svrg, halved": functools.partial(halved, SVRG),
    "casimir, halved": functools.partial(halved, CasimirSVRG),
    "svrg, loader": squared,
    "casimir, scheduled": functools.partial(squared, scheduled=True),
    "subgradient": subgradient,
    "prox-linear": prox_linear,
    "prox-linear, candidates": functools.partial(prox_linear, structure=Multiclass),
}
# rows of whose kind another one runs
LONG = ("adapt, by steps", "casimir, halved", "prox-linear, candidates")
ROWS = [pytest.param(n, marks=pytest.mark.long) if n in LONG else n for n in RUNS]
UNITS = {"prox-linear": 12 + 28 * sweeps.long}


def states(run):
    """What torch.save and the restricted torch.load make of all states."""
    file = io.BytesIO()
    torch.save([part.state_dict() for part in run.parts], file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def load(run, saved):
    for part, state in zip(run.parts, copy.deepcopy(saved), strict=True):
        part.load_state_dict(state)


@functools.cache
def whole(name):
    """States before each unit and after the last."""
    run, found = RUNS[name](lambda closure: closure), []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* are halved")
        for _ in range(UNITS.get(name, 8 if sweeps.long else 4)):
            found.append(states(run))
            run.advance()
    return [*found, states(run)]


def same(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


@pytest.mark.filterwarnings("ignore:.* are halved")
@pytest.mark.parametrize("name", ROWS)
def test_the_next_unit_of_each_state_is_that_of_the_run(name):
    # plain runs take the first and the last of a few
    units = [*itertools.pairwise(whole(name))]
    for before, after in units[:: 1 if sweeps.long else len(units) - 1]:
        assert not same(before, after)
        again = RUNS[name](lambda closure: closure)
        load(again, before)
        again.advance()
        assert same(states(again), after)


@pytest.mark.filterwarnings("ignore:.* are halved")
@pytest.mark.parametrize("name", ROWS)
def test_ctrl_c_in_a_closure_leaves_an_optimizer_that_goes_on(name):
    found = whole(name)
    left = [0]

    def press(closure):
        def pressed(*batch):
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
            return closure(*batch)

        return pressed

    run = RUNS[name](press)
    for call in (1, 2, 5):
        load(run, found[1])
        left[0] = call
        try:
            run.advance()
        except KeyboardInterrupt:
            load(run, found[1])
            run.advance()
        assert same(states(run), found[2])


def places(state, path=()):
    """Paths to all entries of nested dictionaries and lists."""
    inner = {list: enumerate, dict: dict.items}.get(type(state), lambda _: ())
    for key, value in inner(state):
        yield (*path, key)
        yield from places(value, (*path, key))


def changed(value):
    """Values of the same and of other types."""
    found = [None, "text", [], {}, torch.zeros(7), 1j]
    if isinstance(value, torch.Tensor):
        found += [value[None], value.to(torch.int32), value.to(torch.complex64)]
        found.append(value.to("meta"))
        if value.is_floating_point():
            found += [value * torch.nan, value + torch.inf, value.reshape(-1)[:0]]
    elif type(value) in (int, float):
        found += [-1, -0.5, math.nan, math.inf, 10**30, 2**62, 1e300, 0, True]
    return found


def mutations(state):
    """States of which one entry was removed, added or replaced; and its place."""
    for path in places(state):
        for value in [ABSENT, *changed(functools.reduce(getitem, path, state))]:
            found = copy.deepcopy(state)
            parent = functools.reduce(getitem, path[:-1], found)
            if value is ABSENT:
                del parent[path[-1]]
            else:
                parent[path[-1]] = value
            yield found, path


ABSENT = object()
MUTATED = ["svrg, by steps", "const", "relative", "casimir, scheduled", "prox-linear"]


@pytest.mark.filterwarnings("ignore:.* are halved", "ignore:.* relative accuracy")
@pytest.mark.parametrize("name", thinned(MUTATED, 2))
def test_a_damaged_state_is_named_or_harmless(name):
    saved = whole(name)[1]
    damaged = [*mutations(saved[1])]
    for state, path in damaged[:: 1 if sweeps.long else 60]:
        run = RUNS[name](lambda closure: closure)
        try:
            load(run, [saved[0], state, *saved[2:]])
        except (TypeError, ValueError) as error:
            assert str(error).startswith("state_dict: expected"), (path, error)
            continue
        try:
            run.advance()
        except (RuntimeError, ValueError) as error:
            # steps of another length may diverge, and other smoothings be refused
            assert ": expected " in str(error), (path, error)
        finite = [torch.isfinite(p).all() for p in run.parts[0].parameters()]
        assert all(finite), path


def test_prox_linear_changes_its_tolerance_and_descends():
    progress = [optimizer["progress"] for _, optimizer in whole("prox-linear")]
    assert {one["epochs"] for one in progress[1:]} == {1, 2}
    assert progress[-1]["objective"] < 0.8 * progress[-1]["first_objective"]


def test_snapshot_steps_end_epoch_are_an_epoch():
    batches = tagging()
    model, optimizer, closure = tagger("const")
    optimizer.epoch(closure, batches)
    again, other, call = tagger("const")
    drawn = torch.randint(len(batches), (len(batches),), generator=other.generator)
    other.snapshot(call, batches)
    for i in drawn.tolist():
        other.step(lambda i=i: call(batches[i]))
    other.snapshot(call, batches)  # ends the epoch before
    assert other.progress["outer"] == 1
    iterates = [other.state[p]["iterate"] for p in again.parameters()]
    pairs = zip(model.parameters(), iterates, strict=True)
    assert all(torch.equal(p, w) for p, w in pairs)
