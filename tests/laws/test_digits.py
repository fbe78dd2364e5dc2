"""Losses are differences that lose no digits: against arithmetic with 50 of them."""

import decimal
import itertools
from dataclasses import replace
from decimal import Decimal

import pytest
import torch

from smoothsp import losses
from smoothsp.losses import L2, Entropy
from smoothsp.losses import functional as F
from smoothsp.oracles import Chain, IntegerProgram
from tests.laws.test_numbers import choices, first
from tests.sweeps import thinned
from tests.truth.circuits.cases import KINDS, SEARCHES, draw

OFFSETS = (1e6, 1e9, 1e3, 1e11)
DTYPES = (torch.float64, torch.float32)
MU = Decimal("0.5")
# Scores that are sums of entries; springs are multiplied by distances.
OF_ENTRIES = [x for x in SEARCHES if not x.startswith("pictorial_structure")]


# a step that shares no factor with the number of offsets meets all of them
@pytest.mark.parametrize(
    ("kind", "dtype", "offset"),
    thinned(
        itertools.product([*KINDS, *OF_ENTRIES, "multiclass"], DTYPES, OFFSETS), 11
    ),
    ids=str,
)
def test_a_common_offset_takes_no_digits_of_a_loss(kind, dtype, offset):
    generator = torch.Generator().manual_seed(0)
    case = choices(generator) if kind == "multiclass" else draw(kind, 0, forbid=False)
    if kind.startswith("shortest_path"):
        offset = -offset  # cycles have scores of at most 0
    moved = {name: x + offset for name, x in case.potentials.items()}
    case = replace(case, potentials=case.repair(moved)).map(lambda x: x.to(dtype))
    gold = torch.stack([outputs[len(outputs) // 2] for outputs in case.outputs])
    case = case.leaves()
    built = case.structure()
    # over a power of two, so that potentials over mu are exact
    soft = Entropy(0.5)
    found = {
        "perceptron": F.perceptron(built, gold),
        "L2": F.structural_hinge(built, gold, smoothing=L2(0.5, 2), cost=None),
    }
    sums = hasattr(built, "log_partition")
    if sums:
        found["likelihood"] = F.crf_nll(built, gold)
        found["entropy"] = F.structural_hinge(built, gold, smoothing=soft, cost=None)
    if kind != "box_search":  # its costs are of boxes
        cost = built.hamming(gold).detach()
        found["hinge"] = F.structural_hinge(built, gold)
        found["hinge, L2"] = F.structural_hinge(built, gold, smoothing=L2(0.5, 2))
        found["SPO+"] = losses.SPOPlus("none")(built, gold, cost)
        if sums:
            found["hinge, entropy"] = F.structural_hinge(built, gold, smoothing=soft)
    with decimal.localcontext(decimal.Context(prec=50)):
        for b, outputs in enumerate(case.outputs):
            scores = exact(case, b)
            above = [score - scores[len(outputs) // 2] for score in scores]
            truth = {"perceptron": max(above), "L2": l2(above)}
            if sums:
                truth["likelihood"] = log_sum(above, Decimal(1))
                truth["entropy"] = log_sum(above, MU)
            if kind != "box_search":
                paid = exact(replace(case, potentials={first(case): cost}), b)
                with_cost = [x + c for x, c in zip(above, paid, strict=True)]
                truth["hinge"] = max(with_cost)
                truth["hinge, L2"] = l2(with_cost)
                truth["SPO+"] = max(2 * x - c for x, c in zip(above, paid, strict=True))
                if sums:
                    truth["hinge, entropy"] = log_sum(with_cost, MU)
                    slope = slopes(found["entropy"][b], case)
                    for name, x in used(case, b, softmax(above, MU)).items():
                        gap = slope[name].double() - x
                        assert (gap.abs() <= 64 * unit_of(dtype)).all(), (name, b)
            assert truth.keys() == found.keys()
            for name, true in truth.items():
                error = abs(Decimal(found[name][b].item()) - true)
                unit = Decimal(unit_of(dtype))
                assert error <= 8 * unit * max(abs(true), 1), (name, b)


def unit_of(dtype):
    return torch.finfo(dtype).eps


def slopes(loss, case):
    """Gradients of a loss by the names of the potentials."""
    found = torch.autograd.grad(
        loss, list(case.potentials.values()), retain_graph=True, materialize_grads=True
    )
    return dict(zip(case.potentials, found, strict=True))


def softmax(scores, mu):
    top = max(scores)
    weights = [((s - top) / mu).exp() for s in scores]
    return [float(x / sum(weights)) for x in weights]


def used(case, b, chances):
    """How often outputs of these chances use each entry, less the middle output."""
    found = {n: torch.zeros(x.shape).double() for n, x in case.potentials.items()}
    for i, (y, chance) in enumerate(zip(case.outputs[b], chances, strict=True)):
        for name, place in case.parts(b, y):
            found[name][place] += chance - (i == len(chances) // 2)
    return found


def exact(case, b):
    """Scores of all outputs of a row."""
    numbers = {name: x.tolist() for name, x in case.potentials.items()}

    def entry(name, place):
        found = numbers[name]
        for i in place:
            found = found[i]
        return Decimal(found)

    return [
        sum(entry(*part) for part in case.parts(b, y) if part[0] in numbers)
        for y in case.outputs[b]
    ]


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


@pytest.mark.parametrize("offset", [0.0, 1e9])
def test_losses_of_float32_keep_the_digits_of_costs_and_noise(offset):
    """All labels are equal: the loss of a row is that of what is added to them."""
    chain = Chain(torch.full((2, 5, 3), offset), torch.zeros(3, 3))
    # HiGHS has a relative tolerance of 1e-9
    scores = torch.full((2, 4), min(offset, 1e5))
    program = IntegerProgram(scores, (torch.ones(1, 4), 2, 2))
    y = torch.zeros(2, 5, dtype=torch.int64)
    some = torch.tensor([[1, 1, 0, 0]] * 2)
    level = Chain(torch.zeros(2, 5, 3), torch.zeros(3, 3))
    plain = IntegerProgram(torch.zeros(2, 4), (torch.ones(1, 4), 2, 2))
    for given, same, gold in ((chain, level, y), (program, plain, some)):
        cost = 0.3 * given.hamming(gold)
        for loss, more in (
            (losses.StructuralHinge(cost_scale=0.3), ()),
            (losses.StructuralHinge(cost=cost), ()),
            (losses.SPOPlus(), (cost,)),
            (losses.PerturbedLoss(samples=3, seed=0), ()),
            (losses.SparseMAPLoss(cost="hamming"), ()),
        ):
            for reduction in ("none", "sum"):
                loss.reduction = reduction
                found, expected = (loss(x, gold, *more) for x in (given, same))
                torch.testing.assert_close(found, expected, msg=str(loss))
    found = losses.LatentHinge(reduction="none")(chain, chain.hamming(y) == 0)
    torch.testing.assert_close(found, torch.full((2,), 5.0))
    decide = losses.ImplicitMLE(3, seed=0)
    torch.testing.assert_close(decide(chain), decide(level))
