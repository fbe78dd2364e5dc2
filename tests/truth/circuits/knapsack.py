"""Knapsacks: all choices of elements that are not too heavy together."""

import torch

from smoothsp.oracles import Knapsack
from tests.truth.circuits.cases import Case, strings

WEIGHTS = (2, 0, 6, 4)


def weight(y):
    return sum(w for w, chosen in zip(WEIGHTS, y, strict=False) if chosen)


def case(generator):
    N = len(WEIGHTS)
    capacity, lengths = torch.tensor([7, 1, 99, 0, 10]), torch.tensor([4, 3, 4, 0, 2])
    outputs = [
        [
            torch.tensor([*y, *[-1] * (N - n)])
            for y in strings(2, n)
            if weight(y) <= most
        ]
        for most, n in zip(capacity.tolist(), lengths.tolist(), strict=True)
    ]
    return Case(
        lambda scores, **rest: Knapsack(scores, torch.tensor(WEIGHTS), **rest),
        {"scores": torch.zeros(len(lengths), N).double()},
        outputs,
        lambda b, y: [("scores", (b, *v)) for v in (y == 1).nonzero().tolist()],
        {"capacity": capacity, "lengths": lengths},
        wrong=lambda y, gold: ((y == 1) & (gold != 1)).sum(),
    )
