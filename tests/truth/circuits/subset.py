"""Subsets: all choices of elements, less those of too many or too few."""

import torch

from smoothsp.oracles import Subset
from tests.truth.circuits.cases import Case, strings


def case(generator):
    B, N = 5, 4
    low, high = torch.tensor([1, 0, 2, 0, 0]), torch.tensor([3, 1, 2, 0, 9])
    lengths = torch.tensor([4, 3, 4, 2, 0])
    outputs = [
        [
            torch.tensor([*y, *[-1] * (N - n)])
            for y in strings(2, n)
            if least <= sum(y) <= most
        ]
        for least, most, n in torch.stack([low, high, lengths], 1).tolist()
    ]
    return Case(
        Subset,
        {"scores": torch.zeros(B, N).double()},
        outputs,
        lambda b, y: [("scores", (b, *v)) for v in (y == 1).nonzero().tolist()],
        {"at_least": low, "at_most": high, "lengths": lengths},
        wrong=lambda y, gold: ((y == 1) & (gold != 1)).sum(),
    )
