"""Knapsacks without a chart: against all choices, and against other solvers."""

import itertools

import numpy as np
import pytest
import torch
from scipy.optimize import Bounds, LinearConstraint, milp
from torch.testing import assert_close

from smoothsp.losses import StructuralHinge
from smoothsp.oracles import Knapsack, knapsack
from smoothsp.oracles.large_knapsack import LargeKnapsack

CASES = {
    "ordinary": ([3, 1, 4, 1, 5, 9], [9, 11]),
    "zero weights": ([0, 2, 0, 3, 0, 1], [3, 4]),
    "zero capacity": ([1, 2, 0, 3, 1, 1], [0, 0]),
    "huge capacity": ([6, 2, 4, 8, 2, 10], [10**15, 7]),
}


def drawn(*shape):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).double()


@pytest.fixture
def always_large(monkeypatch):
    monkeypatch.setattr(knapsack, "_MAX_ITEMS", -1)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("ties", [False, True])
def test_answers_are_those_of_all_choices(case, ties, always_large):
    weights, capacity = (torch.tensor(x) for x in CASES[case])
    lengths = torch.tensor([6, 4])
    scores = drawn(2, 6)
    scores = scores.sign() if ties else scores
    scores[0, 1] = -torch.inf
    scores.requires_grad_()
    built = Knapsack(scores, weights, capacity, lengths=lengths)
    assert isinstance(built, LargeKnapsack)
    ys = torch.tensor([*itertools.product((0, 1), repeat=6)])
    at = torch.arange(6)
    allowed = (ys @ weights <= capacity[:, None]) & (
        ((ys == 0) | (at < lengths[:, None, None])).all(2)
    )
    found = torch.where(ys == 1, scores[:, None], 0).sum(2)
    found = found.masked_fill(~allowed, -torch.inf)
    total = found.logsumexp(1)
    (marginals,) = torch.autograd.grad(total.sum(), scores, retain_graph=True)

    value, y = built.decode()
    assert_close(value, found.amax(1))
    assert_close(built.score(y), value)
    assert (y >= 0).sum(1).equal(lengths)
    values, _, valid = built.decode_topk(5)
    best = found.sort(1, descending=True).values[:, :5]
    assert valid.equal(best > -torch.inf)
    assert_close(values, best)
    forced = torch.where(ys == 1, found[..., None], -torch.inf).amax(1)
    assert_close(built.max_marginals(), forced)

    assert_close(built.log_partition(), total)
    (gradient,) = torch.autograd.grad(built.log_partition().sum(), scores)
    assert_close(gradient, marginals)
    assert_close(built.marginals(), marginals)
    p = (found - total[:, None]).exp()
    assert_close(built.entropy(), -torch.special.xlogy(p, p).sum(1))
    assert_close(built.log_prob(y), found.amax(1) - total)
    assert_close(built.log_count().exp(), (found > -torch.inf).double().sum(1))


def large(N=200, capacity=30_000):
    rng = np.random.default_rng(0)
    weights = torch.from_numpy(rng.integers(1, 1000, N))
    scores = torch.from_numpy(rng.integers(1, 100, (2, N)) / 8)
    scores[1, ::3] = 0.0
    return scores, weights, capacity


def test_the_best_is_that_of_an_integer_programme():
    scores, weights, capacity = large()
    built = Knapsack(scores, weights, capacity)
    values, y = built.decode()
    assert isinstance(built, LargeKnapsack)
    assert ((y * weights).sum(1) <= capacity).all()
    fits = LinearConstraint(weights.double()[None].numpy(), -np.inf, capacity)
    for value, given in zip(values.tolist(), scores.numpy(), strict=True):
        solved = milp(
            -given,
            constraints=fits,
            integrality=np.ones(len(given)),
            bounds=Bounds(0, 1),
            options={"mip_rel_gap": 0},
        )
        assert value == pytest.approx(-solved.fun, rel=1e-9)


@pytest.mark.long
def test_sums_are_those_of_the_whole_chart():
    scores, weights, capacity = large(100, 41_000)
    built = Knapsack(scores, weights, capacity)
    row = torch.full((2, capacity + 1), -torch.inf, dtype=torch.float64)
    row[:, 0] = 0
    for v, w in enumerate(weights.tolist()):
        taken = row[:, : capacity + 1 - w] + scores[:, v, None]
        row = torch.logaddexp(
            row, torch.nn.functional.pad(taken, (w, 0), value=-torch.inf)
        )
    expected = row.logsumexp(1)
    assert_close(built.log_partition(), expected, rtol=1e-12, atol=0)
    # marginals move the log-partition: a central difference along the scores
    chances, h = built.marginals(), 1e-5
    higher, lower = (
        Knapsack(scores * x, weights, capacity).log_partition() for x in (1 + h, 1 - h)
    )
    slope = (higher - lower) / (2 * h)
    assert_close((chances * scores).sum(1), slope, rtol=1e-7, atol=0)


def test_hinges_of_float32_and_rows_have_gradients(always_large):
    scores, weights = drawn(3, 6).float().requires_grad_(), torch.arange(6)
    built = Knapsack(scores, weights, 7)
    y = Knapsack(-scores, weights, 7).decode()[1]
    (slope,) = torch.autograd.grad(StructuralHinge(reduction="sum")(built, y), scores)
    best = built.augment(built.hamming(y)).decode()[1]
    assert_close(slope, (best - y).float())
    rows = torch.tensor([2, 0])
    assert_close(built.select(rows).decode()[0], built.decode()[0][rows])


def test_what_a_large_knapsack_lacks_is_refused(always_large):
    scores = drawn(2, 3).requires_grad_()
    built = Knapsack(scores, torch.tensor([1, 2, 3]), 4)
    with pytest.raises(NotImplementedError, match="expected one derivative"):
        torch.autograd.grad(built.marginals().square().sum(), scores)
    with pytest.raises(ValueError, match="y: expected 0 or 1 for each element"):
        built.score(torch.tensor([[0, 1, 1], [0, 1, 0]]))
    with pytest.raises(ValueError, match=r"capacity: expected at most .* units for 3"):
        Knapsack(scores, torch.tensor([10**9, 1, 1]), 10**9)


def test_a_batch_without_rows_has_answers(always_large):
    sack = Knapsack(drawn(1, 3), torch.tensor([1, 2, 3]), 4)
    none = sack.select(torch.zeros(1, dtype=torch.bool))
    for answer in (none.decode()[0], none.log_partition(), none.entropy()):
        assert answer.shape == (0,)
