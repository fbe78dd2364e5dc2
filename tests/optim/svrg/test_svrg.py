"""SVRG: its formula, its rate, its batches."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils.data import DataLoader

from smoothsp.optim import SVRG
from tests.optim.problems import ridge, ridge_gradient, seeded, squares, svrg_on


@pytest.mark.parametrize("averaging", [True, False])
def test_an_epoch_is_the_formula(averaging):
    problem = ridge()
    w, optimizer = svrg_on(problem, averaging=averaging)
    batches, closure = problem.batches(10), squares(w)
    with torch.no_grad():
        w.add_(1.0)
    x = start = w.detach().clone()
    full, mean = ridge_gradient(problem, start), torch.zeros_like(start)
    for epoch in range(2):
        optimizer.snapshot(closure, batches)
        for t, k in enumerate([2, 0, 2, 1], 1):
            optimizer.step(lambda k=k: closure(batches[k]))
            rows = slice(10 * k, 10 * k + 10)
            v = (
                ridge_gradient(problem, x, rows)
                - ridge_gradient(problem, start, rows)
                + full
            )
            x = x - 0.15 * (v + problem.weight_decay * x)
            mean = mean + (x - mean) / t
            assert_close(w.detach(), x)
        optimizer.end_epoch()
        x = start = mean if averaging else x
        assert_close(w.detach(), x)
        full, mean = ridge_gradient(problem, start), torch.zeros_like(start)
        assert optimizer.progress["epoch"] == epoch + 1


def test_converges_linearly_to_the_exact_optimum():
    problem = ridge()
    w, optimizer = svrg_on(problem)
    errors = []
    for _ in range(60):
        optimizer.epoch(squares(w), problem.batches(4))
        errors.append(float((w.detach() - problem.best).norm()))
    assert errors[-1] < 1e-12
    assert errors[39] < 1e-3 * errors[19]


def test_full_gradient_weighs_unequal_batches_by_their_examples():
    problem = ridge(n=10)
    w, optimizer = svrg_on(problem)
    loss = optimizer.snapshot(squares(w), problem.batches(4))  # 4, 4 and 2 examples
    assert_close(
        optimizer.state[w]["full_gradient"], ridge_gradient(problem, w.detach())
    )
    assert loss == pytest.approx(float(problem.y.square().mean() / 2))


def test_epoch_draws_with_replacement_from_lists_and_follows_loaders():
    seen = []
    w = nn.Parameter(torch.zeros(1))
    optimizer = SVRG([w], lr=0.1, generator=seeded())

    def closure(batch):
        seen.append(int(batch))
        loss = (w * batch).sum()
        loss.backward()
        return loss

    items = [torch.tensor([i]) for i in range(6)]
    optimizer.epoch(closure, items, steps=40)
    assert seen[:6] == list(range(6))  # the full gradient
    drawn = seen[6::2]
    assert len(drawn) == 40 and set(drawn) == set(range(6))
    assert seen[7::2] == drawn  # both gradients of a step on the same batch
    seen.clear()
    loader = DataLoader(torch.arange(4), batch_size=1)
    optimizer.epoch(closure, loader, steps=6)
    assert seen[4::2] == [0, 1, 2, 3, 0, 1]


def test_oracle_calls_are_counted_in_examples():
    problem = ridge()
    w, optimizer = svrg_on(problem)
    optimizer.epoch(squares(w), problem.batches(8), steps=3)
    assert optimizer.oracle_calls == {"iterate": 24, "snapshot": 24, "full": 40}
