"""Scores near the ends of their dtype: the exact value, or an error that names them.

The truth is enumeration in fractions, as for chains.
"""

import itertools
import math
import re
from fractions import Fraction
from functools import partial

import pytest
import torch
from torch.testing import assert_close

from smoothsp.losses import L2, CRFLoss, Entropy, StructuralHinge, StructuredPerceptron
from smoothsp.oracles import Multiclass
from tests.sweeps import thinned
from tests.truth.circuits.cases import KINDS, Case, draw

MU = 0.5
LARGE = {
    torch.float32: [1e38, -1e38, torch.finfo(torch.float32).min],
    torch.float64: [1e300, torch.finfo(torch.float64).max, -1.7e308],
}
NAMED = r"^(\w+): expected "


def choices():
    """The structure of one position, whose potentials are its scores."""
    rows = [[torch.tensor(i) for i in range(4)] for _ in range(3)]
    return Case(
        lambda scores: Multiclass(scores),
        {"scores": torch.randn(3, 4, generator=torch.Generator().manual_seed(0))},
        rows,
        lambda b, y: [("scores", (b, int(y)))],
    )


def cases(kind, dtype):
    """Some potentials are large, in one case all of them."""
    generator = torch.Generator().manual_seed(1)
    for value, share in itertools.product(LARGE[dtype], (0.3, 1.0)):
        case = choices() if kind == "multiclass" else draw(kind, 0, forbid=False)

        def some(x, value=value, share=share):
            x = x.to(dtype)
            return x.where(torch.rand(x.shape, generator=generator) >= share, value)

        yield case.map(some)


def exact(case, b):
    """Scores of all outputs of a row."""
    numbers = {name: x.tolist() for name, x in case.potentials.items()}

    def entry(name, place):
        found = numbers[name]
        for i in place:
            found = found[i]
        return Fraction(found)

    ys = case.outputs[b]
    return [sum((entry(*part) for part in case.parts(b, y)), Fraction(0)) for y in ys]


def number(x):
    try:
        return float(x)
    except OverflowError:
        return math.inf if x > 0 else -math.inf


def log_sum(scores, mu=Fraction(1)):
    """``mu log sum exp(scores / mu)``."""
    top = max(scores)
    total = math.fsum(math.exp(number((s - top) / mu)) for s in scores)
    return top + mu * Fraction(math.log(total))


def l2(scores):
    """The maximum smoothed over the two best, by its formula."""
    first, second = sorted(scores, reverse=True)[:2]
    mu = Fraction(MU)
    u = min(max((first - second + mu) / (2 * mu), Fraction(1, 2)), Fraction(1))
    return u * first + (1 - u) * second - mu / 2 * (u * u + (1 - u) ** 2 - 1)


def answers_or_refuses(ask, expected, sizes, names, dtype):
    """Whether the numbers come, as exact as their dtype, or else an error by name.

    ``sizes`` of the scores whose difference is taken, which are rounded.
    """
    try:
        found = ask()
    except ValueError as error:
        name = re.match(NAMED, str(error))
        assert name, error
        assert name[1] in names, error
        return False
    info = torch.finfo(dtype)
    nearest = torch.tensor([number(x) for x in expected], dtype=torch.float64)
    assert nearest.to(dtype).isfinite().all(), found
    for a, b, size in zip(found.reshape(-1).tolist(), expected, sizes, strict=True):
        slack = 8 * info.eps * number(size) + 1e-4
        assert math.isfinite(a)
        assert number(abs(Fraction(a) - b)) <= slack, (found, number(b))
    return True


@pytest.mark.parametrize(
    ("kind", "dtype"), thinned(itertools.product([*KINDS, "multiclass"], LARGE), 3)
)
def test_answers_are_exact_or_refused_by_name(kind, dtype):
    answered = [
        answers_or_refuses(*question, dtype)
        for case in cases(kind, dtype)
        for question in questions(case)
    ]
    assert any(answered)


