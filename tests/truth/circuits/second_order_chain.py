"""Label sequences scored by three labels in a row: all of them, masked or not."""

import torch

from smoothsp.oracles import SecondOrderChain
from tests.truth.circuits.cases import Case, strings

MASK = torch.tensor(
    [[1, 1, 1, 1], [1, 0, 1, 1], [0, 0, 0, 0], [0, 1, 1, 0], [1, 0, 0, 0]]
).bool()


def case(generator, S=2):
    B, T = MASK.shape
    places = [row.nonzero().flatten() for row in MASK]

    def spread(b, labels):
        y = torch.full((T,), -1)
        y[places[b]] = torch.tensor(labels, dtype=torch.int64)
        return y

    def parts(b, y):
        labels = y[places[b]].tolist()
        found = [
            ("emissions", (b, t, s))
            for t, s in zip(places[b].tolist(), labels, strict=True)
        ]
        triples = zip(labels, labels[1:], labels[2:], strict=False)
        return found + [("transitions", triple) for triple in triples]

    return Case(
        SecondOrderChain,
        {
            "emissions": torch.zeros(B, T, S).double(),
            "transitions": torch.zeros(S, S, S).double(),
        },
        [[spread(b, y) for y in strings(S, len(places[b]))] for b in range(B)],
        parts,
        {"mask": MASK},
        ("transitions",),
    )
