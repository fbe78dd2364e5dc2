"""What users get wrong, in words: argument, expectation, finding, remedy."""

import re

import pytest
import torch
from torch import nn

from smoothsp.optim import SVRG, CasimirSVRG, ProxLinear
from smoothsp.optim.schedules import CasimirSchedule


def weight():
    return nn.Parameter(torch.zeros(2))


def linear_closure(w):
    def closure(batch=None):
        loss = w.sum()
        loss.backward()
        return loss

    return closure


def raises(kind, message, call, *args, **options):
    with pytest.raises(kind, match=re.escape(message)):
        call(*args, **options)


def svrg(**options):
    return SVRG([weight()], **{"lr": 0.1, **options})


def casimir(*args, **options):
    return CasimirSVRG([weight()], *args, **options)


def prox(lr=1.0, **options):
    return ProxLinear(nn.Linear(2, 1), lr, **{"inner": torch.optim.SGD, **options})


RULE = {"smoothness": 4.0, "num_batches": 3}


@pytest.mark.parametrize(
    ("kind", "message", "build", "options"),
    [
        (ValueError, "lr: expected a positive number, got -1", svrg, {"lr": -1}),
        (
            TypeError,
            "generator: expected a torch.Generator, got int",
            svrg,
            {"generator": 3},
        ),
        (
            ValueError,
            "kappa: expected a number, or smoothness and num_batches",
            casimir,
            {"lr": 0.1},
        ),
        (ValueError, "lr: expected a step size, or smoothness", casimir, {"kappa": 1}),
        (
            ValueError,
            "warm_start: expected one of ('restart', 'prox-center', 'extrapolation', "
            "'prev-iterate'), got 'center'",
            casimir,
            {**RULE, "warm_start": "center"},
        ),
        (
            TypeError,
            "smoothing: expected an object with an attribute mu, such as "
            "losses.L2(mu, k), got float",
            casimir,
            {**RULE, "smoothing": 1.0},
        ),
        (
            ValueError,
            "schedule: expected no num_batches, kappa, mu or decreasing beside it",
            casimir,
            {**RULE, "schedule": CasimirSchedule(0.0, 1.0)},
        ),
        (
            ValueError,
            "smoothness: expected an estimate for the default inner solver, got None",
            prox,
            {"inner": None},
        ),
        (
            ValueError,
            "params: expected parameters of the model, got 1 that it does not have",
            prox,
            {"params": [weight()]},
        ),
    ],
)
def test_arguments(kind, message, build, options):
    raises(kind, message, build, **options)


def test_step_before_snapshot_and_without_closure():
    optimizer = svrg()
    raises(TypeError, "SVRG.step expected a function that computes", optimizer.step)
    raises(
        RuntimeError,
        "SVRG: expected snapshot(closure, batches) before the first step",
        optimizer.step,
        lambda: None,
    )
    optimizer.end_epoch()  # without effect
    assert optimizer.progress["epoch"] == 0


def test_closures_that_return_no_loss():
    w = weight()
    optimizer = SVRG([w], lr=0.1)
    message = "SVRG: expected the closure to return the mean loss of its examples, got "
    raises(TypeError, message + "NoneType", optimizer.snapshot, lambda: None)
    vector = lambda: w * 1  # noqa: E731
    raises(TypeError, message + "a tensor of shape (2,)", optimizer.snapshot, vector)


def test_batches_that_are_none():
    w = weight()
    optimizer = SVRG([w], lr=0.1)
    closure = linear_closure(w)
    message = "batches: SVRG expected at least one example, got 0"
    raises(ValueError, message, optimizer.epoch, closure, [])
    message = (
        "batches: expected batches with a tensor or a length, to weigh them by their "
        "number of examples, got object; give size="
    )
    raises(TypeError, message, optimizer.epoch, closure, [object()])
    message = (
        "batches: SVRG.epoch reads them several times: expected a list or a "
        "DataLoader, got list_iterator; wrap it in list()"
    )
    raises(TypeError, message, optimizer.epoch, closure, iter([1]))
    relative = CasimirSVRG([w], **RULE, stop="relative")
    message = 'batches: CasimirSVRG with stop="relative" reads them several times'
    raises(TypeError, message, relative.snapshot, closure, iter([1]))


def test_states_of_other_parameters_change_nothing():
    w, other = weight(), nn.Parameter(torch.zeros(3))
    optimizer, ours = SVRG([w], lr=0.1), SVRG([other], lr=0.1)
    optimizer.epoch(linear_closure(w), [w])
    state, before = optimizer.state_dict(), str(ours.state_dict())
    load = ours.load_state_dict
    message = "with shape (2,) in place of (3,) for state[0]['full_gradient']. Was it"
    raises(ValueError, message, load, state)
    raises(TypeError, "state_dict: expected one that SVRG.state_dict()", load, None)
    wrong = {**state, "state": {}, "names": [], "generator": None}
    raises(ValueError, "state_dict: expected the state of a generator", load, wrong)
    assert str(ours.state_dict()) == before


