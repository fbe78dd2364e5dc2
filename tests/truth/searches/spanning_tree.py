"""Dependency trees: all heads of words, less cycles."""

import torch

from smoothsp.oracles import SpanningTree
from tests.truth.circuits.cases import Case, strings
from tests.truth.circuits.projective import is_tree


def trees(n, single_root=False):
    """Heads of n words."""
    return [
        heads
        for heads in strings(n + 1, n)
        if is_tree(heads) and not (single_root and n and heads.count(0) != 1)
    ]


def case(generator, single_root=False):
    n, lengths = 4, torch.tensor([4, 1, 3, 0, 2])

    def parts(b, y):
        words = y[: lengths[b]].tolist()
        return [("arcs", (b, head, word)) for word, head in enumerate(words, 1)]

    outputs = [
        [torch.tensor([*heads, *[-1] * (n - m)]) for heads in trees(m, single_root)]
        for m in lengths.tolist()
    ]
    arcs = torch.zeros(len(lengths), n + 1, n + 1).double()
    options = {"lengths": lengths, "single_root": single_root}
    return Case(SpanningTree, {"arcs": arcs}, outputs, parts, options)
