"""What subsets and knapsacks have besides the laws: other solvers, sizes, messages."""

import math

import pytest
import torch
from torch.testing import assert_close

from smoothsp.oracles import Knapsack, Subset


def drawn(*shape):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).double()


def test_sums_are_those_of_the_generating_polynomial():
    # prod_v (1 + e^s_v z): its coefficients are the sums over subsets of each size
    scores = drawn(2, 60).requires_grad_()
    total = Subset(scores, 3, 7).log_partition()
    (gradient,) = torch.autograd.grad(total.sum(), scores)
    sums = torch.zeros(2, 8).double()
    sums[:, 0] = 1
    for v in range(60):
        chosen = sums[:, :-1] * scores[:, v, None].exp()
        sums = sums + torch.nn.functional.pad(chosen, (1, 0))
    expected = sums[:, 3:].sum(1).log()
    assert_close(total, expected)
    assert_close(gradient, torch.autograd.grad(expected.sum(), scores)[0])


def test_a_knapsack_of_weights_1_is_a_subset_and_units_change_nothing():
    scores = drawn(3, 9)
    ones = Knapsack(scores, torch.ones(9).long(), 4)
    assert_close(ones.log_partition(), Subset(scores, at_most=4).log_partition())
    weights, capacity = torch.arange(1, 10), torch.tensor([11, 20, 3])
    small = Knapsack(scores, weights, capacity)
    large = Knapsack(scores, weights * 10**7, capacity * 10**7 + 5)
    assert_close(small.log_partition(), large.log_partition(), rtol=0, atol=0)


@pytest.mark.parametrize("ties", [False, True])
def test_the_best_subset_has_the_largest_scores(ties):
    scores = drawn(4, 60)
    scores = scores.round() if ties else scores
    scores[1, ::7] = -torch.inf
    low, high = torch.tensor([0, 40, 3, 7]), torch.tensor([5, 60, 60, 7])
    lengths = torch.tensor([60, 50, 60, 0])
    low[3] = high[3] = 0
    built = Subset(scores.requires_grad_(), low, high, lengths=lengths)
    value, y = built.decode()
    for b, n in enumerate(lengths.tolist()):
        row = scores[b, :n].detach().sort(descending=True).values
        sums = torch.nn.functional.pad(row.cumsum(0), (1, 0))
        best = sums[low[b] : high[b] + 1].max()
        assert_close(value[b], best)
        assert low[b] <= (y[b] == 1).sum() <= high[b]
        assert_close(scores[b].detach()[y[b] == 1].sum(), best)
        assert (y[b] >= 0).sum() == n
    (slope,) = torch.autograd.grad(value.sum(), scores)
    assert_close(slope, (y == 1).double())
    # without gradients, of some of the rows, and as the best of several
    rows = torch.tensor([2, 0])
    some = Subset(scores.detach(), low, high, lengths=lengths).select(rows)
    assert_close(some.decode()[0], value[rows].detach())
    assert_close(some.decode_topk(2)[0][:, 0], value[rows].detach())


@pytest.mark.parametrize("size", [(0, 3), (2, 0), (2, 1)])
def test_sizes_of_0_and_1(size):
    B, N = size
    for built in (
        Subset(torch.zeros(size), 0, 1),
        Knapsack(torch.zeros(size), torch.ones(N).long(), 1),
    ):
        assert_close(built.log_count(), torch.full((B,), math.log(N + 1)))
        assert built.decode()[1].shape == size
        assert_close(
            built.label_counts(built.decode()[1]).sum(1), torch.full((B,), N * 1.0)
        )


def test_nobody_chooses_where_nobody_may():
    scores = torch.full((2, 3), math.nan)
    scores[1] = 1.0
    built = Subset(scores, 0, torch.tensor([0, 2]))
    assert built.decode()[1][0].tolist() == [0, 0, 0]
    assert built.log_partition()[0] == 0


two = torch.zeros(2, 3)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((two[0],), ValueError, "scores: "),
        ((two.long(),), TypeError, "scores: "),
        ((two, 1.0), TypeError, "at_least: "),
        ((two, True), TypeError, "at_least: "),
        ((two, -1), ValueError, "at_least: "),
        ((two, 0, torch.zeros(2)), TypeError, "at_most: "),
        ((two, 0, torch.ones(3).long()), ValueError, "at_most: "),
        ((two, 4), ValueError, "at_least: expected at most 3, .* got 4 at row 0"),
        (
            (two, 1, torch.tensor([1, 0])),
            ValueError,
            "at_least: expected at most 0, .* got 1 at row 1",
        ),
    ],
)
def test_what_is_no_subset_is_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        Subset(*arguments)


three = torch.ones(3).long()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((two[0], three, 1), ValueError, "scores: "),
        ((two, three[:2], 1), ValueError, "weights: "),
        ((two, three * 0.5, 1), TypeError, "weights: "),
        ((two, three - 2, 1), ValueError, "weights: "),
        ((two, three, -1), ValueError, "capacity: "),
        ((two, three, 1.5), TypeError, "capacity: "),
    ],
)
def test_what_is_no_knapsack_is_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        Knapsack(*arguments)
