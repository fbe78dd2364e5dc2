"""Dependency trees whose arcs have labels, arcs crossing or not."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from smoothsp.oracles._inference import checks
from smoothsp.oracles._inference.double_double import DoubleDouble
from smoothsp.oracles._inference.logsumexp import logsumexp, softmax, softmax_entropy
from smoothsp.oracles._inference.to_numpy import to_numpy
from smoothsp.oracles._searches.trees import DependencyTrees
from smoothsp.oracles.spanning_tree import SpanningTree


class LabelledSpanningTree(DependencyTrees):
    r"""A batch of sentences whose words form a tree of heads, each arc with a label.

    ``SpanningTree`` returns this class for arcs with labels. Given the tree, labels are
    independent. So the best tree uses the best label of each arc, and sums run over
    trees with arc scores

    .. math:: \bar s_{ij} = \log \sum_l \exp s_{ijl}

    Parameters
    ----------
    arcs
        ``(batch, n + 1, n + 1, label)``: ``[head, modifier, label]``.
    lengths, single_root
        As for ``SpanningTree``, which also lists the errors.

    Notes
    -----
    An output is ``(batch, n, 2)``: head and label of each word, -1 beyond the sentence.
    The k best labelled trees are among the k best labellings of the k best trees.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.oracles import SpanningTree
    >>> arcs = torch.zeros(1, 3, 3, 2)
    >>> arcs[0, 0, 2, 1] = arcs[0, 2, 1, 0] = 1.0
    >>> trees = SpanningTree(arcs)
    >>> type(trees).__name__, trees.decode()[1].tolist()
    ('LabelledSpanningTree', [[[2, 0], [0, 1]]])
    """

    arcs: Tensor
    row_attributes = ("_lengths",)
    output_description = "heads and labels of words that form a tree"

    def __init__(
        self,
        arcs: Tensor,
        *,
        lengths: Tensor | None = None,
        single_root: bool = False,
    ) -> None:
        arcs = checks.as_potentials("arcs", arcs)
        if arcs.dim() != 4 or not 0 < arcs.shape[1] == arcs.shape[2]:
            raise ValueError(
                "arcs: expected (batch, n + 1, n + 1) or (batch, n + 1, n + 1, label), "
                f"got {tuple(arcs.shape)}"
            )
        if not arcs.shape[3]:
            raise ValueError("arcs: expected at least one label, got none")
        self._set_lengths(arcs, lengths)
        self._single_root = checks.as_flag("single_root", single_root)
        super().__init__({"arcs": arcs}, (arcs.shape[1] - 1, 2))

    @classmethod
    def _from_checked(
        cls, arcs: Tensor, lengths: Tensor, single_root: bool
    ) -> "LabelledSpanningTree":
        """Construct the structure without validation."""
        trees = object.__new__(cls)
        trees._lengths, trees._single_root = lengths, single_root
        trees.shape = (arcs.shape[1] - 1, 2)
        trees._set_potentials({"arcs": arcs})
        return trees

    @property
    def output_shapes(self) -> Int[Tensor, "batch 2"]:
        """``(batch, 2)``: the number of words of each sentence, and 2."""
        return torch.stack([self._lengths, torch.full_like(self._lengths, 2)], 1)

    def _unlabelled_trees(self, unlabelled_arcs: Tensor) -> SpanningTree:
        """Trees of arcs ``(batch, m, m)`` without labels, not validated."""
        return SpanningTree._from_checked(
            unlabelled_arcs, self._lengths, self._single_root
        )

    def _usable_parts(self, name: str) -> Tensor:
        read = self._unlabelled_trees(self.arcs[..., 0])._usable_parts("arcs")
        return read[..., None].expand(self.arcs.shape)

    @property
    def _label_counts_width(self) -> int:
        return self.arcs.shape[1] * self.arcs.shape[3]

    def _labels_of_outputs(self, y: Tensor) -> Tensor:
        head, label = y.unbind(3)
        labels = head * self.arcs.shape[3] + label
        return labels.masked_fill(~self._real_mask[:, None], -1)

    def _used_entry_indices(self, y: Tensor) -> Tensor:
        m, L = self.arcs.shape[2:]
        head, label = y.unbind(3)
        word = torch.arange(1, m, device=y.device)
        entry = (head.clamp(0, m - 1) * m + word) * L + label.clamp(0, L - 1)
        return entry.masked_fill(~self._real_mask[:, None], -1)

    def _is_output(self, y: Tensor) -> Tensor:
        head, label = y.unbind(3)
        is_label = (label >= 0) & (label < self.arcs.shape[3]) | ~self._real_mask[
            :, None
        ]
        return self._unlabelled_trees(self.arcs[..., 0])._is_output(
            head
        ) & is_label.all(2)

    def _search_best_outputs(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        # numpy: in a forked process PyTorch's thread pool may hang
        arcs = to_numpy(self.arcs.detach().cpu())
        heads, has_output = self._unlabelled_trees(
            torch.from_numpy(arcs.max(3))
        )._search_best_outputs()
        best_label = _take_at_heads(arcs.argmax(3), heads[:, None])[:, 0]
        return np.stack([heads, np.where(heads < 0, -1, best_label)], 2), has_output

    def _search_k_best_outputs(
        self, k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        arcs = self.arcs.detach().cpu()
        heads, is_tree = self._unlabelled_trees(arcs.amax(3))._search_k_best_outputs(k)
        B, n, L = len(arcs), self.shape[0], arcs.shape[3]
        ys, valid = np.full((B, k, n, 2), -1), np.zeros((B, k), np.bool_)
        sorted_scores = arcs.double().sort(3, descending=True)
        # only the k best labels of an arc can be in the k best outputs
        scores, label = (
            to_numpy(x[..., : min(k, L)].contiguous()) for x in sorted_scores
        )
        for b, size in enumerate(self._lengths.tolist()):
            trees = heads[b, is_tree[b], :size]
            options = _take_at_heads(scores[b], trees)  # [tree, word, rank]
            tree, ranks = _k_best_label_ranks(options, k)
            num_outputs = len(tree)
            labels = _take_at_heads(label[b], trees)[tree]
            picked = np.take_along_axis(labels, ranks[..., None], 2)[..., 0]
            ys[b, :num_outputs, :size] = np.stack([trees[tree], picked], 2)
            valid[b, :num_outputs] = True
        return ys, valid

    def max_marginals(self, name: str = "arcs") -> Float[Tensor, "batch h m label"]:
        """Highest score of a tree that has each arc with each label."""
        arcs = self.arcs.detach().double()
        top = arcs.amax(3)
        best = self._unlabelled_trees(top).max_marginals(name)
        detour = torch.where(best > -torch.inf, best - top, -torch.inf)
        # the best tree with an arc, with its best label replaced by another one
        highest = detour[..., None] + torch.where(self._usable_parts(name), arcs, 0)
        return highest.to(self.arcs.dtype)

    # Sums ------------------------------------------------------------------------

    def _shifted_potentials(self) -> Tensor:
        """Arcs in float64 less the maximum of each word, -inf in entries never read."""
        arcs = torch.where(self._usable_parts("arcs"), self.arcs.double(), -torch.inf)
        return arcs - self._best_arc_score_per_word()[:, None, :, None]

    def _best_arc_score_per_word(self) -> Tensor:
        """Maximum score of each word's arcs, ``[B, m]`` float64, 0 if all are -inf."""
        arcs = torch.where(
            self._usable_parts("arcs"), self.arcs.detach().double(), -torch.inf
        )
        top = arcs.amax((1, 3)) if arcs.numel() else arcs.new_zeros(arcs.shape[::2])
        return top.masked_fill(top == -torch.inf, 0)

    def log_partition(self) -> Float[Tensor, " batch"]:
        """Logarithm of the sum of exp(score) over all outputs: the exp oracle.

        Its gradient is the marginals. Differentiable twice.
        """
        # the maxima are added last: large scores would lose the digits of probabilities
        shifted = self._log_partition_float64(self._shifted_potentials())
        return self._to_dtype(shifted + self._best_arc_score_per_word().sum(1))

    def _log_partition_float64(self, shifted_arcs: Tensor) -> Tensor:
        return self._unlabelled_trees(logsumexp(shifted_arcs)).log_partition()

    def _log_partition_hi_lo(self) -> DoubleDouble:
        shifted = self._log_partition_float64(self._shifted_potentials().detach())
        return self._add_log_partition_hi_lo(
            self.log_partition(), self._best_arc_score_per_word(), shifted
        )

    def marginals(self, name: str = "arcs") -> Float[Tensor, "batch h m label"]:
        """Probability of each arc with each label. Differentiable once."""
        arcs = self._shifted_potentials()
        tree_marginals = self._unlabelled_trees(logsumexp(arcs)).marginals(name)
        return (tree_marginals[..., None] * softmax(arcs)).to(self.arcs.dtype)

    def entropy(self) -> Float[Tensor, " batch"]:
        """Entropy of trees and labels together, in nats. Differentiable once."""
        arcs = self._shifted_potentials()
        trees = self._unlabelled_trees(logsumexp(arcs))
        # chain rule: entropy of the tree plus expected entropy of its labels
        entropy = trees.entropy() + (trees.marginals() * softmax_entropy(arcs)).sum(
            (1, 2)
        )
        return entropy.to(self.arcs.dtype)

    def sample(
        self,
        n: int,
        generator: torch.Generator | None = None,
        *,
        replace: bool = True,
    ) -> Int[Tensor, "batch n words 2"]:
        """Independent samples, ``(batch, n, words, 2)``, as for ``SpanningTree``."""
        B, m, _, _ = self.arcs.shape
        n = checks.as_output_count("n", n, 2 * B * m, sampled=True)
        generator = checks.as_generator(generator)
        arcs = self._shifted_potentials().detach()
        if not checks.as_flag("replace", replace):
            return self._unlabelled_trees(arcs[..., 0])._sample_distinct(
                arcs, n, generator
            )
        heads = self._unlabelled_trees(logsumexp(arcs)).sample(n, generator)
        cumulative_probs = softmax(arcs).cumsum(3)
        words = heads.shape[2]
        word = torch.arange(1, words + 1, device=heads.device)
        cumulative = cumulative_probs[
            torch.arange(B, device=heads.device)[:, None, None], heads, word
        ]
        uniform = torch.rand(
            heads.shape, generator=generator, dtype=torch.float64, device=heads.device
        )
        total = cumulative[..., -1:]
        label = (cumulative <= uniform[..., None] * total).sum(3)
        # rounding of uniform * total may pass the last label of positive probability
        label = torch.minimum(label, (cumulative < total).sum(3))
        return torch.stack([heads, torch.where(heads < 0, -1, label)], 3)

    def log_count(self) -> Float[Tensor, " batch"]:
        """Logarithm of the number of outputs that are not forbidden."""
        arcs = self.arcs.detach()
        flat = torch.where(arcs > -torch.inf, 0.0, -torch.inf).to(arcs.dtype)
        return self._with_potentials({"arcs": flat}).log_partition()

    def _has_same_outputs(self, other: "LabelledSpanningTree") -> bool:
        return self._single_root == other._single_root and self._lengths.equal(
            other._lengths
        )


