"""Weighted context-free grammars in Chomsky normal form."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from smoothsp.oracles._circuits import Circuit, CircuitStructure, Items, topology
from smoothsp.oracles._inference import checks
from smoothsp.oracles._inference.to_numpy import to_numpy
from smoothsp.oracles._inference.tracing import is_eager_tensor
from smoothsp.oracles.span_tree import mask_non_trees


class Grammar(CircuitStructure):
    """A batch of sentences, each derived by a grammar whose rules have scores.

    A derivation is a binary tree with a symbol at each span. Rules turn a symbol into
    two; the symbol at a single word emits it. Its score is the sum of the scores of its
    symbols at their spans, of its rules, and of the top symbol. With the
    log-probabilities of a probabilistic grammar (PCFG), ``log_partition`` is the
    log-probability of the sentence. A part with score ``-inf`` is forbidden. Every
    result is exact, and differentiable in every potential.

    Parameters
    ----------
    spans
        ``(batch, n, symbol)``: the score of each symbol at each single word, float32 or
        float64; bfloat16 and float16 are computed in float32. Or ``(batch, n, n,
        symbol)``: at each span ``[first, last]``, both inclusive. Single words lie on
        the diagonal; entries below it are never read.
    rules
        ``(symbol, symbol, symbol)``: ``rules[a, b, c]`` is the score of a becoming b,
        then c. Or ``(batch, symbol, symbol, symbol)``: separate rules for each row.
    top
        ``(symbol,)`` scores of the symbol of the whole sentence; zero if absent.
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
    An output is ``(batch, n, n)``: the symbol of each span ``[first, last]`` of the
    tree, both inclusive, and -1 where there is none. The Hamming cost counts the spans
    of an output that y lacks or gives another symbol. ``marginals()`` are the
    probabilities of symbols at spans, ``marginals("rules")`` the expected counts of
    rules. O(batch (n^3 symbol^2 + n^2 symbol^3)).

    Source: Lari and Young, "The Estimation of Stochastic Context-Free Grammars Using
    the Inside-Outside Algorithm" (1990), section 3.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.oracles import Grammar
    >>> rules = torch.zeros(2, 2, 2)
    >>> rules[0, 1, 0] = 1.0  # symbol 0 becomes 1, then 0
    >>> words = torch.tensor([[[0.0, 2.0], [3.0, 0.0]]])  # two words
    >>> value, y = Grammar(words, rules).decode()
    >>> value.tolist(), y.tolist()
    ([6.0], [[[1, 0], [-1, 0]]])
    """

    spans: Tensor
    rules: Tensor
    top: Tensor
    ragged_axes = 2
    output_description = "symbols of the spans of a derivation, -1 elsewhere"

    def __init__(
        self,
        spans: Tensor,
        rules: Tensor,
        top: Tensor | None = None,
        *,
        lengths: Tensor | None = None,
    ) -> None:
        spans = checks.as_potentials("spans", spans)
        square = spans.dim() == 4 and spans.shape[1] == spans.shape[2]
        if not (spans.dim() == 3 or square) or not spans.shape[-1]:
            raise ValueError(
                "spans: expected (batch, n, symbol) or (batch, n, n, symbol) with at "
                f"least one symbol, got {tuple(spans.shape)}"
            )
        # word scores are spans of width 1; longer spans score 0
        if not square:
            spans = _word_scores_as_spans(spans)
        B, n, _, S = spans.shape
        rules = checks.as_potentials("rules", rules)
        checks.require_same_dtype("rules", rules, "spans", spans)
        if rules.dim() == 4:
            form = "(batch, symbol, symbol, symbol)"
            checks.require_shape("rules", rules, (B, S, S, S), form)
        else:
            checks.require_shape("rules", rules, (S, S, S), "(symbol, symbol, symbol)")
        if top is None:
            top = spans.new_zeros(S)
        else:
            top = checks.as_potentials("top", top)
            checks.require_same_dtype("top", top, "spans", spans)
            checks.require_shape("top", top, (S,), "(symbol,)")
        size = n if lengths is None else checks.as_lengths(lengths, B, n, spans.device)
        row_potentials, shared = {"spans": spans}, {"rules": rules, "top": top}
        if rules.dim() == 4:
            row_potentials["rules"] = shared.pop("rules")
        built = topology(_build_grammar, n, S, rules.dim() == 3)
        super().__init__(
            built,
            row_potentials,
            shared,
            roots=built.root(size),
            lengths=size,
            shape=(n, n),
        )

    def augment(self, cost: Tensor) -> "Grammar":
        """Return the grammar with ``cost`` added to the scores of spans.

        ``cost`` has the shape of the spans, or ``(batch, n, symbol)`` for single words.
        """
        return super().augment(self._expand_word_values(cost, 0.0))

    def restrict(self, allowed: Tensor) -> "Grammar":
        """Return the grammar restricted to symbols that are True in ``allowed``.

        ``allowed`` has the shape of the spans, or ``(batch, n, symbol)`` for single
        words; longer spans may then have any symbol.
        """
        return super().restrict(self._expand_word_values(allowed, True))

    def _expand_word_values(self, values: Tensor, fill_value: float) -> Tensor:
        """Expand values ``(batch, n, symbol)`` of words to spans; pass others through.

        Spans of two words or more get ``fill_value``.
        """
        B, n, _, S = self.spans.shape
        if not isinstance(values, Tensor) or tuple(values.shape) != (B, n, S):
            return values
        spans = torch.full_like(self.spans, fill_value, dtype=values.dtype)
        return torch.diagonal_scatter(spans, values.mT, dim1=1, dim2=2)

    def labels_of(self, y: Tensor) -> Tensor:
        """Symbols of all spans, single words included, flattened."""
        return mask_non_trees(y, self.lengths).flatten(2)

    def leaves_used(self, labels: Tensor) -> Tensor:
        """Leaves of spans, of the rules that split them, and of the top symbol."""
        B, K, _ = labels.shape
        _, n, _, S = self.spans.shape
        symbol = labels.reshape(B, K, n, n)
        symbol = torch.where(symbol < S, symbol, -1)
        is_span = symbol >= 0
        word = torch.arange(n, device=labels.device)
        spans = torch.where(
            is_span, (word[:, None] * n + word) * S + symbol, -1
        ).flatten(2)
        leaf = n * n * S
        if n < 2:
            rules = spans[..., :0]
        else:
            # split[i, j, k]: words i to k and k + 1 to j are spans of the tree
            left, right = (
                is_span[..., None, :-1],
                is_span[..., 1:, :].mT[..., None, :, :],
            )
            split = (left & right).int()
            k = split.argmax(4)
            # in a tree the split point is unique; argmax returns it
            has_split = is_span & (split.amax(4) > 0) & (word[:, None] < word)
            first = symbol.gather(3, k)
            second = symbol.mT.gather(3, (k + 1).mT).mT
            rule = leaf + (symbol * S + first) * S + second
            rules = torch.where(has_split, rule, -1).flatten(2)
        # leaves after the rules: the top symbol of the whole sentence
        leaf += S**3
        last = (self.lengths - 1).clamp(min=0)[:, None, None].expand(B, K, 1)
        if n:
            root = symbol[:, :, 0].gather(2, last)
            real = (self.lengths[:, None, None] > 0) & (root >= 0)
            root = torch.where(real, leaf + root, -1)
        else:
            root = last - 1
        return torch.cat([spans, rules, root], 2)


def _word_scores_as_spans(words: Tensor) -> Tensor:
    """Scores ``[B, n, n, S]`` of spans from ``words [B, n, S]``, 0 for longer spans."""
    if is_eager_tensor(words):
        spans: Tensor = _DiagonalScatter.apply(words)
        return spans
    B, n, S = words.shape
    longer = words.new_zeros(B, n, n, S)
    return torch.diagonal_scatter(longer, words.mT, dim1=1, dim2=2)


class _DiagonalScatter(torch.autograd.Function):
    """``_word_scores_as_spans`` in numpy, on the calling thread.

    PyTorch fills large tensors with its thread pool, whose threads then spin and take
    the cores from the kernels' threads.
    """

    @staticmethod
    def forward(ctx: Any, words: Tensor) -> Tensor:
        scores = to_numpy(words)
        B, n, S = scores.shape
        spans, word = np.zeros((B, n, n, S), scores.dtype), np.arange(n)
        spans[:, word, word] = scores
        return torch.from_numpy(spans)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0].diagonal(dim1=1, dim2=2).mT.contiguous()


def _build_grammar(n: int, S: int, shared: bool) -> tuple[Circuit, Items]:
    """Build the inside algorithm.

    ``inside[i, j, a]`` sums over derivations of words i to j from symbol a;
    ``unscored`` is the same without the span score of a. ``pair[i, j, b, c]`` sums
    ``inside[i, k, b] inside[k + 1, j, c]`` over the split points k.
    """
    c = Circuit()
    span = c.leaves(n, n, S)
    rule = c.shared(S, S, S) if shared else c.leaves(S, S, S)
    top = c.shared(S)
    word, symbol = np.arange(n), np.arange(S)
    c.label(span, (word[:, None] * n + word)[..., None], symbol)
    inside, unscored = c.chart(n, n, S), c.chart(n, n, S)
    pair = c.chart(n, n, S, S)
    roots = c.chart(n + 1)
    roots[0] = c.ONE
    # copies of the leaves: items of a chart have constant strides, which make the sum
    # over splits a strided run
    c.multiply(inside[word, word], span[word, word])
    for width in range(2, n + 1):
        i = np.arange(n + 1 - width)
        j = i + width - 1
        k = i[:, None] + np.arange(width - 1)
        # pairs first, then rules: O(n^3 S^2 + n^2 S^3) instead of O(n^3 S^3)
        left = np.moveaxis(inside[i[:, None], k], 1, -1)[:, :, None]
        right = np.moveaxis(inside[k + 1, j[:, None]], 1, -1)[:, None]
        c.define(pair[i, j], (left, right))
        pairs = pair[i, j].reshape(len(i), 1, S * S)
        c.define(unscored[i, j], (pairs, rule.reshape(1, S, S * S)))
        c.multiply(inside[i, j], unscored[i, j], span[i, j])
    if n:
        c.define(roots[1:], (inside[0], top[None]))
    return c, roots
