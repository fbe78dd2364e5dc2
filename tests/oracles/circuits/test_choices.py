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
