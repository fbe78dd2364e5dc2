"""Dependency trees whose arcs have labels."""

import itertools

import torch

from smoothsp.oracles import SpanningTree
from tests.truth.circuits.cases import Case
from tests.truth.searches.spanning_tree import trees


def case(generator, single_root=False):
    n, L, lengths = 3, 2, torch.tensor([3, 1, 0, 2])

    def parts(b, y):
        arcs = enumerate(y[: lengths[b]].tolist(), 1)
        return [("arcs", (b, head, word, label)) for word, (head, label) in arcs]

    outputs = [
        [
            torch.tensor(
                [*zip(heads, labels, strict=True), *[(-1, -1)] * (n - m)]
            ).reshape(n, 2)
            for heads in trees(m, single_root)
            for labels in itertools.product(range(L), repeat=m)
        ]
        for m in lengths.tolist()
    ]
    return Case(
        SpanningTree,
        {"arcs": torch.zeros(len(lengths), n + 1, n + 1, L).double()},
        outputs,
        parts,
        {"lengths": lengths, "single_root": single_root},
        wrong=lambda y, gold: (y != gold).any(1).sum(),
    )
