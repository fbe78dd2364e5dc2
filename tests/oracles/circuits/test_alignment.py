"""What alignments and warping have besides the laws of circuits: textbooks, sizes."""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from smoothsp.linear.problems import Parts, StructureProblem
from smoothsp.losses import StructuralHinge
from smoothsp.oracles import Alignment, Warping


def drawn(*shape):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).double()


LENGTHS = {
    "lengths_first": torch.tensor([9, 4, 0, 7]),
    "lengths_second": torch.tensor([5, 8, 3, 8]),
}


def edit_distance(one, other):
    """Wagner and Fischer, row by row."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        left = [i]
        for j, b in enumerate(other, 1):
            left.append(min(row[j] + 1, left[-1] + 1, row[j - 1] + (a != b)))
        row = left
    return row[-1]


def test_minus_the_best_score_is_the_edit_distance():
    generator = torch.Generator().manual_seed(0)
    one = torch.randint(3, (50, 12), generator=generator)
    other = torch.randint(3, (50, 10), generator=generator)
    lengths = {
        "lengths_first": torch.randint(13, (50,), generator=generator),
        "lengths_second": torch.randint(11, (50,), generator=generator),
    }
    differ = (one[:, :, None] != other[:, None]).float()
    value, y = Alignment(-differ, -1, torch.tensor(-1.0), **lengths).decode()
    for b, (n, m) in enumerate(zip(*lengths.values(), strict=True)):
        distance = edit_distance(one[b, :n].tolist(), other[b, :m].tolist())
        assert -value[b] == distance
        matched = (y[b] == 0)[:-1, :-1]
        edits = (differ[b] * matched).sum() + (y[b] > 0).sum()
        assert edits == distance


def soft_dtw(distance, gamma):
    n, m = distance.shape
    table = {(0, 0): distance.new_zeros(())}
    infinity = distance.new_tensor(math.inf)
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            before = [(i - 1, j - 1), (i - 1, j), (i, j - 1)]
            ways = torch.stack([table.get(x, infinity) for x in before])
            soft = -gamma * (-ways / gamma).logsumexp(0)
            table[i, j] = distance[i - 1, j - 1] + soft
    return table[n, m]


def test_warping_is_soft_dtw_and_its_gradient_the_marginals():
    distance = drawn(3, 7, 9).square().requires_grad_()
    first, second = torch.tensor([7, 3, 1]), torch.tensor([9, 9, 4])
    lengths = {"lengths_first": first, "lengths_second": second}
    for gamma in (0.1, 1.0):
        built = Warping(-distance / gamma, **lengths)
        found = -gamma * built.log_partition()
        pairs = zip(first, second, strict=True)
        expected = [
            soft_dtw(distance[b, :n, :m], gamma) for b, (n, m) in enumerate(pairs)
        ]
        assert_close(found, torch.stack(expected))
        (slope,) = torch.autograd.grad(sum(expected), distance)
        assert_close(built.marginals(), slope)


def test_gaps_are_numbers_or_scores_of_items():
    match = drawn(2, 3, 4)
    expected = Alignment(match, torch.full((2, 3), -0.5).double()).log_partition()
    for gap in (-0.5, torch.tensor(-0.5).double()):
        assert_close(Alignment(match, gap).log_partition(), expected)
    zero = Alignment(match, 0, torch.zeros(2, 4).double())
    assert_close(Alignment(match).log_partition(), zero.log_partition())
    shared = torch.tensor(-0.5).double().requires_grad_()
    Alignment(match, shared, shared).log_partition().sum().backward()
    chances = Alignment(match, shared, shared)
    alone = chances.marginals("gap_first").sum() + chances.marginals("gap_second").sum()
    assert_close(shared.grad, alone)


class WithGaps(Alignment):
    """As in the docstring: costs have one column more, of items left alone."""

    def augment(self, cost):
        first, second = (self.output_shapes - 1).unbind(1)
        match = super().augment(cost[..., :-1]).match
        gaps = self.gap_first + cost[..., -1], self.gap_second
        return Alignment(match, *gaps, lengths_first=first, lengths_second=second)


def missed(alignment, y):
    matched = (y == 0)[:, :-1, :-1].any(2, keepdim=True)
    return torch.cat([alignment.hamming(y), matched.to(alignment.match)], 2)


def test_a_missed_match_may_cost_as_much_as_a_wrong_one():
    # two matches; the second item of the first is alone
    y = torch.tensor([[0, -1, -1], [-1, 1, -1], [-1, 0, -1], [-1, -1, -1]])
    matches = WithGaps(torch.tensor([[[9.0, 0], [0, 0], [0, 9.0]]]).double())
    hinge = StructuralHinge()(matches, y[None], cost=missed(matches, y[None]))
    assert hinge == 0
    flat = WithGaps(torch.zeros(1, 3, 2).double())
    hinge = StructuralHinge()(flat, y[None], cost=missed(flat, y[None]))
    # the second item matched wrongly, and both others alone
    assert hinge == 3
    problem = StructureProblem(
        lambda potentials, batch: WithGaps(potentials["match"]),
        {"match": Parts(np.ones((6, 1)), [[3, 2]])},
        [y.numpy()],
        cost=missed,
    )
    assert problem.primal(np.zeros(1), lam=1.0) == 3


@pytest.mark.parametrize("M", [0, 1])
@pytest.mark.parametrize("N", [0, 1])
@pytest.mark.parametrize("B", [0, 1])
@pytest.mark.parametrize("kind", [Alignment, Warping])
def test_small_sizes(kind, B, N, M):
    match = drawn(B, N, M).requires_grad_()
    if kind is Warping and B and N != M:
        with pytest.raises(ValueError, match="match: row 0 has no feasible output"):
            kind(match)
        return
    built = kind(match)
    value, y = built.decode()
    assert_close(built.score(y), value)
    assert built.hamming(y).shape == match.shape
    assert built.sample(2).shape == (B, 2, *built.shape)
    built.log_partition().sum().backward()
    assert match.grad.isfinite().all()


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"match": drawn(2, 3)}, ValueError, "match: "),
        ({"match": drawn(2, 3, 4).long()}, TypeError, "match: "),
        ({"gap_first": drawn(2, 4)}, ValueError, "gap_first: "),
        ({"gap_second": drawn(2, 3)}, ValueError, "gap_second: "),
        ({"gap_first": drawn(2, 3).float()}, TypeError, "gap_first: "),
        ({"gap_first": math.nan}, ValueError, "gap_first: "),
        (
            {"lengths_first": torch.tensor([4, 1])},
            ValueError,
            "lengths_first: expected values from 0 to 3, got 4 at row 0",
        ),
        (
            {"lengths_second": torch.tensor([4, 5])},
            ValueError,
            "lengths_second: expected values from 0 to 4, got 5 at row 1",
        ),
        (
            {
                "match": torch.full((2, 3, 4), -math.inf).double(),
                "gap_first": -math.inf,
            },
            ValueError,
            "match: row 0 has no feasible output",
        ),
    ],
)
def test_wrong_arguments_are_named(change, kind, message):
    with pytest.raises(kind, match=message):
        Alignment(**{"match": drawn(2, 3, 4), **change})
    if "gap" not in message and "gap_first" not in change:
        with pytest.raises(kind, match=message):
            Warping(**{"match": drawn(2, 3, 4), **change})


def gotoh(match, first, second, start, extend):
    """Log-sum of affine alignments of one pair, by the textbook's three tables."""
    n, m = match.shape
    none = match.new_tensor(-math.inf)
    table = {(0, 0): (match.new_zeros(()), none, none)}

    def at(i, j):
        return table.get((i, j), (none, none, none))

    for i in range(n + 1):
        for j in range(m + 1):
            if i or j:
                diagonal = torch.stack(at(i - 1, j - 1)).logsumexp(0)
                met = diagonal + match[i - 1, j - 1] if i and j else none
                a, x, y = at(i - 1, j)
                alone = torch.stack([a + start, y + start, x + extend]).logsumexp(0)
                up = alone + first[i - 1] if i else none
                a, x, y = at(i, j - 1)
                alone = torch.stack([a + start, x + start, y + extend]).logsumexp(0)
                left = alone + second[j - 1] if j else none
                table[i, j] = met, up, left
    return torch.stack(table[n, m]).logsumexp(0)


