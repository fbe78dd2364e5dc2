"""Derivations of a grammar: all trees, with all symbols."""

import itertools

import torch

from smoothsp.oracles import Grammar
from tests.truth.circuits.cases import Case
from tests.truth.circuits.span_tree import rows, table, wrong_spans


def case(generator, own_rules=False):
    n, S, lengths = 3, 2, torch.tensor([3, 0, 2, 1])
    B = len(lengths)

    def parts(b, y):
        spans = [tuple(span) for span in (y >= 0).nonzero().tolist()]
        found = [("spans", (b, i, j, int(y[i, j]))) for i, j in spans]
        for i, j in spans:
            for k in range(i, j):
                if (i, k) in spans and (k + 1, j) in spans:
                    rule = tuple(int(y[span]) for span in ((i, j), (i, k), (k + 1, j)))
                    found.append(("rules", (b, *rule) if own_rules else rule))
        if spans:
            found.append(("top", (int(y[0, int(lengths[b]) - 1]),)))
        return found

    outputs = [
        [
            table(n, zip(tree, symbols, strict=True))
            for tree in row
            for symbols in itertools.product(range(S), repeat=len(tree))
        ]
        for row in rows(lengths)
    ]
    rules = (B, S, S, S) if own_rules else (S, S, S)
    shapes = {"spans": (B, n, n, S), "rules": rules, "top": (S,)}
    return Case(
        Grammar,
        {name: torch.zeros(shape).double() for name, shape in shapes.items()},
        outputs,
        parts,
        {"lengths": lengths},
        ("top",) if own_rules else ("rules", "top"),
        wrong_spans,
    )
