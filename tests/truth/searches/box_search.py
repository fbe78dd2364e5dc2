"""All boxes of small images."""

import itertools

import torch

from smoothsp.oracles import BoxSearch
from tests.truth.circuits.cases import Case


def one_less_overlap(y, gold):
    """1 - IoU, cell by cell."""

    def cells(box):
        top, left, bottom, right = box.tolist()
        rows, columns = range(top, bottom + 1), range(left, right + 1)
        return set(itertools.product(rows, columns))

    ours, theirs = cells(y), cells(gold)
    share = len(ours & theirs) / len(ours | theirs)
    return torch.tensor(1 - share, dtype=torch.float64)


def case(generator):
    H, W = 3, 4

    def parts(b, y):
        top, left, bottom, right = y.tolist()
        rows, columns = range(top, bottom + 1), range(left, right + 1)
        return [("cells", (b, i, j)) for i, j in itertools.product(rows, columns)]

    boxes = [
        torch.tensor([top, left, bottom, right])
        for top, bottom in itertools.combinations_with_replacement(range(H), 2)
        for left, right in itertools.combinations_with_replacement(range(W), 2)
    ]
    cells = torch.zeros(4, H, W).double()
    return Case(BoxSearch, {"cells": cells}, [boxes] * 4, parts, wrong=one_less_overlap)
