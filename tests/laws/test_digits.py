"""Losses are differences that lose no digits: against arithmetic with 50 of them."""

import decimal
import itertools
from decimal import Decimal

import pytest
import torch

from smoothsp.losses import L2, Entropy
from smoothsp.losses import functional as F
from tests.laws.test_numbers import choices
from tests.sweeps import thinned
from tests.truth.circuits.cases import KINDS, SUMMED, draw

OFFSETS = (1e6, 1e9, 1e3, 1e11)
DTYPES = (torch.float64, torch.float32)
MU = Decimal("0.5")


@pytest.mark.parametrize(
    ("dtype", "offset"), thinned(itertools.product(DTYPES, OFFSETS), 4, 1), ids=str
)
@pytest.mark.parametrize("kind", [*KINDS, *SUMMED, "multiclass"])
def test_a_common_offset_takes_no_digits_of_a_loss(kind, dtype, offset):
    generator = torch.Generator().manual_seed(0)
    case = choices(generator) if kind == "multiclass" else draw(kind, 0, forbid=False)
    case = case.map(lambda x: (x + offset).to(dtype))
    gold = torch.stack([outputs[len(outputs) // 2] for outputs in case.outputs])
    built = case.structure()
    found = {
        "likelihood": F.crf_nll(built, gold),
        "perceptron": F.perceptron(built, gold),
        # over a power of two, so that potentials over mu are exact
        "entropy": F.structural_hinge(built, gold, smoothing=Entropy(0.5), cost=None),
        "L2": F.structural_hinge(built, gold, smoothing=L2(0.5, 2), cost=None),
    }
    with decimal.localcontext(decimal.Context(prec=50)):
        for b, outputs in enumerate(case.outputs):
            scores = exact(case, b)
            above = [score - scores[len(outputs) // 2] for score in scores]
            truth = {
                "likelihood": log_sum(above, Decimal(1)),
                "perceptron": max(above),
                "entropy": log_sum(above, MU),
                "L2": l2(above),
            }
            for name, true in truth.items():
                error = abs(Decimal(found[name][b].item()) - true)
                unit = Decimal(torch.finfo(dtype).eps)
                assert error <= 8 * unit * max(abs(true), 1), (name, b)


def exact(case, b):
    """Scores of all outputs of a row."""
    numbers = {name: x.tolist() for name, x in case.potentials.items()}

    def entry(name, place):
        found = numbers[name]
        for i in place:
            found = found[i]
        return Decimal(found)

    return [sum(entry(*part) for part in case.parts(b, y)) for y in case.outputs[b]]


def log_sum(scores, mu):
    """``mu log sum exp(scores / mu)``."""
    top = max(scores)
    return top + mu * sum(((s - top) / mu).exp() for s in scores).ln()


def l2(scores):
    """The maximum smoothed over the two best, by its formula."""
    if len(scores) == 1:
        return scores[0]
    first, second = sorted(scores, reverse=True)[:2]
    u = min((first - second + MU) / (2 * MU), Decimal(1))
    return u * first + (1 - u) * second - MU / 2 * (u * u + (1 - u) ** 2 - 1)
