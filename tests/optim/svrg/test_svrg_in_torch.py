"""SVRG: what users of torch.optim expect of closures, groups, dtypes, wrappers."""

import pickle

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from smoothsp.optim import SVRG
from tests.optim.problems import ridge, ridge_gradient, squares, svrg_on


def test_closure_decides_about_zero_grad():
    problem = ridge()
    ends = []
    for zero in (lambda o: None, lambda o: o.zero_grad(), lambda o: o.zero_grad(False)):
        w, optimizer = svrg_on(problem)

        def closure(batch, w=w, optimizer=optimizer, zero=zero):
            zero(optimizer)
            return squares(w)(batch)

        optimizer.epoch(closure, problem.batches(8))
        ends.append(w.detach())
    assert torch.equal(ends[0], ends[1]) and torch.equal(ends[0], ends[2])


def test_step_returns_the_loss_and_leaves_the_gradient_at_the_iterate():
    problem = ridge()
    w, optimizer = svrg_on(problem)
    batch = problem.batches(8)[0]
    optimizer.snapshot(squares(w), problem.batches(8))
    for _ in range(2):
        before = w.detach().clone()
        loss = optimizer.step(lambda: squares(w)(batch))
        expected = (batch[0] @ before - batch[1]).square().mean() / 2
        assert_close(loss.detach(), expected)
        assert_close(w.grad, ridge_gradient(problem, before, slice(8)))


def test_parameters_survive_a_closure_that_fails():
    problem = ridge()
    w, optimizer = svrg_on(problem)
    batches = problem.batches(8)
    optimizer.epoch(squares(w), batches)
    optimizer.snapshot(squares(w), batches)
    optimizer.step(lambda: squares(w)(batches[0]))
    before = w.detach().clone()
    with pytest.raises(KeyboardInterrupt):
        optimizer.step(lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    assert torch.equal(w.detach(), before)


def test_groups_have_their_own_step_and_decay():
    w = nn.Parameter(torch.ones(1, dtype=torch.float64))
    v = nn.Parameter(torch.ones(1, dtype=torch.float64))
    optimizer = SVRG(
        [{"params": [w], "lr": 0.5}, {"params": [v], "weight_decay": 1.0}], lr=0.1
    )

    def closure():
        loss = 2 * w.sum() + 3 * v.sum()
        loss.backward()
        return loss

    optimizer.snapshot(closure)
    optimizer.step(closure)
    assert_close(w.item(), 1 - 0.5 * 2)
    assert_close(v.item(), 1 - 0.1 * (3 + 1))


def test_schedulers_of_torch_set_the_step():
    w = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = SVRG([w], lr=1.0, averaging=False)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    def closure():
        loss = w.sum()
        loss.backward()
        return loss

    optimizer.snapshot(closure)
    for _ in range(3):
        optimizer.step(closure)
        scheduler.step()
    assert_close(w.item(), -(1 + 0.5 + 0.25))
    twin = pickle.loads(pickle.dumps(optimizer))
    assert twin.progress == optimizer.progress and twin.averaging is False


def test_parameters_without_gradient_are_left_alone():
    w, frozen, unused = (nn.Parameter(torch.ones(2)) for _ in range(3))
    frozen.requires_grad_(False)
    sometimes = nn.Parameter(torch.ones(2))
    optimizer = SVRG([w, frozen, unused, sometimes], lr=0.1, weight_decay=0.5)

    def closure(batch):
        loss = (w * frozen).sum() + (sometimes.sum() if batch else 0)
        loss.backward()
        return loss

    optimizer.snapshot(closure, [0, 1])
    optimizer.step(lambda: closure(0))
    assert torch.equal(frozen, torch.ones(2)) and torch.equal(unused, torch.ones(2))
    assert_close(w.detach(), torch.full((2,), 1 - 0.1 * (1 + 0.5)))
    # no part in this batch, but in the full gradient
    assert_close(sometimes.detach(), torch.full((2,), 1 - 0.1 * (0.5 + 0.5)))
    optimizer.end_epoch()
    sometimes.requires_grad_(False)
    before = sometimes.detach().clone()
    optimizer.epoch(lambda batch: closure(0), [0, 1])
    assert torch.equal(sometimes, before)


def test_dropout_cancels_between_the_two_gradients():
    torch.manual_seed(0)
    w = nn.Parameter(torch.ones(50))
    optimizer = SVRG([w], lr=0.1)

    def closure():
        loss = nn.functional.dropout(w, 0.5).square().sum()
        loss.backward()
        return loss

    optimizer.snapshot(closure)
    full = optimizer.state[w]["full_gradient"].clone()
    optimizer.step(closure)  # at the snapshot the correction is exactly zero
    assert_close(w.detach(), 1 - 0.1 * full)
    before = torch.get_rng_state()
    optimizer.step(closure)
    assert not torch.equal(torch.get_rng_state(), before)


def test_gradients_that_live_in_one_buffer():
    """DistributedDataParallel may overwrite the gradients of the call before."""
    problem = ridge()
    w, plain = svrg_on(problem)
    v, shared = svrg_on(problem)
    buffer = torch.zeros_like(v)

    def closure(batch):
        loss = (batch[0] @ v - batch[1]).square().mean() / 2
        (found,) = torch.autograd.grad(loss, v)
        buffer.copy_(found)
        v.grad = buffer
        return loss

    plain.epoch(squares(w), problem.batches(8))
    shared.epoch(closure, problem.batches(8))
    assert torch.equal(w, v)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_and_strides_stay(dtype):
    model = nn.Conv2d(2, 3, 3, dtype=dtype).to(memory_format=torch.channels_last)
    optimizer = SVRG(model.parameters(), lr=0.01)
    x = torch.randn(4, 2, 5, 5, dtype=dtype)

    def closure(batch):
        loss = model(batch).square().mean()
        loss.backward()
        return loss

    first = optimizer.epoch(closure, x.split(2))
    assert optimizer.epoch(closure, x.split(2)) < first
    assert all(p.dtype == dtype for p in model.parameters())
    assert model.weight.is_contiguous(memory_format=torch.channels_last)


def test_a_wrapper_that_copies_the_attributes_shares_the_run():
    """As Lightning wraps optimizers, in a class made on the spot."""
    problem = ridge()
    w, optimizer = svrg_on(problem)
    v, twin = svrg_on(problem)
    wrapper = object.__new__(type("LightningSVRG", (SVRG,), {}))
    copied = {name: one for name, one in optimizer.__dict__.items() if name != "step"}
    wrapper.__dict__.update(copied)
    wrapper.step = optimizer.step
    for _ in range(2):
        for one, x in ((wrapper, w), (twin, v)):
            one.snapshot(squares(x), problem.batches(8))
            for batch in problem.batches(8):
                one.step(lambda x=x, batch=batch: squares(x)(batch))
            one.end_epoch()
    assert torch.equal(w, v)
    assert optimizer.progress == twin.progress
    saved, expected = optimizer.state_dict(), twin.state_dict()
    assert saved["oracle_calls"] == expected["oracle_calls"]
