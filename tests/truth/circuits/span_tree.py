"""Binary trees over spans: all of them."""

import itertools

import torch

from smoothsp.oracles import SpanTree
from tests.truth.circuits.cases import Case


def trees(first, last):
    """Lists of spans (first, last) of all binary trees over these words."""
    if first == last:
        return [[(first, last)]]
    return [
        [(first, last), *left, *right]
        for k in range(first, last)
        for left in trees(first, k)
        for right in trees(k + 1, last)
    ]


def rows(lengths):
    return [trees(0, m - 1) if m else [[]] for m in lengths.tolist()]


def table(n, labelled):
    """An output, of pairs of a span and its label."""
    y = torch.full((n, n), -1)
    for span, label in labelled:
        y[span] = label
    return y


def wrong_spans(y, gold):
    """Spans of y that gold has not, or labels otherwise."""
    return ((y >= 0) & (y != gold)).sum()


def case(generator, labels=None):
    n, lengths = (4, torch.tensor([4, 1, 3, 0])) if labels is None else LABELLED

    def parts(b, y):
        spans = [tuple(span) for span in (y >= 0).nonzero().tolist()]
        own = [(i, j, int(y[i, j])) for i, j in spans] if labels else spans
        return [("spans", (b, *span)) for span in own]

    outputs = [
        [
            table(n, zip(tree, values, strict=True))
            for tree in row
            for values in itertools.product(range(labels or 1), repeat=len(tree))
        ]
        for row in rows(lengths)
    ]
    shape = (len(lengths), n, n, *([labels] if labels else []))
    spans = torch.zeros(shape).double()
    options = {"lengths": lengths}
    return Case(SpanTree, {"spans": spans}, outputs, parts, options, wrong=wrong_spans)


LABELLED = 3, torch.tensor([3, 0, 2, 1])
