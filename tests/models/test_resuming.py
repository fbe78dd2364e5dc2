"""States of runs are checked whole before an optimizer of torch reads them.

Fused kernels take tensors of any shape for those of the parameters.
"""

import copy
import functools
import re
from operator import getitem

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from smoothsp.models.resuming import restore
from smoothsp.optim import SubgradientLR
from tests import sweeps
from tests.optim.test_resuming import ABSENT, mutations


def made(kind=torch.optim.Adam, **options):
    """Parts of a run, and one step of it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2, bias=False))
    options = options or ({} if kind is torch.optim.SGD else {"fused": True})
    optimizer = kind(model.parameters(), 0.1, **options)
    scheduler = SubgradientLR(optimizer, "inverse")
    parts = {"model": model, "average": AveragedModel(model)}
    return parts | {"optimizer": optimizer, "scheduler": scheduler}


def step(parts):
    parts["optimizer"].zero_grad()
    parts["model"](torch.ones(5, 3)).square().mean().backward()
    for name in ("optimizer", "scheduler"):
        parts[name].step()
    parts["average"].update_parameters(parts["model"])


def state_of(parts):
    state = {name: part.state_dict() for name, part in parts.items()}
    state |= {"history": [{"epoch": 1, "f1": 0.5, "exact": None}], "seconds": 1.5}
    return copy.deepcopy(state | {"best": parts["model"].state_dict()})


def load(state, parts):
    return restore(state, parts, parts["model"], ["f1"], {"seconds": 0.0})


KINDS = [torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad, torch.optim.SGD]


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_goes_on(kind):
    first = made(kind)
    step(first)
    again = made(kind)
    history, best = load(state_of(first), again)
    assert history[0]["f1"] == 0.5 and best.keys() == again["model"].state_dict().keys()
    for parts in (first, again):
        step(parts)
    pairs = zip(first["model"].parameters(), again["model"].parameters(), strict=True)
    assert all(torch.equal(p, q) for p, q in pairs)


WRONG = [
    (("optimizer", "state", 1, "exp_avg"), torch.zeros(10**6), "shape .1000000,. in"),
    (("optimizer", "state", 0, "exp_avg"), torch.zeros(1).expand(4, 3), "strides"),
    (("optimizer", "state", 0, "exp_avg_sq"), torch.full((4, 3), torch.nan), "NaN or"),
    (
        ("optimizer", "state", 0, "step"),
        torch.ones(1),
        r"shape \(1,\) in place of \(\)",
    ),
    (("optimizer", "state", 0, "step"), torch.tensor(-1.0), "a negative number"),
    (
        ("optimizer", "state", 0, "step"),
        torch.tensor(1.0, device="meta"),
        "a tensor without",
    ),
    (("optimizer", "state", 0, "step"), torch.tensor(1), "torch.int64"),
    (("optimizer", "state", 0, "step"), ABSENT, "no step"),
    (("optimizer", "state", 0, "other"), torch.ones(4, 3), "also 'other'"),
    (("optimizer", "state", 1), ABSENT, "nothing"),
    (("optimizer", "state", 7), {}, "one parameter more than 3"),
    (("optimizer", "param_groups", 0, "betas"), (0.9,), "tuple"),
    (("optimizer", "param_groups", 0, "betas"), (0.9, 1.5), "tuple"),
    (("optimizer", "param_groups", 0, "lr"), torch.ones(3), "Tensor"),
    (("optimizer", "param_groups", 0, "eps"), -1.0, "-1.0"),
    (("optimizer", "param_groups", 0, "fused"), None, "None"),
    (("optimizer", "param_groups", 0, "params"), [0, 1, 1], "list"),
    (("optimizer", "param_groups", 0, "params"), [0, 1, torch.ones(2)], "list"),
    (("scheduler", "last_epoch"), "1", "'1'"),
    (("scheduler", "step"), 1, "a int that it does not have"),
    (("average", "n_averaged"), torch.ones(3), r"shape \(3,\) in place of \(\)"),
    (("model", "0.weight"), torch.full((4, 3), torch.inf), "NaN or infinity"),
    (("best", "0.bias"), torch.zeros(4, dtype=torch.int64), "torch.int64"),
    (("history", 0, "epoch"), 2, "2"),
    (("history", 0, "epoch"), torch.ones(2), "Tensor"),
    (("history", 0, "f1"), "high", "'high'"),
    (("seconds",), None, "None"),
    (("best",), ABSENT, "no best"),
]


@pytest.mark.parametrize(("place", "value", "found"), WRONG)
def test_an_entry_that_does_not_fit_is_named(place, value, found):
    parts = made()
    step(parts)
    state = state_of(parts)
    inner = functools.reduce(getitem, place[:-1], state)
    if value is ABSENT:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    again = made()
    before = str(state_of(again))
    said = f"state: expected one that such a run saved, got {found}"
    with pytest.raises(ValueError, match=said) as error:
        load(state, again)
    assert re.search(re.escape(place[0]), str(error.value))
    assert str(state_of(again)) == before


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_states_are_refused_or_train(kind):
    parts = made(kind)
    step(parts)
    for state, place in [*mutations(state_of(parts))][:: 1 if sweeps.long else 40]:
        again = made(kind)
        try:
            load(state, again)
        except ValueError as error:
            assert str(error).startswith("state: expected"), (place, error)
        else:
            step(again)
