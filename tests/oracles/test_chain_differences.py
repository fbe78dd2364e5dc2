"""Losses and log-probabilities are differences that lose no digits.

The truth is enumeration in arithmetic of fifty digits, of the potentials as their dtype
holds them, with what is common to all outputs in the thousands, millions and billions.
"""

import itertools
from decimal import Decimal, localcontext

import pytest
import torch

from smoothsp.losses import (
    CRFLoss,
    MarginalLikelihood,
    StructuralHinge,
    StructuredPerceptron,
)
from smoothsp.oracles import Chain

DTYPES = (torch.float32, torch.float64)
OFFSETS = (0.0, 1e3, 1e6, 1e9)


def fifty(x):
    return [Decimal(v) for v in x.tolist()]


class Row:
    """Exact scores of all outputs of one row."""

    def __init__(self, emissions, transitions, start, end):
        T, S = emissions.shape
        nodes = [fifty(x) for x in emissions]
        steps = transitions if transitions.dim() == 3 else [transitions] * (T - 1)
        moves = [[fifty(x) for x in step] for step in steps]
        start, end = fifty(start), fifty(end)
        self.outputs = list(itertools.product(range(S), repeat=T))
        self.scores = {}
        for y in self.outputs:
            total = start[y[0]] + end[y[-1]] + sum(nodes[t][y[t]] for t in range(T))
            total += sum(moves[t][y[t]][y[t + 1]] for t in range(T - 1))
            self.scores[y] = total

    def log_sum(self, outputs):
        best = max(self.scores[y] for y in outputs)
        return best + sum((self.scores[y] - best).exp() for y in outputs).ln()

    def violation(self, gold):
        return max(
            self.scores[y] + sum(a != b for a, b in zip(y, gold, strict=True))
            for y in self.outputs
        )


def drawn(B, T, S, per_edge, offset, dtype):
    generator = torch.Generator().manual_seed(3)
    edges = (B, T - 1, S, S) if per_edge else (S, S)
    shapes = (B, T, S), edges, (S,), (S,)
    parts = [torch.randn(x, generator=generator, dtype=torch.float64) for x in shapes]
    emissions, transitions, start, end = (x.to(dtype) for x in parts)
    emissions = emissions + offset
    y = torch.randint(S, (B, T), generator=generator)
    return (emissions, transitions, start, end), y


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("B, per_edge", [(2, False), (18, False), (2, True)])
def test_a_common_offset_costs_no_digits(B, per_edge, offset, dtype):
    parts, y = drawn(B, 4, 3, per_edge, offset, dtype)
    allowed = (
        torch.rand((*y.shape, 3), generator=torch.Generator().manual_seed(1)) < 0.5
    )
    allowed.scatter_(2, y[..., None], True)
    chain = Chain(*(x.requires_grad_() for x in parts))
    with localcontext() as context:
        context.prec = 50
        chances, within, excess, behind = [], [], [], []
        for b in range(B):
            emissions, transitions, start, end = (x.detach() for x in parts)
            moves = transitions[b] if per_edge else transitions
            row, gold = Row(emissions[b], moves, start, end), tuple(y[b].tolist())
            log_z, score = row.log_sum(row.outputs), row.scores[gold]
            inside = [
                o for o in row.outputs if all(allowed[b, t, s] for t, s in enumerate(o))
            ]
            chances.append(float(score - log_z))
            within.append(float(row.log_sum(inside) - log_z))
            excess.append(float(row.violation(gold) - score))
            behind.append(float(max(row.scores.values()) - score))
    tolerance = 4e-7 if dtype == torch.float32 else 2e-15

    def close(found, expected):
        assert found.dtype == dtype
        expected = torch.tensor(expected, dtype=torch.float64)
        found = found.detach().double()
        # one rounding of the numbers that are left, which are of order 1
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)

    close(chain.log_prob(y), chances)
    close(chain.log_prob(torch.stack((y, y), 1))[:, 1], chances)
    close(chain.log_prob_within(allowed), within)
    close(-CRFLoss(reduction="none")(chain, y), chances)
    close(-MarginalLikelihood(reduction="none")(chain, allowed), within)
    for loss, expected in (
        (CRFLoss(), [-x for x in chances]),
        (StructuralHinge(), excess),
        (StructuredPerceptron(), behind),
    ):
        close(loss(chain, y), sum(expected) / B)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("B", [1, 20])
@pytest.mark.parametrize("per_edge", [False, True])
def test_a_chain_of_one_label_costs_nothing(B, per_edge, dtype):
    for T in (1, 2, 7):
        for start, end in ((0.0, 0.3), (0.3, 0.0), (0.1, 1e9)):
            emissions = torch.full((B, T, 1), 1e6 + 0.5, dtype=dtype)
            edges = (B, T - 1, 1, 1) if per_edge else (1, 1)
            moves = torch.full(edges, 0.7, dtype=dtype)
            ends = torch.tensor([[start], [end]], dtype=dtype)
            chain = Chain(emissions, moves, *ends)
            y = torch.zeros(B, T, dtype=torch.int64)
            assert CRFLoss()(chain, y).item() == 0
            assert not chain.log_prob(y).any()
            assert StructuralHinge()(chain, y).item() == 0
