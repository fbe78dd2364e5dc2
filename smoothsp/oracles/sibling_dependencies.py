"""Projective dependency trees with scores for neighbouring modifiers of a head."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothsp.oracles._circuits import Circuit, CircuitStructure, Items, topology
from smoothsp.oracles._inference import checks

Indices = NDArray[Any]


class SiblingDependencies(CircuitStructure):
    """A batch of projective dependency trees with scores of adjacent siblings.

    Every word has one head: another word, or the root 0, and no two arcs cross. The
    score of a tree is the sum of its arcs' scores and of ``siblings[h, r, m]`` over
    adjacent siblings. These are two modifiers r and m on one side of a head h with none
    between them, r nearer to h. A part with score ``-inf`` is forbidden. Every result
    is exact, and differentiable in every potential.

    Parameters
    ----------
    arcs
        ``(batch, n + 1, n + 1)``: ``[head, modifier]``, float32 or float64; bfloat16
        and float16 are computed in float32. Word i is at i, the root at 0: column 0 and
        the diagonal are never read.
    siblings
        ``(batch, n + 1, n + 1, n + 1)``: ``[head, inner, outer]``. Only entries with
        inner strictly between head and outer are read. The modifier nearest to its head
        on a side has no inner sibling.
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
    An output is ``(batch, n)``: the head of each word, -1 beyond the sentence.
    ``augment`` adds costs to arcs. O(batch n^3).

    Source: McDonald and Pereira, "Online Learning of Approximate Dependency Parsing
    Algorithms" (2006), section 2.2 and figure 3.

    Examples
    --------
    A second modifier on the same side costs 3:

    >>> import torch
    >>> from smoothsp.oracles import SiblingDependencies
    >>> arcs = torch.zeros(1, 4, 4)
    >>> arcs[0, 1, 2:] = 1.0
    >>> siblings = torch.full((1, 4, 4, 4), -3.0)
    >>> value, heads = SiblingDependencies(arcs, siblings).decode()
    >>> value.tolist(), heads.tolist()
    ([1.0], [[0, 1, 2]])
    """

    arcs: Tensor
    siblings: Tensor
    output_description = "heads of words that form a tree, arcs not crossing"

    def __init__(
        self,
        arcs: Tensor,
        siblings: Tensor,
        *,
        lengths: Tensor | None = None,
        single_root: bool = False,
    ) -> None:
        arcs = checks.as_potentials("arcs", arcs)
        if arcs.dim() != 3 or not 0 < arcs.shape[1] == arcs.shape[2]:
            raise ValueError(
                f"arcs: expected (batch, n + 1, n + 1), got {tuple(arcs.shape)}"
            )
        B, m, _ = arcs.shape
        siblings = checks.as_potentials("siblings", siblings)
        checks.require_same_dtype("siblings", siblings, "arcs", arcs)
        form = "(batch, n + 1, n + 1, n + 1)"
        checks.require_shape("siblings", siblings, (B, m, m, m), form)
        n = m - 1
        size = n if lengths is None else checks.as_lengths(lengths, B, n, arcs.device)
        single_root = checks.as_flag("single_root", single_root)
        built = topology(_build_sibling_eisner, n, single_root)
        super().__init__(
            built,
            {"arcs": arcs, "siblings": siblings},
            roots=built.root(size),
            lengths=size,
            shape=(n,),
        )

    def leaves_used(self, labels: Tensor) -> Tensor:
        """Leaves of arcs, and of pairs of adjacent siblings."""
        arcs, m = super().leaves_used(labels), self.arcs.shape[1]
        word = torch.arange(1, m, device=labels.device)
        head = labels.clamp(0, m - 1)
        # stable sort by (head, side): adjacent words with equal keys are adjacent
        # siblings
        is_right = word > head
        side = torch.where(labels < 0, -word, 2 * head + is_right)
        side, order = side.sort(dim=2, stable=True)
        is_same_side = side[..., 1:] == side[..., :-1]
        previous = torch.where(is_same_side, 1 + order[..., :-1], 0)
        following = torch.where(is_same_side, 1 + order[..., 1:], 0)
        pad = torch.nn.functional.pad
        shifted = (
            (pad(previous, (1, 0)), pad(following, (0, 1))) if m > 1 else (order, order)
        )
        previous, following = (
            torch.empty_like(order).scatter(2, order, x) for x in shifted
        )
        # the sibling nearer to the head is before words right of it, after words left
        inner = torch.where(is_right, previous, following)
        has_sibling = (arcs >= 0) & (inner > 0)
        pairs = m * m + (head * m + inner) * m + word
        return torch.cat([arcs, torch.where(has_sibling, pairs, -1)], 2)


def _build_sibling_eisner(n: int, single_root: bool) -> tuple[Circuit, Items]:
    """Build Eisner's algorithm with scores of adjacent siblings.

    ``complete[h, m]`` and ``incomplete[h, m]`` are the half-spans of
    ``ProjectiveDependencies``. ``adjacent[i, j]`` sums over the subtrees between two
    adjacent siblings i and j. ``without_arc[h, m]`` is ``incomplete[h, m]`` without the
    score of its arc.
    """
    c = Circuit()
    word = np.arange(n + 1)
    arc, sibling = c.leaves(n + 1, n + 1), c.leaves(n + 1, n + 1, n + 1)
    c.label(arc, word - 1, word[:, None])
    complete, incomplete, adjacent, without_arc = (
        c.chart(n + 1, n + 1) for _ in range(4)
    )
    # items of the chart instead of c.ONE: the constant strides make the sum over split
    # points a strided run
    c.multiply(complete[word, word], np.full(n + 1, c.ONE))
    first_head = 1 if single_root else 0
    for width in range(1, n + 1):
        i = np.arange(first_head, n + 1 - width)
        j = i + width
        k = i[:, None] + np.arange(width)
        left, right = i[:, None], j[:, None]
        c.define(adjacent[i, j], (complete[left, k], complete[right, k + 1]))

        def attach(
            head: Indices, modifier: Indices, nearest: Indices, inner: Indices
        ) -> None:
            """Define ``incomplete[head, modifier]`` for all spans of this width.

            The modifier is the first on its side, with ``nearest`` the word next to the
            head, or follows one of the siblings ``inner``.
            """
            h, m = head[:, None], modifier[:, None]
            lower, upper = np.minimum(inner, m), np.maximum(inner, m)
            pair = c.chart(*inner.shape)
            c.multiply(pair, adjacent[lower, upper], sibling[h, inner, m])
            first = complete[modifier, nearest][:, None]
            first_modifier = first, np.full_like(first, c.ONE)
            c.define(
                without_arc[head, modifier],
                first_modifier,
                (incomplete[h, inner], pair),
            )
            c.multiply(
                incomplete[head, modifier],
                without_arc[head, modifier],
                arc[head, modifier],
            )

        attach(i, j, i + 1, k[:, 1:])
        c.define(complete[i, j], (incomplete[left, k + 1], complete[k + 1, right]))
        # leftward arcs; the root has no head, so spans that start at 0 are left out
        i, j, k, left, right = (x[1 - first_head :] for x in (i, j, k, left, right))
        attach(j, i, j - 1, k[:, 1:])
        c.define(complete[j, i], (incomplete[right, k], complete[k, left]))
    if not single_root:
        return c, complete[0]
    tree, roots = c.chart(n + 1, n + 1), c.chart(n + 1)
    roots[0] = c.ONE
    for size in range(1, n + 1):
        top = np.arange(1, size + 1)
        c.multiply(tree[size, top], complete[top, 1], complete[top, size])
        c.define(roots[size], (tree[size, top], arc[0, top]))
    return c, roots
