"""Matchings of all rows."""

import torch

from smoothsp.oracles import Matching
from tests.truth.circuits.cases import Case, strings


def matchings(P, Q, partial):
    """The column of each row, -1 for none."""
    return [
        y
        for y in (tuple(x - 1 for x in s) for s in strings(Q + 1, P))
        if len({x for x in y if x >= 0}) == sum(x >= 0 for x in y)
        and (partial or sum(x >= 0 for x in y) == min(P, Q))
    ]


def case(generator, P=3, Q=3, partial=False):
    def parts(b, y):
        pairs = enumerate(y.tolist())
        if partial:
            return [("scores", (b, i, j if j >= 0 else Q)) for i, j in pairs]
        return [("scores", (b, i, j)) for i, j in pairs if j >= 0]

    outputs = [torch.tensor(y) for y in matchings(P, Q, partial)]
    scores = torch.zeros(4, P, Q + partial).double()
    return Case(
        Matching, {"scores": scores}, [outputs] * 4, parts, {"partial": partial}
    )