WRONG_STATES = [
    (svrg, ("progress",), 3, "without ['epoch', 'first_loss'"),
    (svrg, ("oracle_calls",), {}, "with dict for oracle_calls"),
    (svrg, ("param_groups", 0, "lr"), "x", "with 'x' for param_groups[0]['lr']"),
    (svrg, ("state", 0), {"average": 1.0}, "with float for state[0]['average']"),
    (svrg, ("state", 0), {"other": 1.0}, "with also 'other' for state[0]"),
    (svrg, ("names",), ["state[0]['average']"], "without state[0]['average']"),
    (svrg, ("names",), 3, "with 3 for names"),
    (casimir, ("progress", "alpha"), float("nan"), "with nan for progress['alpha']"),
    (prox, ("progress", "outer"), "x", "with 'x' for progress['outer']"),
    (prox, ("progress", "mu_factor"), 0, "with 0 for progress['mu_factor']"),
]


@pytest.mark.parametrize(("build", "place", "value", "words"), WRONG_STATES)
def test_states_that_nobody_saved_change_nothing(build, place, value, words):
    options = RULE if build is casimir else {}
    ours, wrong = build(**options), build(**options).state_dict()
    before, inner = str(ours.state_dict()), wrong
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    message = f"{type(ours).__name__}.state_dict() returned, got one {words}"
    raises(ValueError, message, ours.load_state_dict, wrong)
    assert str(ours.state_dict()) == before


@pytest.mark.parametrize("build", [svrg, casimir])
def test_states_that_lack_a_tensor_raise(build):
    optimizer = build(**(RULE if build is casimir else {}))
    (w,) = optimizer.param_groups[0]["params"]
    names = {"snapshot", "center", "iterate", "average"}
    for again in range(2):
        closure = linear_closure(w)
        optimizer.snapshot(closure, [w] * 3)
        if again:
            optimizer.end_epoch()
        before = optimizer.state_dict()
        for name in names & {*before["state"][0]}:
            lacks = {k: x for k, x in before["state"][0].items() if k != name}
            wrong = {**before, "state": {0: lacks}}
            words = f"got one without state[0]['{name}']"
            raises(ValueError, words, optimizer.load_state_dict, wrong)
        optimizer.load_state_dict(before)


@pytest.mark.parametrize("build", [svrg, casimir])
def test_groups_are_added_between_epochs(build):
    optimizer = build(**(RULE if build is casimir else {}))
    (w,) = optimizer.param_groups[0]["params"]
    late = {"params": [weight()]}
    optimizer.snapshot(linear_closure(w), [w] * 3)
    message = "add_param_group: expected it between epochs, as the full gradient of an"
    raises(RuntimeError, message, optimizer.add_param_group, late)
    assert len(optimizer.param_groups) == 1
    optimizer.end_epoch()
    optimizer.add_param_group(late)
    optimizer.epoch(linear_closure(w), [w] * 3)


def test_sparse_gradients():
    embedding = nn.Embedding(4, 2, sparse=True)
    optimizer = SVRG(embedding.parameters(), lr=0.1)

    def closure():
        loss = embedding(torch.tensor([1])).sum()
        loss.backward()
        return loss

    message = (
        "SVRG: expected dense gradients, got a sparse one for a parameter of shape "
        "(4, 2); build its embedding with sparse=False"
    )
    raises(RuntimeError, message, optimizer.snapshot, closure)


@pytest.mark.parametrize("value", [float("nan")])
def test_loss_that_is_not_finite(value):
    w = weight()

    def closure():
        loss = (w * value).sum()
        loss.backward()
        return torch.tensor(value)

    message = (
        f"SVRG: expected a finite loss, got {value} after 0 epochs and 0 steps of "
        "length 0.1; lower lr"
    )
    raises(RuntimeError, message, SVRG([w], lr=0.1).snapshot, closure)
    message = "lower lr or raise smoothness"
    raises(RuntimeError, message, CasimirSVRG([w], **RULE).snapshot, closure)
    message = 'lower lr, raise smoothness, or use warm_start="restart"'
    other = CasimirSVRG([w], warm_start="extrapolation", **RULE)
    raises(RuntimeError, message, other.snapshot, closure)


def test_state_of_another_optimizer():
    w = weight()
    adam = torch.optim.Adam([w]).state_dict()
    plain = SVRG([w], lr=0.1).state_dict()
    casimir = CasimirSVRG([w], **RULE)
    message = (
        "state_dict: expected one that SVRG.state_dict() returned, got one without "
        "['generator', 'names', 'oracle_calls', 'progress']"
    )
    raises(ValueError, message, SVRG([w], lr=0.1).load_state_dict, adam)
    message = "expected one that CasimirSVRG.state_dict() returned, got one without ["
    raises(ValueError, message, casimir.load_state_dict, plain)


def test_mu_of_an_optimizer_without_smoothing():
    for optimizer in (casimir(**RULE), prox()):
        message = "mu: expected an optimizer with the argument smoothing or mu, got one"
        raises(ValueError, message, setattr, optimizer, "mu", 1.0)
        assert optimizer.mu == 0
    optimizer = casimir(**RULE, mu=1.0)
    message = "mu: expected a positive number, got 0"
    raises(ValueError, message, setattr, optimizer, "mu", 0)
