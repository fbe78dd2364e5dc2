"""Rankings: enumeration of all, beginnings, samples, sizes, messages."""

import itertools
import math

import pytest
import torch
from torch.testing import assert_close

from smoothsp.losses import MinimumRisk, StructuralHinge
from smoothsp.oracles import PlackettLuce
from smoothsp.testing import check_structure

NONE = -math.inf


def log_prob(scores, y):
    """By its definition, of the items y in order."""
    left = [i for i, x in enumerate(scores.tolist()) if x > NONE]
    total = torch.zeros((), dtype=torch.float64)
    for item in y:
        total = total + scores[item] - scores[left].logsumexp(0)
        left.remove(item)
    return total


def rankings(scores, places):
    items = [i for i, x in enumerate(scores.tolist()) if x > NONE]
    return list(itertools.permutations(items, min(places, len(items))))


def drawn(seed, B=3, N=4):
    generator = torch.Generator().manual_seed(seed)
    scores = 3 * torch.randn(B, N, generator=generator, dtype=torch.float64)
    if seed % 3 == 1:
        scores = scores.round()
    if seed % 3 == 2:
        scores[0, 1] = scores[1, 0] = scores[1, 3] = NONE
    return scores


every_case = pytest.mark.parametrize(
    ("seed", "places"), [(s, p) for s in range(3) for p in (1, 2, 4)]
)


@every_case
def test_the_best_are_the_sorted_enumeration(seed, places):
    scores = drawn(seed)
    built = PlackettLuce(scores, places)
    value, y = built.decode()
    for k in (1, 5, 30):
        values, ys, valid = built.decode_topk(k)
        assert ys.shape == (3, k, places)
        for b, row in enumerate(scores):
            every = rankings(row, places)
            right = torch.stack([log_prob(row, y) for y in every]).sort().values.flip(0)
            n = min(k, len(every))
            assert valid[b].tolist() == [i < n for i in range(k)]
            assert_close(values[b, :n], right[:n])
            assert_close(value[b], right[0])
            listed = [tuple(i for i in y if i >= 0) for y in ys[b, :n].tolist()]
            assert len(set(listed)) == n and set(listed) <= set(every)
            found = torch.stack([log_prob(row, y) for y in listed])
            assert_close(found, values[b, :n])
            assert (ys[b, n:] == -1).all() and (values[b, n:] == NONE).all()
    assert_close(built.log_prob(y), value)


@every_case
def test_probabilities_sum_to_1_and_check_structure_finds_nothing(seed, places):
    scores = drawn(seed)
    built = PlackettLuce(scores, places)
    outputs = []
    for b, row in enumerate(scores):
        padded = [
            torch.tensor([*y, *[-1] * (places - len(y))]) for y in rankings(row, places)
        ]
        outputs.append(padded)
        ys = torch.stack(padded)[None]
        chances = built.select(torch.tensor([b])).log_prob(ys).exp()
        assert_close(chances.sum().item(), 1.0)
    check_structure(built, outputs)


def test_gradients_are_those_of_the_definition():
    for scores in (drawn(0), drawn(2), 100 * drawn(3), 1e4 * drawn(0)):
        ours, theirs = (scores.clone().requires_grad_() for _ in range(2))
        y = PlackettLuce(scores, 3).decode_topk(2)[1][:, 1]
        (3 * PlackettLuce(ours).log_prob(y)).sum().backward()
        for row, items in zip(theirs, y.tolist(), strict=True):
            (3 * log_prob(row, [i for i in items if i >= 0])).backward()
        expected = theirs.grad.masked_fill(scores == NONE, 0)
        assert_close(ours.grad, expected, rtol=1e-7, atol=1e-9)
    free = drawn(1).requires_grad_()
    y = PlackettLuce(free).decode_topk(5)[1]
    assert torch.autograd.gradcheck(lambda x: PlackettLuce(x).log_prob(y), free)


def test_a_beginning_has_the_probability_of_all_that_go_on_from_it():
    scores = drawn(4, 1, 5)
    built = PlackettLuce(scores)
    for begin in ((), (3,), (3, 0), (1, 4, 2)):
        every = [y for y in rankings(scores[0], 5) if y[: len(begin)] == begin]
        whole = built.log_prob(torch.tensor([every])).exp().sum()
        padded = [*begin, *[-1] * (5 - len(begin))]
        for y in (begin, padded):
            y = torch.tensor([y], dtype=torch.int64).reshape(1, len(y))
            assert_close(built.log_prob(y).exp(), whole[None])


def test_the_first_place_is_a_softmax_and_numbers_of_any_size_are_fine():
    scores = torch.tensor([[0.0, 800.0, -3e5, 2e9]])
    found = PlackettLuce(scores, 1).log_prob(torch.arange(4)[None, :, None])
    assert_close(found, scores.log_softmax(1))
    whole = PlackettLuce(scores).log_prob(torch.tensor([[3, 1, 0, 2]]))
    assert whole.tolist() == [0.0]


def test_samples_come_as_often_as_they_should():
    scores, n = drawn(2), 40_000
    ys = PlackettLuce(scores, 3).sample(n, torch.Generator().manual_seed(0))
    for b, row in enumerate(scores):
        every = rankings(row, 3)
        counts = dict.fromkeys(every, 0)
        for y, count in zip(*ys[b].unique(dim=0, return_counts=True), strict=True):
            counts[tuple(i for i in y.tolist() if i >= 0)] += int(count)
        for y, count in counts.items():
            p = log_prob(row, y).exp().item()
            assert abs(count / n - p) < 5 * math.sqrt(p * (1 - p) / n) + 1e-4


@pytest.mark.parametrize(("B", "N"), [(0, 3), (2, 0), (0, 0), (2, 1)])
def test_sizes_of_0_and_1(B, N):
    built = PlackettLuce(torch.zeros(B, N))
    value, y = built.decode()
    assert value.tolist() == [0.0] * B and y.shape == (B, N)
    assert built.sample(2).shape == (B, 2, N)
    assert built.decode_topk(2)[2].tolist() == [[True, False]] * B
    barred = PlackettLuce(torch.full((B, N), NONE))
    assert barred.decode()[1].tolist() == [[-1] * N] * B
    assert barred.lengths.tolist() == [0] * B


def test_rows_do_not_depend_on_each_other():
    scores = torch.cat([drawn(seed) for seed in range(3)])
    whole = PlackettLuce(scores, 3).decode_topk(7)
    for b in range(9):
        for x, y in zip(
            PlackettLuce(scores[[b]], 3).decode_topk(7), whole, strict=True
        ):
            assert_close(x[0], y[b], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([[0, 0]], r"y: expected items .* each once, .* got \[0, 0\] at row 0"),
        ([[-1, 0]], "y: "),
        ([[4, 0]], "y: "),
        ([[-2, 0]], "y: "),
        ([[3, 0]], "y: "),
        ([[0, 1, 2, 3, 0]], "y: "),
        ([0, 1], "y: "),
    ],
)
def test_what_is_no_ranking_is_refused(y, message):
    built = PlackettLuce(torch.tensor([[0.0, 1, 2, NONE]]))
    with pytest.raises(ValueError, match=message):
        built.log_prob(torch.tensor(y))


@pytest.mark.parametrize("loss", [StructuralHinge(), MinimumRisk(2)])
def test_losses_with_a_cost_of_parts_name_the_remedy(loss):
    rankings = PlackettLuce(torch.zeros(1, 3))
    with pytest.raises(TypeError, match=r"^cost: .* PlackettLuce. Pass cost=None, or"):
        loss(rankings, torch.tensor([[0, 1, 2]]))