def questions(case):
    """Of each question how to ask it, the truth, its parts, what an error may name."""
    built, names = case.structure(), set(case.potentials)
    gold = torch.stack([ys[0] for ys in case.outputs])
    scores = [exact(case, b) for b in range(len(case))]
    target = [row[0] for row in scores]
    best = [max(row) for row in scores]
    z = [log_sum(row) for row in scores]
    yield lambda: built.decode()[0], best, map(abs, best), names
    yield lambda: built.score(gold), target, map(abs, target), names
    yield built.log_partition, z, map(abs, z), names
    yield lambda: built.log_prob(gold), subtract(target, z), larger(target, z), names
    for smoothing, tops in (
        (None, best),
        (Entropy(MU), [log_sum(row, Fraction(MU)) for row in scores]),
        (L2(MU, 2), [l2(row) if len(row) > 1 else row[0] for row in scores]),
    ):
        expected, sizes = subtract(tops, target), larger(tops, target)
        some = names | {"structure", "mu", "reduction"}
        loss = StructuralHinge(smoothing, cost=None, reduction="none")
        yield partial(loss, built, gold), expected, sizes, some
        loss = StructuralHinge(smoothing, cost=None, reduction="sum")
        yield partial(loss, built, gold), [sum(expected)], [sum(sizes)], some


def subtract(one, other):
    return [a - b for a, b in zip(one, other, strict=True)]


def larger(one, other):
    return [max(abs(a), abs(b)) for a, b in zip(one, other, strict=True)]


@pytest.mark.parametrize("dtype", LARGE, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_a_mask_of_the_lowest_number_is_as_good_as_minus_infinity(kind, dtype):
    case = draw(kind, 1, forbid=True).map(lambda x: x.to(dtype))
    lowest = torch.finfo(dtype).min
    masked = case.map(lambda x: x.masked_fill(x == -math.inf, lowest)).structure()
    barred = case.structure()
    for ask in (
        lambda s: s.decode()[0],
        lambda s: s.log_partition(),
        lambda s: s.marginals(),
        lambda s: s.entropy(),
    ):
        assert_close(ask(masked), ask(barred), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_factor_that_leaves_the_dtype_is_named(kind):
    case = draw(kind, 0, forbid=True).map(lambda x: x.float())
    with pytest.raises(ValueError, match="factor: expected products that torch"):
        case.structure().scale(1e300)
    tiny = case.structure().scale(1e-300)
    assert_close(tiny.log_partition(), tiny.log_count())
    with pytest.raises(ValueError, match="mu: expected scores / mu"):
        wide = case.map(lambda x: 1e25 * x).structure()
        StructuralHinge(Entropy(1e-18))(wide, wide.decode()[1])


@pytest.mark.parametrize("kind", ["tree", "multiclass", "chain"])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean", "token_mean"])
@pytest.mark.parametrize("smoothing", [None, Entropy(MU), L2(MU, 2)], ids=str)
def test_weights_are_exact_or_refused(kind, reduction, smoothing):
    case = choices() if kind == "multiclass" else draw(kind, 0, forbid=False)
    case = case.map(lambda x: 10 * x.float())
    gold = torch.stack([ys[0] for ys in case.outputs])
    loss = StructuralHinge(smoothing, reduction=reduction)
    each = StructuralHinge(smoothing, reduction="none")(case.structure(), gold)
    weight = torch.full((len(case),), 3e38)
    if reduction in ("none", "sum"):
        with pytest.raises(ValueError, match=r"^(weight|reduction): expected "):
            loss(case.structure(), gold, weight=weight)
    else:
        plain = loss(case.structure(), gold, weight=torch.ones(len(case)))
        assert_close(loss(case.structure(), gold, weight=weight), plain)
    assert each.isfinite().all()


@pytest.mark.parametrize("loss", [CRFLoss(), StructuredPerceptron()], ids=str)
def test_losses_of_large_scores_are_refused_by_name(loss):
    case = draw("tree", 0, forbid=False).map(lambda x: x.float().sign() * 3e38)
    y = torch.stack([ys[0] for ys in case.outputs])
    with pytest.raises(ValueError, match=NAMED):
        loss(case.structure(), y)
