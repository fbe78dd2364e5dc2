"""Scores near the ends of their dtype: the exact value, or an error that names them.

The truth is enumeration in fractions. An answer that rounds to a number of the dtype
has to be that number; any other has to be refused.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from smoothsp.losses import CRFLoss, Entropy, StructuralHinge, StructuredPerceptron
from smoothsp.oracles import Chain, Multiclass

DTYPES = (torch.float32, torch.float64)
NAMES = "emissions", "transitions", "start", "end"


class Truth:
    """One row: exact scores of all outputs."""

    def __init__(self, emissions, transitions, start, end, mask, cost=None):
        T, S = emissions.shape
        positions = mask.nonzero().flatten().tolist()
        self.positions, self.shape = positions, (T, S)
        self.outputs = list(itertools.product(range(S), repeat=len(positions)))
        self.parts = (emissions, transitions, start, end)
        self.cost = cost
        self.scores = [self.score(y) for y in self.outputs]
        allowed = [s for s in self.scores if s is not None]
        self.best = max(allowed)
        self.below = [
            -math.inf if s is None else number(s - self.best) for s in self.scores
        ]
        weights = [math.exp(d) for d in self.below]
        self.z = math.fsum(weights)
        self.chances = [w / self.z for w in weights]

    def used(self, y):
        emissions, transitions, start, end = self.parts
        for n, (t, j) in enumerate(zip(self.positions, y, strict=True)):
            yield emissions[t, j]
            if n == 0:
                yield start[j]
            else:
                at = (y[n - 1], j)
                yield (
                    transitions[at]
                    if transitions.ndim == 2
                    else transitions[(t - 1, *at)]
                )
        if y:
            yield end[y[-1]]

    def score(self, y):
        values = [x.item() for x in self.used(y)]
        if -math.inf in values:
            return None
        paid = 0
        if self.cost is not None:
            gold, scale = self.cost
            paid = Fraction(scale) * sum(i != j for i, j in zip(y, gold, strict=True))
        return sum((Fraction(x) for x in values), Fraction(paid))

    def log_partition(self):
        return self.best + Fraction(math.log(self.z))

    def marginals(self):
        found = np.zeros(self.shape)
        for y, chance in zip(self.outputs, self.chances, strict=True):
            for t, j in zip(self.positions, y, strict=True):
                found[t, j] += chance
        return torch.from_numpy(found)

    def entropy(self):
        return -math.fsum(p * math.log(p) for p in self.chances if p > 0)


def number(x):
    """The nearest float64 of a fraction, infinite beyond."""
    try:
        return float(x)
    except OverflowError:
        return math.inf if x > 0 else -math.inf


def rounded(x, dtype):
    """The nearest number of the dtype, None if it has none; -inf of no fraction."""
    if x is None:
        return -math.inf
    value = torch.tensor(number(x), dtype=torch.float64).to(dtype).item()
    return value if math.isfinite(value) else None


def pool(dtype):
    info = torch.finfo(dtype)
    large = [
        info.max,
        info.min,
        info.max / 3,
        info.min / 3,
        info.max**0.6,
        -(info.max**0.6),
    ]
    return large, [0.0, 1.0, -2.0, 0.5, 3.0]


def draw(generator, dtype, per_edge, kind):
    """Potentials of one row, and its mask."""
    large, small = pool(dtype)
    values = {
        "any": large + small + [-math.inf],
        "large": large,
        "masks": [large[1]] * 2 + small * 2,
        "penalties": [large[1]] * 6 + small,
    }[kind]
    T, S = 3, 2 + int(torch.randint(2, (), generator=generator))

    def some(*shape):
        places = torch.randint(len(values), shape, generator=generator)
        return torch.tensor(values, dtype=dtype)[places]

    edges = (T - 1, S, S) if per_edge else (S, S)
    parts = [some(T, S), some(*edges), some(S), some(S)]
    mask = torch.rand(T, generator=generator) < 0.8
    mask[torch.randint(T, (), generator=generator)] = True
    return parts, mask


def instances(dtype):
    generator = torch.Generator().manual_seed(3)
    kinds = ("any", "large", "masks", "penalties")
    for kind, per_edge in itertools.product(kinds, (False, True)):
        for _ in range(12):
            parts, mask = draw(generator, dtype, per_edge, kind)
            try:
                truth = Truth(*parts, mask)
            except ValueError:  # nothing is allowed
                continue
            y = torch.randint(parts[0].shape[1], (len(mask),), generator=generator)
            yield truth, parts, mask, y


def chain_of(parts, mask):
    emissions, transitions, start, end = (x.clone().requires_grad_() for x in parts)
    moves = transitions if transitions.ndim == 2 else transitions[None]
    chain = Chain(emissions[None], moves, start, end, mask=mask[None])
    return chain, (emissions, transitions, start, end)


def check(expected, dtype, ask, *arguments):
    """The expected number, or an error if it is None."""
    if expected is None:
        with pytest.raises(ValueError, match=f"^({'|'.join(NAMES)}): expected scores"):
            ask(*arguments)
        return None
    found = ask(*arguments)
    rtol = 1e-6 if dtype == torch.float32 else 1e-12
    truth = torch.full(found.shape, expected, dtype=dtype)
    assert found.dtype == dtype
    torch.testing.assert_close(found, truth, rtol=rtol, atol=rtol)
    return found


def close(found, truth, dtype):
    tolerance = 2e-6 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(found.double(), truth, rtol=tolerance, atol=tolerance)


def emissions_slope(value, leaves):
    return torch.autograd.grad(value.sum(), leaves[0], retain_graph=True)[0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_are_exact_or_refused(dtype):
    for truth, parts, mask, _ in instances(dtype):
        chain, leaves = chain_of(parts, mask)
        marginals = truth.marginals()
        close(chain.marginals()[0], marginals, dtype)
        close(
            chain.entropy()[0],
            torch.tensor(truth.entropy(), dtype=torch.float64),
            dtype,
        )
        value = check(rounded(truth.log_partition(), dtype), dtype, chain.log_partition)
        if value is not None:
            close(emissions_slope(value, leaves), marginals, dtype)
        edges = chain.edge_marginals()[0]
        into = [float(t in truth.positions[1:]) for t in range(1, len(mask))]
        close(edges.sum((1, 2)), torch.tensor(into, dtype=torch.float64), dtype)
        assert edges.dtype == dtype
        draws = chain.sample(40)[0]
        seen = {tuple(y[mask].tolist()) for y in draws}
        likely = {y for y, p in zip(truth.outputs, truth.chances, strict=True) if p > 0}
        assert seen <= likely


@pytest.mark.parametrize("dtype", DTYPES)
def test_outputs_are_exact_or_refused(dtype):
    for truth, parts, mask, y in instances(dtype):
        chain, leaves = chain_of(parts, mask)
        labels = tuple(y[mask].tolist())
        counts = torch.zeros(truth.shape, dtype=torch.float64)
        counts[truth.positions, list(labels)] = 1
        exact = truth.score(labels)
        value = check(rounded(exact, dtype), dtype, chain.score, y[None])
        if value is not None and exact is not None:
            close(emissions_slope(value, leaves), counts, dtype)
        ahead = None if exact is None else exact - truth.log_partition()
        for given in (y[None], y[None, None]):
            value = check(rounded(ahead, dtype), dtype, chain.log_prob, given)
            if value is not None and exact is not None:
                slope = emissions_slope(value, leaves)
                close(slope, counts - truth.marginals(), dtype)
        check(rounded(ahead, dtype), dtype, chain.log_likelihood, y[None])
        behind = math.inf if exact is None else rounded(-ahead, dtype)
        check(behind, dtype, CRFLoss(), chain, y[None])


def used_by(truth, y):
    return None if y[0] < 0 else truth.score(tuple(y.tolist()))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_best_outputs_are_exact_or_refused(dtype):
    for truth, parts, mask, _ in instances(dtype):
        chain, leaves = chain_of(parts, mask)
        best = rounded(truth.best, dtype)
        value = check(best, dtype, lambda chain: chain.decode()[0], chain)
        if value is not None:
            y = chain.decode()[1][0, mask]
            assert truth.score(tuple(y.tolist())) == truth.best
            slope = emissions_slope(value, leaves)
            assert slope.sum() == len(y)
        ranked = sorted((s for s in truth.scores if s is not None), reverse=True)[:5]
        expected = [rounded(s, dtype) for s in ranked]
        if None in expected:
            with pytest.raises(ValueError, match="expected scores"):
                chain.decode_topk(5)
            continue
        values, ys, valid = chain.decode_topk(5)
        assert int(valid.sum()) == len(ranked)
        truths = torch.tensor(expected, dtype=dtype)
        torch.testing.assert_close(values[0, : len(ranked)], truths)
        assert len(set(map(tuple, ys[valid].tolist()))) == len(ranked)


@pytest.mark.parametrize("dtype", DTYPES)
def test_violations_are_exact_or_refused(dtype):
    for truth, parts, mask, y in instances(dtype):
        chain, _ = chain_of(parts, mask)
        labels = tuple(y[mask].tolist())
        gold = truth.score(labels)
        for scale in (0.0, 1.0, 1e30):
            costly = Truth(*parts, mask, cost=(labels, scale))
            expected = math.inf if gold is None else rounded(costly.best - gold, dtype)
            check(expected, dtype, chain.violation, y[None], 1.0, scale)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_leaves_the_range_is_refused_by_name(dtype):
    top = torch.finfo(dtype).max
    emissions = torch.tensor([[[1.0, -2.0]]], dtype=dtype)
    chain = Chain(emissions, torch.zeros(2, 2, dtype=dtype))
    with pytest.raises(ValueError, match=r"^factor: expected products that .* holds"):
        chain.scale(top)
    assert chain.scale(top / 2).emissions.tolist() == [[[top / 2, -top]]]
    low = Chain(emissions - top, torch.zeros(2, 2, dtype=dtype))
    with pytest.raises(ValueError, match=r"^cost: expected sums with the emissions"):
        low.augment(torch.full_like(emissions, -top))
    with pytest.raises(ValueError, match=r"^cost: expected no NaN and no \+inf"):
        Chain(emissions + top, torch.zeros(2, 2, dtype=dtype)).augment(emissions + top)
    for name in NAMES:
        shapes = {
            "emissions": (2, 3, 2),
            "transitions": (2, 2),
            "start": (2,),
            "end": (2,),
        }
        parts = {k: torch.zeros(v, dtype=dtype) for k, v in shapes.items()}
        parts[name] += top
        # a score that every output pays leaves no trace but in its own sum
        wrong = Chain(**parts)
        close(wrong.marginals(), torch.full((2, 3, 2), 0.5).double(), dtype)
        if name in ("emissions", "transitions"):
            with pytest.raises(
                ValueError, match=rf"^{name}: expected scores .* in row 0"
            ):
                wrong.log_partition()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("per_edge", [False, True])
def test_the_lowest_number_masks_as_a_mask_does(dtype, per_edge):
    """At positions whose labels all have it, and at single labels."""
    generator = torch.Generator().manual_seed(0)
    B, T, S = 3, 6, 4
    emissions = torch.randn(B, T, S, generator=generator, dtype=dtype)
    moves = (
        torch.zeros(B, T - 1, S, S, dtype=dtype)
        if per_edge
        else torch.zeros(S, S, dtype=dtype)
    )
    mask = torch.ones(B, T, dtype=torch.bool)
    mask[0, 5] = False
    hidden = torch.rand(B, T, S, generator=generator) < 0.3
    hidden[..., 0] = False
    lowest = torch.finfo(dtype).min
    low = emissions.masked_fill(hidden, lowest).masked_fill(~mask[..., None], lowest)
    chain = Chain(low, moves)
    true = Chain(emissions.masked_fill(hidden, -torch.inf), moves, mask=mask)
    torch.testing.assert_close(chain.marginals()[mask], true.marginals()[mask])
    assert torch.equal(chain.decode()[1][mask], true.decode()[1][mask])
    # its score has no room for two such positions, its chances do not care
    twice = torch.cat([low, low[:, 5:]], 1)
    more = torch.cat([moves, moves[:, 4:]], 1) if per_edge else moves
    twice = Chain(twice[:1], more[:1] if per_edge else more)
    torch.testing.assert_close(twice.marginals()[0, :5], true.marginals()[0, :5])
    with pytest.raises(ValueError, match=r"^emissions: expected scores .* mask"):
        twice.decode()
    ys = true.decode_topk(4)[1]
    found = Chain(low[1:], moves[1:] if per_edge else moves).decode_topk(4)
    torch.testing.assert_close(found[0], true.decode_topk(4)[0][1:])
    assert torch.equal(found[1], ys[1:])


def test_losses_of_large_scores():
    emissions = torch.tensor([[[3e38, 0.0], [3e38, 0.0]]], requires_grad=True)
    chain = Chain(emissions, torch.zeros(2, 2))
    right, wrong = torch.tensor([[0, 0]]), torch.tensor([[1, 0]])
    for loss in (CRFLoss(), StructuredPerceptron()):
        assert loss(chain, right).item() == 0
        torch.testing.assert_close(loss(chain, wrong), torch.tensor(3e38))
        with pytest.raises(ValueError, match=r"^emissions: expected scores"):
            loss(chain, torch.tensor([[1, 1]]))
    for smoothing in (None, Entropy(1.0)):
        with pytest.raises(ValueError, match=r"^emissions: expected scores"):
            StructuralHinge(smoothing, reduction="none")(chain, wrong)


@pytest.mark.parametrize("dtype", DTYPES)
def test_choices_with_large_scores_are_exact_or_refused(dtype):
    top = torch.finfo(dtype).max
    scores = torch.tensor([[top, -top, 0.0, -torch.inf]], dtype=dtype)
    choice = Multiclass(scores.requires_grad_())
    assert choice.entropy().item() == 0
    assert torch.autograd.grad(choice.entropy().sum(), scores)[0].tolist() == [[0] * 4]
    assert choice.log_partition().item() == top
    assert choice.log_prob(torch.tensor([2])).item() == -top
    assert choice.log_prob(torch.tensor([3])).item() == -math.inf
    with pytest.raises(ValueError, match=r"^scores: expected a log-probability"):
        choice.log_prob(torch.tensor([1]))
    with pytest.raises(ValueError, match=r"^factor: expected products with the scores"):
        choice.scale(2.0)
    with pytest.raises(ValueError, match=r"^cost: expected sums with the scores"):
        choice.augment(torch.full_like(scores, -top))
    small = choice.scale(1e-300).scores
    assert small[0, 3] == -math.inf and bool(small[0, :3].isfinite().all())