SpanningTree._labelled = LabelledSpanningTree


def _take_at_heads(numbers: NDArray[Any], heads: NDArray[np.int64]) -> NDArray[Any]:
    """Entries of ``numbers [(B,) m, m, ...]`` at the arcs of ``heads [(B,) k, n]``."""
    word = np.arange(1, heads.shape[-1] + 1)
    if heads.ndim == 2:
        return numbers[heads, word]
    return numbers[np.arange(len(heads))[:, None, None], heads, word]


def _k_best_label_ranks(
    options: NDArray[np.float64], k: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the k best combinations of a tree and a label rank for each word.

    ``options[tree, word, rank]`` are scores. Returns tree indices ``[k]`` and ranks
    ``[k, word]``, best first; fewer than k if no more exist.
    """
    candidates = [
        (np.zeros(0), np.zeros(0, np.int64), np.zeros((0, options.shape[1]), int))
    ]
    for tree, scores in enumerate(options):
        total, ranks = np.zeros(1), np.zeros((1, 0), np.int64)
        # k best of a sum of independent choices: keep the k best prefixes
        for word in scores:
            sums = (total[:, None] + word).reshape(-1)
            order = np.argsort(-sums, kind="stable")[:k]
            order = order[sums[order] > -np.inf]
            prefix, rank = np.divmod(order, len(word))
            total = sums[order]
            ranks = np.concatenate([ranks[prefix], rank[:, None]], 1)
        candidates.append((total, np.full(len(total), tree), ranks))
    totals, trees, ranks = (np.concatenate(x) for x in zip(*candidates, strict=True))
    order = np.argsort(-totals, kind="stable")[:k]
    return trees[order], ranks[order]
