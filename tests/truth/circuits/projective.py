"""Projective dependency trees: all heads of words, less cycles and crossing arcs."""

import torch

from smoothsp.oracles import ProjectiveDependencies
from tests.truth.circuits.cases import Case, strings


def is_tree(heads):
    """Whether each word reaches the root."""
    for word in range(1, len(heads) + 1):
        seen = set()
        while word and word not in seen:
            seen.add(word)
            word = heads[word - 1]
        if word:
            return False
    return True


def is_planar(heads):
    """Whether no two arcs cross, drawn above the root and the words."""
    arcs = [tuple(sorted((head, word))) for word, head in enumerate(heads, 1)]
    return not any(a < c < b < d for a, b in arcs for c, d in arcs)


def trees(n, single_root=False):
    """Heads of n words."""
    return [
        heads
        for heads in strings(n + 1, n)
        if is_tree(heads)
        and is_planar(heads)
        and not (single_root and n and heads.count(0) != 1)
    ]


def case(generator, single_root=False):
    n, lengths = 4, torch.tensor([4, 1, 3, 0])

    def parts(b, y):
        words = y[: lengths[b]].tolist()
        return [("arcs", (b, head, word)) for word, head in enumerate(words, 1)]

    outputs = [
        [torch.tensor([*heads, *[-1] * (n - m)]) for heads in trees(m, single_root)]
        for m in lengths.tolist()
    ]
    arcs = torch.zeros(len(lengths), n + 1, n + 1).double()
    options = {"lengths": lengths, "single_root": single_root}
    return Case(ProjectiveDependencies, {"arcs": arcs}, outputs, parts, options)