def test_affine_gaps_are_those_of_the_recurrence():
    given = drawn(4, 9, 8), drawn(4, 9), drawn(4, 8)
    start, extend = drawn(4, 1)[:, 0], drawn(4, 2)[:, 0]
    built = Alignment(*given, gap_open=start, gap_extend=extend, **LENGTHS)
    expected = [
        gotoh(given[0][b, :n, :m], given[1][b, :n], given[2][b, :m], *gaps)
        for b, (n, m, *gaps) in enumerate(
            zip(*LENGTHS.values(), start, extend, strict=True)
        )
    ]
    assert_close(built.log_partition(), torch.stack(expected))


@pytest.mark.parametrize("kind", [Alignment, Warping])
def test_a_path_with_something_beside_it_is_no_output(kind):
    built = kind(torch.zeros(1, 3, 3))
    y = torch.full((1, *built.shape), -1)
    y[0, range(3), range(3)] = 0
    assert built.score(y).tolist() == [0]
    for place in ((0, 2), (2, 0), (1, 2), (2, 1)):
        # two warping paths meet again: {(0, 0), (1, 1), (1, 2), (2, 2)} is one
        if kind is Warping and place in ((1, 2), (2, 1)):
            continue
        more = y.clone()
        more[0][place] = 0
        with pytest.raises(ValueError, match="y: "):
            built.score(more)
    both = y.clone()
    both[0, 0, 1] = both[0, 1, 0] = 0
    with pytest.raises(ValueError, match="y: "):
        built.score(both)
