"""Label sequences of a regular language: all of them that Python's ``re`` matches."""

import itertools
import re

import torch

from smoothsp import constraints
from tests.truth.circuits.cases import Case, strings

LABELS = ("a", "b", "c")
PATTERN = "(a b? | c){1,3} (b a)*"
MASK = torch.tensor([[1, 1, 1, 1], [1, 0, 1, 1], [0, 1, 0, 0]]).bool()


def sequences(pattern, length):
    """Those of so many labels that match the pattern, without its blanks."""
    known = re.compile(pattern.replace(" ", ""))
    return [
        y
        for y in strings(len(LABELS), length)
        if known.fullmatch("".join(LABELS[s] for s in y))
    ]


def case(generator):
    (B, T), S = MASK.shape, len(LABELS)
    places = [row.nonzero().flatten() for row in MASK]

    def spread(b, labels):
        y = torch.full((T,), -1)
        y[places[b]] = torch.tensor(labels)
        return y

    def parts(b, y):
        labels = y[places[b]].tolist()
        pairs = zip(places[b].tolist(), labels, strict=True)
        found = [("emissions", (b, *pair)) for pair in pairs]
        found += [("transitions", move) for move in itertools.pairwise(labels)]
        return [*found, ("start", (labels[0],)), ("end", (labels[-1],))]

    shapes = {
        "emissions": (B, T, S),
        "transitions": (S, S),
        "start": (S,),
        "end": (S,),
    }
    return Case(
        constraints.regular(LABELS, PATTERN),
        {name: torch.zeros(shape).double() for name, shape in shapes.items()},
        [[spread(b, y) for y in sequences(PATTERN, len(places[b]))] for b in range(B)],
        parts,
        {"mask": MASK},
        ("transitions", "start", "end"),
    )
