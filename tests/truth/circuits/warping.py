"""Warping paths: all lists of pairs from the first to the last."""

import torch

from smoothsp.oracles import Warping
from tests.truth.circuits.cases import Case


def paths(i, j):
    """All paths from the pair (0, 0) to (i, j)."""
    if i == j == 0:
        return [[(0, 0)]]
    before = [(i - 1, j - 1), (i - 1, j), (i, j - 1)]
    inside = [(k, m) for k, m in before if k >= 0 and m >= 0]
    return [[*path, (i, j)] for k, m in inside for path in paths(k, m)]


def case(generator):
    first, second = torch.tensor([3, 2, 0, 1, 2]), torch.tensor([4, 3, 0, 2, 1])
    B, N, M = len(first), 3, 4
    outputs = []
    for n, m in zip(first.tolist(), second.tolist(), strict=True):
        outputs.append([])
        for path in paths(n - 1, m - 1) if n else [[]]:
            y = torch.full((N, M), -1)
            for pair in path:
                y[pair] = 0
            outputs[-1].append(y)
    return Case(
        Warping,
        {"match": torch.zeros(B, N, M).double()},
        outputs,
        lambda b, y: [("match", (b, *pair)) for pair in (y == 0).nonzero().tolist()],
        {"lengths_first": first, "lengths_second": second},
        wrong=lambda y, gold: ((y == 0) & (gold != 0)).sum(),
    )
