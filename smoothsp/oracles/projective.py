"""Projective dependency trees over sentences."""

import numpy as np
import torch
from torch import Tensor

from smoothsp.oracles._circuits import Circuit, CircuitStructure, Items, topology
from smoothsp.oracles._inference import checks


class ProjectiveDependencies(CircuitStructure):
    """A batch of sentences whose words form a tree of heads, without crossing arcs.

    Every word has one head: another word, or the root 0. The score of a tree is the sum
    of its arcs' scores. No two arcs cross when drawn above the sentence, with the root
    before the first word. A part with score ``-inf`` is forbidden. Every result is
    exact, and differentiable in every potential.

    Parameters
    ----------
    arcs
        ``(batch, n + 1, n + 1)``: ``[head, modifier]``, float32 or float64; bfloat16
        and float16 are computed in float32. Word i is at i, the root at 0: column 0 and
        the diagonal are never read. Or ``(batch, n + 1, n + 1, label)`` for arcs with
        labels.
    lengths
        ``(batch,)`` integers from 0 to n: the words of each sentence. Entries beyond
        are never read; their gradient is exactly zero. The empty sentence has one
        output, with score 0.
    single_root
        Whether exactly one word has the root for its head.

    Raises
    ------
    TypeError
        For a wrong type, dtype or device.
    ValueError
        For a wrong shape, NaN or +inf in an entry that is read, or a row whose outputs
        are all forbidden. Values are not checked while ``torch.compile`` traces.

    Notes
    -----
    An output is ``(batch, n)``: the head of each word, -1 beyond the sentence; with
    labels ``(batch, n, 2)``: head and label. O(batch n^3).

    Source: Eisner, "Three New Probabilistic Models for Dependency Parsing: An
    Exploration" (1996), section 4, with half-open spans as in Koo et al.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.oracles import ProjectiveDependencies
    >>> arcs = torch.zeros(1, 3, 3)
    >>> arcs[0, 0, 2] = arcs[0, 2, 1] = 1.0
    >>> value, heads = ProjectiveDependencies(arcs).decode()
    >>> value.tolist(), heads.tolist()
    ([2.0], [[2, 0]])
    >>> ProjectiveDependencies(torch.zeros(1, 3, 3)).log_count().exp()
    tensor([3.])
    """

    arcs: Tensor
    output_description = "heads of words that form a tree, arcs not crossing"

    def __init__(
        self,
        arcs: Tensor,
        *,
        lengths: Tensor | None = None,
        single_root: bool = False,
    ) -> None:
        arcs = checks.as_potentials("arcs", arcs)
        if arcs.dim() not in (3, 4) or not 0 < arcs.shape[1] == arcs.shape[2]:
            raise ValueError(
                "arcs: expected (batch, n + 1, n + 1) or (batch, n + 1, n + 1, label), "
                f"got {tuple(arcs.shape)}"
            )
        B, n = len(arcs), arcs.shape[1] - 1
        labels = arcs.shape[3] if arcs.dim() == 4 else None
        if labels == 0:
            raise ValueError("arcs: expected at least one label, got none")
        size = n if lengths is None else checks.as_lengths(lengths, B, n, arcs.device)
        built = topology(_build_eisner, n, labels, single_root)
        super().__init__(
            built,
            {"arcs": arcs},
            roots=built.root(size),
            lengths=size,
            shape=(n,) if labels is None else (n, 2),
        )

    def outputs_of(self, labels: Tensor) -> Tensor:
        """Outputs of labels: heads, or (head, label) pairs for labelled arcs."""
        if self.arcs.dim() == 3:
            return labels
        L = self.arcs.shape[3]
        pair = torch.stack([labels.div(L, rounding_mode="floor"), labels % L], 3)
        return torch.where(labels[..., None] < 0, -1, pair)

    def labels_of(self, y: Tensor) -> Tensor:
        """Labels of outputs: heads, or ``head * L + label`` for labelled arcs."""
        if self.arcs.dim() == 3:
            return y
        head, label = y.unbind(3)
        L = self.arcs.shape[3]
        is_valid = (head >= 0) & (label >= 0) & (label < L)
        return torch.where(is_valid, head * L + label, -1)


def _build_eisner(
    n: int, labels: int | None, single_root: bool
) -> tuple[Circuit, Items]:
    """Build Eisner's algorithm on half-spans between a head h and a word m.

    ``complete[h, m]`` sums over trees of the words from h to m rooted at h.
    ``incomplete[h, m]`` has the arc from h to m, but not yet the modifiers of m on the
    far side. ``adjacent[i, j]`` joins two half-spans that meet between i and j.
    """
    c = Circuit()
    word = np.arange(n + 1)
    if labels is None:
        leaf = arc = c.leaves(n + 1, n + 1)
        c.label(leaf, word - 1, word[:, None])
    else:
        leaf, arc = c.leaves(n + 1, n + 1, labels), c.chart(n + 1, n + 1)
        value = word[:, None, None] * labels + np.arange(labels)
        c.label(leaf, word[:, None] - 1, value)
        c.define(arc, (leaf,))
    complete, incomplete, adjacent = (c.chart(n + 1, n + 1) for _ in range(3))
    # items of the chart instead of c.ONE: the constant strides make the sum over split
    # points a strided run
    c.multiply(complete[word, word], np.full(n + 1, c.ONE))
    first_head = 1 if single_root else 0
    # spans by increasing width: all spans of a width depend on shorter ones only
    for width in range(1, n + 1):
        i = np.arange(first_head, n + 1 - width)
        j = i + width
        k = i[:, None] + np.arange(width)
        left, right = i[:, None], j[:, None]
        c.define(adjacent[i, j], (complete[left, k], complete[right, k + 1]))
        c.multiply(incomplete[i, j], adjacent[i, j], arc[i, j])
        c.define(complete[i, j], (incomplete[left, k + 1], complete[k + 1, right]))
        # leftward arcs; the root has no head, so spans that start at 0 are left out
        i, j, k, left, right = (x[1 - first_head :] for x in (i, j, k, left, right))
        c.multiply(incomplete[j, i], adjacent[i, j], arc[j, i])
        c.define(complete[j, i], (incomplete[right, k], complete[k, left]))
    if not single_root:
        return c, complete[0]
    # single root: spans exclude the root, which is attached to one top word at the end
    tree, roots = c.chart(n + 1, n + 1), c.chart(n + 1)
    roots[0] = c.ONE
    for size in range(1, n + 1):
        top = np.arange(1, size + 1)
        c.multiply(tree[size, top], complete[top, 1], complete[top, size])
        c.define(roots[size], (tree[size, top], arc[0, top]))
    return c, roots
