"""Projective trees with scores of siblings: neighbours on one side of a head."""

import itertools

import torch

from smoothsp.oracles import SiblingDependencies
from tests.truth.circuits.cases import Case
from tests.truth.circuits.projective import trees


def siblings(heads):
    """Triples of a head, an inner and an outer modifier with none between them."""
    found = []
    for head in range(len(heads) + 1):
        words = [w for w, h in enumerate(heads, 1) if h == head]
        right, left = [w for w in words if w > head], [w for w in words if w < head]
        for side in (right, left[::-1]):
            found += [(head, *pair) for pair in itertools.pairwise(side)]
    return found


def case(generator, single_root=False):
    n, lengths = 4, torch.tensor([4, 1, 3, 0])

    def parts(b, y):
        heads = y[: lengths[b]].tolist()
        arcs = [("arcs", (b, head, word)) for word, head in enumerate(heads, 1)]
        return arcs + [("siblings", (b, *triple)) for triple in siblings(heads)]

    B, m = len(lengths), n + 1
    return Case(
        SiblingDependencies,
        {
            "arcs": torch.zeros(B, m, m).double(),
            "siblings": torch.zeros(B, m, m, m).double(),
        },
        [
            [torch.tensor([*heads, *[-1] * (n - m)]) for heads in trees(m, single_root)]
            for m in lengths.tolist()
        ],
        parts,
        {"lengths": lengths, "single_root": single_root},
    )
