"""Casimir-SVRG when something changes: lr by a scheduler, the decay, the batches."""

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.testing import assert_close

from smoothsp.optim import CasimirSVRG
from smoothsp.optim.schedules import CasimirSchedule
from tests.optim.problems import Vector, ridge, seeded, squares

RULE = {"smoothness": 8.0, "num_batches": 5, "weight_decay": 0.1}
GROWING = {"smoothness": 8.0, "kappa": 0.5, "mu": 2.0, "decreasing": True}
SCHEDULERS = {
    "exponential": lambda o: lr_scheduler.ExponentialLR(o, 0.5),
    "lambda": lambda o: lr_scheduler.LambdaLR(o, lambda t: 0.5**t),
    "multi-step": lambda o: lr_scheduler.MultiStepLR(o, [1, 2, 3, 4], 0.5),
    "plateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, factor=0.5, patience=0),
}


def casimir(**options):
    problem = ridge()
    model = Vector(torch.zeros(3, dtype=torch.float64))
    optimizer = CasimirSVRG(model.parameters(), generator=seeded(), **options)
    return model.w, optimizer, squares(model.w), problem.batches(8)


# --- step sizes ---


@pytest.mark.parametrize("options", [RULE, GROWING], ids=["constant", "growing"])
@pytest.mark.parametrize("kind", SCHEDULERS)
def test_schedulers_multiply_the_derived_step(kind, options):
    w, optimizer, closure, batches = casimir(**options)
    _, plain, other, _ = casimir(**options)
    scheduler = SCHEDULERS[kind](optimizer)
    if kind == "plateau":
        scheduler.step(0.0)
    for t in range(5):
        (derived,) = plain.step_sizes
        assert optimizer.step_sizes == [pytest.approx(derived * 0.5**t)]
        optimizer.snapshot(closure, batches)
        before = w.detach().clone()
        optimizer.step(lambda: closure(batches[0]))
        assert optimizer.progress["outer"] == t
        # at the snapshot a step follows the full gradient
        state = optimizer.state[w]
        pull = optimizer.progress["kappa"] * (before - state["center"])
        decay = options.get("weight_decay", 0.0) * before
        direction = state["full_gradient"] + decay + pull
        assert_close(w.detach(), before - derived * 0.5**t * direction)
        optimizer.end_epoch()
        scheduler.step(*[0.0] * (kind == "plateau"))
        plain.epoch(other, batches)


def test_a_step_set_by_hand_is_kept_in_proportion():
    _, optimizer, closure, batches = casimir(**GROWING)
    optimizer.param_groups[0]["lr"] /= 4
    for k in range(1, 4):
        (found,) = optimizer.step_sizes
        assert found == pytest.approx(1 / (4 * (8 * k + 0.5 * k)))
        assert optimizer.param_groups[0]["lr"] == found
        optimizer.epoch(closure, batches)


# --- weight decay ---


@pytest.mark.parametrize("own", [False, True])
def test_another_decay_than_the_schedule_s_is_refused(own):
    options = {"schedule": CasimirSchedule(0.1, 1.5), "lr": 0.1, "weight_decay": 0.1}
    _, optimizer, closure, batches = casimir(**options if own else RULE)
    optimizer.epoch(closure, batches)
    optimizer.param_groups[0]["weight_decay"] = 0.3
    message = (
        r"weight_decay: expected 0\.1 as the smallest one of all groups, .*got 0.3"
    )
    with pytest.raises(ValueError, match=message):
        optimizer.epoch(closure, batches)
    optimizer.param_groups[0]["weight_decay"] = 0.1
    optimizer.epoch(closure, batches)
    late = nn.Parameter(torch.zeros(1))
    with pytest.raises(ValueError, match=message.replace("got 0.3", "got 0;")):
        optimizer.add_param_group({"params": [late], "weight_decay": 0.0})
    assert len(optimizer.param_groups) == 1
    optimizer.add_param_group({"params": [late], "weight_decay": 0.2})


def test_a_schedule_for_another_decay_is_refused():
    message = (
        r"weight_decay: expected 0\.2 as the smallest one of all groups, .*got 0.1"
    )
    with pytest.raises(ValueError, match=message):
        casimir(schedule=CasimirSchedule(0.2, 1.5), lr=0.1, weight_decay=0.1)


def test_a_decay_that_is_not_the_smallest_may_change_and_the_step_follows():
    w, v = (nn.Parameter(torch.zeros(1)) for _ in range(2))
    groups = [{"params": [w]}, {"params": [v], "weight_decay": 1.0}]
    optimizer = CasimirSVRG(groups, **RULE)

    def closure():
        loss = w.sum() + v.sum()
        loss.backward()
        return loss

    optimizer.param_groups[1]["weight_decay"] = 4.0
    optimizer.snapshot(closure)
    kappa = optimizer.progress["kappa"]
    assert optimizer.step_sizes == [1 / (8 + 0.1 + kappa), 1 / (8 + 4 + kappa)]


# --- number of batches ---


def test_another_number_of_batches_is_refused():
    w, optimizer, closure, _ = casimir(**RULE)
    many = ridge().batches(1)
    message = r"num_batches: expected 40, as the snapshot had, .* got 5; give that n"
    with pytest.raises(ValueError, match=message):
        optimizer.epoch(closure, many)
    assert not w.detach().any()
    optimizer.snapshot(closure, many)
    for batch in many[:20]:
        optimizer.step(lambda batch=batch: closure(batch))
    with pytest.raises(ValueError, match=message):
        optimizer.end_epoch()


@pytest.mark.parametrize("stop", ["budget", "relative"])
def test_a_parameter_may_begin_to_move_within_an_outer_iteration(stop):
    w, late = (nn.Parameter(torch.zeros(2)) for _ in range(2))
    late.requires_grad_(False)
    options = {"smoothness": 4.0, "num_batches": 2, "weight_decay": 0.1}
    optimizer = CasimirSVRG([w, late], epochs=3, stop=stop, **options)

    def closure(batch):
        loss = (w - batch).square().sum()
        if late.requires_grad:
            loss = loss + (late + batch).square().sum()
        loss.backward()
        return loss

    batches = [torch.ones(2), torch.zeros(2)]
    optimizer.epoch(closure, batches)
    assert optimizer.progress["inner"] == 1
    late.requires_grad_()
    for _ in range(20):
        optimizer.epoch(closure, batches)
    best = torch.full((2,), 0.5 / 1.05)
    assert_close(w.detach(), best, atol=0.01, rtol=0)
    assert_close(late.detach(), -best, atol=0.01, rtol=0)
