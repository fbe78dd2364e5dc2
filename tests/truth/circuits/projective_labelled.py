"""Projective dependency trees whose arcs have labels."""

import itertools

import torch

from smoothsp.oracles import ProjectiveDependencies
from tests.truth.circuits.cases import Case
from tests.truth.circuits.projective import trees


def case(generator):
    n, L, lengths = 3, 2, torch.tensor([3, 2])

    def parts(b, y):
        arcs = enumerate(y[: lengths[b]].tolist(), 1)
        return [("arcs", (b, head, word, label)) for word, (head, label) in arcs]

    outputs = [
        [
            torch.tensor([*zip(heads, labels, strict=True), *[(-1, -1)] * (n - m)])
            for heads in trees(m)
            for labels in itertools.product(range(L), repeat=m)
        ]
        for m in lengths.tolist()
    ]
    arcs = torch.zeros(2, n + 1, n + 1, L).double()
    potentials, options = {"arcs": arcs}, {"lengths": lengths}
    return Case(
        ProjectiveDependencies,
        potentials,
        outputs,
        parts,
        options,
        wrong=lambda y, gold: (y != gold).any(1).sum(),
    )
