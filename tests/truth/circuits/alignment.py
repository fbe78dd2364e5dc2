"""Alignments of two sequences: all of them, move by move."""

import torch

from smoothsp.oracles import Alignment
from tests.truth.circuits.cases import Case

MOVES = ((1, 1), (1, 0), (0, 1))  # a match, one of the first alone, one of the second


def paths(n, m):
    """All lists of (i, j, move) from the beginning to the ends."""
    if n == m == 0:
        return [[]]
    found = []
    for move, (down, right) in enumerate(MOVES):
        if n >= down and m >= right:
            i, j = n - down, m - right
            found += [[*path, (i, j, move)] for path in paths(i, j)]
    return found


def as_output(path, N, M):
    y = torch.full((N + 1, M + 1), -1)
    for i, j, move in path:
        y[i, j] = move
    return y


def case(generator, affine=False):
    first, second = torch.tensor([3, 2, 0, 1, 0]), torch.tensor([2, 2, 0, 2, 1])
    B, N, M = len(first), 3, 2

    def parts(b, y):
        found = []
        for i, j in (y >= 0).nonzero().tolist():
            name = ("match", "gap_first", "gap_second")[y[i, j]]
            found.append((name, {0: (b, i, j), 1: (b, i), 2: (b, j)}[int(y[i, j])]))
            if affine and y[i, j]:
                i0, j0 = (i - 1, j) if y[i, j] == 1 else (i, j - 1)
                goes_on = min(i0, j0) >= 0 and y[i0, j0] == y[i, j]
                found.append(("gap_extend" if goes_on else "gap_open", (b,)))
        return found

    shapes = {"match": (B, N, M), "gap_first": (B, N), "gap_second": (B, M)}
    if affine:
        shapes |= {"gap_open": (B,), "gap_extend": (B,)}
    return Case(
        Alignment,
        {name: torch.zeros(shape).double() for name, shape in shapes.items()},
        [
            [as_output(path, N, M) for path in paths(n, m)]
            for n, m in zip(first.tolist(), second.tolist(), strict=True)
        ],
        parts,
        {"lengths_first": first, "lengths_second": second},
        wrong=matches_wrong,
    )


def matches_wrong(y, gold):
    return ((y == 0) & (gold != 0)).sum()
