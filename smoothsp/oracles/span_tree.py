"""Binary constituency trees scored by spans (CKY)."""

import numpy as np
import torch
from torch import Tensor

from smoothsp._kernels.circuits.cpu.scores import labels_of_complete_trees
from smoothsp.oracles._circuits import Circuit, CircuitStructure, Items, topology
from smoothsp.oracles._inference import checks
from smoothsp.oracles._inference.tracing import is_eager_tensor


class SpanTree(CircuitStructure):
    """A batch of sentences, each bracketed by a binary tree of spans.

    A tree over n words has 2n - 1 spans. The root span holds all words, and each span
    of two words or more is split into two spans. Its score is the sum of its spans'
    scores. A part with score ``-inf`` is forbidden. Every result is exact, and
    differentiable in every potential.

    Parameters
    ----------
    spans
        ``(batch, n, n)``: ``[first, last]`` word, both inclusive, float32 or float64;
        bfloat16 and float16 are computed in float32. Entries below the diagonal are
        never read. Or ``(batch, n, n, label)`` for spans with labels.
    lengths
        ``(batch,)`` integers from 0 to n: the words of each sentence. Entries beyond
        are never read; their gradient is exactly zero. The empty sentence has one
        output, with score 0.

    Raises
    ------
    TypeError
        For a wrong type, dtype or device.
    ValueError
        For a wrong shape, NaN or +inf in an entry that is read, or a row whose outputs
        are all forbidden. Values are not checked while ``torch.compile`` traces.

    Notes
    -----
    An output is ``(batch, n, n)``: the label of each span of the tree, and -1 where the
    tree has no span. Without labels, spans have label 0. The Hamming cost counts the
    spans of an output that y lacks or labels differently. O(batch n^3).

    Source: Stern, Andreas and Klein, "A Minimal Span-Based Neural Constituency Parser"
    (2017), section 2; the recursion is that of Cocke, Kasami and Younger.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.oracles import SpanTree
    >>> spans = torch.zeros(1, 3, 3)
    >>> spans[0, 1, 2] = 1.0  # the last two words
    >>> value, y = SpanTree(spans).decode()
    >>> value.tolist(), (y[0] == 0).nonzero().tolist()
    ([1.0], [[0, 0], [0, 2], [1, 1], [1, 2], [2, 2]])
    >>> SpanTree(torch.zeros(1, 4, 4)).log_count().exp()  # a Catalan number
    tensor([5.])
    """

    spans: Tensor
    ragged_axes = 2
    output_description = "labels of the spans of a binary tree, -1 elsewhere"

    def __init__(self, spans: Tensor, *, lengths: Tensor | None = None) -> None:
        spans = checks.as_potentials("spans", spans)
        if spans.dim() not in (3, 4) or spans.shape[1] != spans.shape[2]:
            raise ValueError(
                "spans: expected (batch, n, n) or (batch, n, n, label), got "
                f"{tuple(spans.shape)}"
            )
        B, n = spans.shape[:2]
        labels = spans.shape[3] if spans.dim() == 4 else None
        if labels == 0:
            raise ValueError("spans: expected at least one label, got none")
        size = n if lengths is None else checks.as_lengths(lengths, B, n, spans.device)
        built = topology(_build_span_tree, n, labels)
        super().__init__(
            built,
            {"spans": spans},
            roots=built.root(size),
            lengths=size,
            shape=(n, n),
        )

    def labels_of(self, y: Tensor) -> Tensor:
        """Labels of all spans, single words included, flattened."""
        return mask_non_trees(y, self.lengths).flatten(2)


def mask_non_trees(y: Tensor, lengths: Tensor) -> Tensor:
    """Return y ``(batch, k, n, n)``, all -1 unless it has 2 length - 1 spans.

    A binary tree over n words has 2n - 1 spans. If the circuit finds a tree among this
    number of spans, no span is left over.
    """
    # kernel for eager CPU tensors: one pass instead of several temporaries
    if is_eager_tensor(y) and y.dtype == lengths.dtype == torch.int64:
        y, lengths = y.contiguous(), lengths.contiguous()
        labels = y.new_empty(y.shape)
        data_ptrs = y.data_ptr(), lengths.data_ptr(), labels.data_ptr()
        labels_of_complete_trees(tuple(y.shape[:3]), data_ptrs)
        return labels
    word = torch.arange(y.shape[3], device=y.device)
    is_span = (word[:, None] <= word) & (word < lengths[:, None, None])
    num_spans = ((y >= 0) & is_span[:, None]).sum((2, 3))
    is_tree_size = num_spans == (2 * lengths - 1).clamp(min=0)[:, None]
    return torch.where(is_tree_size[..., None, None], y, -1)


def _build_span_tree(n: int, labels: int | None) -> tuple[Circuit, Items]:
    """Build the inside algorithm.

    ``inside[i, j]`` sums over trees of the words i to j, and ``unscored[i, j]`` is the
    same without the score of the span [i, j]: the sum over its split points.
    """
    c = Circuit()
    word = np.arange(n)
    label = word[:, None] * n + word
    if labels is None:
        leaf = span = c.leaves(n, n)
        c.label(leaf, label, 0)
    else:
        leaf, span = c.leaves(n, n, labels), c.chart(n, n)
        c.label(leaf, label[..., None], np.arange(labels))
        c.define(span, (leaf,))
    inside, unscored = c.chart(n, n), c.chart(n, n)
    # copies of the leaves: items of a chart have constant strides, which make the sum
    # over splits a strided run
    c.multiply(inside[word, word], span[word, word])
    for width in range(2, n + 1):
        i = np.arange(n + 1 - width)
        j = i + width - 1
        k = i[:, None] + np.arange(width - 1)
        c.define(unscored[i, j], (inside[i[:, None], k], inside[k + 1, j[:, None]]))
        c.multiply(inside[i, j], unscored[i, j], span[i, j])
    roots = np.full(n + 1, c.ONE, np.int32)
    roots[1:] = inside[:1].reshape(-1)
    return c, roots
