"""Dependency trees over sentences, arcs crossing or not."""

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from smoothsp._kernels.searches import arborescence
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp.oracles._partition import lawler
from smoothsp.oracles._questions import checks
from smoothsp.oracles._questions.registration import is_transformed
from smoothsp.oracles._questions.rounding import at_most_zero
from smoothsp.oracles._searches import transformed
from smoothsp.oracles._searches.structure import SearchStructure
from smoothsp.oracles._searches.tree_sums import (
    Chances,
    LogPartition,
    Trees,
    find_samples,
)


class SpanningTree(SearchStructure):
    r"""A batch of sentences whose words form a tree of heads; arcs may cross.

    Every word has one head: another word, or the root 0. The score of a tree is the sum
    of its arcs' scores. A score of ``-inf`` forbids. Everything is exact, and
    differentiable in every potential. ``ProjectiveDependencies`` are the trees without
    crossing arcs.

    Parameters
    ----------
    arcs
        ``(batch, n + 1, n + 1)``: ``[head, modifier]``, float32 or float64; bfloat16
        and float16 are computed in float32. Word i is at i, the root at 0: column 0 and
        the diagonal are never read.
    lengths
        ``(batch,)`` integers from 0 to n: the words of each sentence. What lies beyond
        is never read, and gets exactly zero gradient. The empty sentence has one
        output, with score 0.
    single_root
        Whether exactly one word has the root for its head.

    Raises
    ------
    TypeError
        For a wrong type, dtype or device.
    ValueError
        For a wrong shape, NaN or +inf where it is read, or a row whose outputs are all
        forbidden.

    Notes
    -----
    An output is ``(batch, n)``: the head of each word, -1 beyond the sentence.
    ``decode`` is O(n^2) a row, the k best take at most ``1 + (k - 1) n`` of them; sums
    are O(n^3): by eliminating words, the matrix-tree theorem

    .. math:: \sum_y \exp s(y) = \det L, \quad
        L_{jj} = \sum_i \exp s_{ij}, \quad L_{ij} = -\exp s_{ij}

    without its subtractions, so that sums of any spread keep their digits. They are
    taken in float64, on the CPU; tensors on a device are brought there and back.

    Source: Chu and Liu (1965), Edmonds (1967), and for O(n^2) Tarjan, "Finding Optimum
    Branchings" (1977), with paths grown as by Gabow et al. (1986); sums: Koo et al.,
    "Structured Prediction Models via the Matrix-Tree Theorem" (2007); elimination as by
    Grassmann, Taksar and Heyman (1985); draws: Wilson (1996).

    Examples
    --------
    >>> import torch
    >>> from smoothsp.oracles import SpanningTree
    >>> arcs = torch.zeros(1, 4, 4)
    >>> arcs[0, 0, 2] = arcs[0, 2, 1] = arcs[0, 1, 3] = 1.0
    >>> value, heads = SpanningTree(arcs).decode()
    >>> value.tolist(), heads.tolist()
    ([3.0], [[2, 0, 1]])
    >>> SpanningTree(torch.zeros(1, 4, 4)).log_count().exp()
    tensor([16.])
    """

    arcs: Tensor
    _by_row = ("_lengths",)
    _output_words = "heads of words that form a tree"

    def __init__(
        self,
        arcs: Tensor,
        *,
        lengths: Tensor | None = None,
        single_root: bool = False,
    ) -> None:
        arcs = checks.potentials("arcs", arcs)
        if arcs.dim() != 3 or not 0 < arcs.shape[1] == arcs.shape[2]:
            raise ValueError(
                f"arcs: expected (batch, n + 1, n + 1), got {tuple(arcs.shape)}"
            )
        B, n = len(arcs), arcs.shape[1] - 1
        if lengths is None:
            self._lengths = torch.full((B,), n, device=arcs.device)
        else:
            self._lengths = checks.row_lengths(lengths, B, n, arcs.device)
        self._single = checks.flag("single_root", single_root)
        self._start({"arcs": arcs}, (n,))

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        """``(batch,)``: the words of each sentence."""
        return self._lengths

    @property
    def _trees(self) -> Trees:
        return Trees(self._lengths.cpu().numpy(), self._single)

    def _reads(self, name: str) -> Tensor:
        at = torch.arange(self.arcs.shape[1], device=self.arcs.device)
        inside = at <= self._lengths[:, None]
        read = inside[:, :, None] & inside[:, None] & (at[:, None] != at) & (at > 0)
        return read

    @property
    def _real(self) -> Tensor:
        """Which words are in the sentence, ``(batch, n)``."""
        at = torch.arange(self.shape[0], device=self.arcs.device)
        return at < self._lengths[:, None]

    def _labels(self, y: Tensor) -> Tensor:
        return y.masked_fill(~self._real[:, None], -1)

    @property
    def _num_labels(self) -> int:
        return self.shape[0] + 1

    def _used(self, y: Tensor) -> Tensor:
        n = self.shape[0]
        word = torch.arange(1, n + 1, device=y.device)
        entry = y.clamp(0, n) * (n + 1) + word
        return entry.masked_fill(~self._real[:, None], -1)

    def _exist(self, y: Tensor) -> Tensor:
        real = self._real[:, None]
        inside = (y >= 0) & (y <= self._lengths[:, None, None])
        head = torch.where(real & inside, y, 0)
        ahead = torch.nn.functional.pad(head, (1, 0))
        for _ in range(self.shape[0].bit_length()):
            ahead = ahead.gather(2, ahead)
        fine = (inside | ~real).all(2) & (ahead == 0).all(2)
        if self._single:
            roots = ((head == 0) & real).sum(2)
            fine = fine & (roots == self._lengths[:, None].clamp(max=1))
        return fine

    def _tables(self) -> NDArray[np.float64]:
        """Scores ``[B, n, n + 1]``, of each word those of its heads."""
        return np.ascontiguousarray(self._array("arcs")[:, :, 1:].transpose(0, 2, 1))

    def _solve(
        self, tables: NDArray[np.float64], rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        M, n, _ = tables.shape
        heads, found = np.empty((M, n), np.int64), np.empty(M, np.bool_)
        trees = Trees(self._trees.lengths[rows], self._single)
        work = 8 * M * (n + 1) ** 2
        run_rows(arborescence.best, M, work, tables, *trees, heads, found)
        return heads, found

    def _best(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        return self._solve(self._tables(), np.arange(len(self.arcs)))

    def _k_best(self, k: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        return lawler.k_best(self._tables(), k, self._solve)

    def _sums_of(self) -> Tensor:
        """Arcs as sums take them: float64, 0 where nothing is read."""
        return self.arcs.double().masked_fill(~self._reads("arcs"), 0)

    def log_partition(self) -> Float[Tensor, " batch"]:
        """Logarithm of the sum of exp(score) over all outputs: the exp oracle.

        Its gradient is the marginals; it may be differentiated twice.
        """
        return self._held(self._log_partition(), "a log-partition")

    def _log_partition(self) -> Tensor:
        return self._total(self._sums_of())

    def _total(self, arcs: Tensor) -> Tensor:
        if is_transformed():
            return transformed.LogPartition(self._single).ask(arcs, self._lengths)
        found: Tensor = LogPartition.apply(arcs, self._trees)
        return found

    def _chances(self, arcs: Tensor) -> Tensor:
        if is_transformed():
            return transformed.Chances(self._single).ask(arcs, self._lengths)
        found: Tensor = Chances.apply(arcs, self._trees)
        return found

    def marginals(self, name: str = "arcs") -> Float[Tensor, "batch head modifier"]:
        """Chance of each arc. Differentiable once."""
        if name != "arcs":
            raise ValueError(f"name: expected one of ['arcs'], got {name!r}")
        return self._chances(self._sums_of()).to(self.arcs.dtype)

    def log_prob(self, y: Tensor) -> Float[Tensor, " batch *k"]:
        """Log-probability of y: ``score(y) - log_partition()``, at most 0.

        The difference is taken in float64, before it is rounded.
        """
        scores, total = self._score(y), self._log_partition()
        chances = scores - (total if scores.dim() == 1 else total[:, None])
        return self._held(at_most_zero(chances), "a log-probability")

    def log_prob_within(self, allowed: Tensor) -> Float[Tensor, " batch"]:
        """Log-probability that a tree uses only ``allowed`` arcs: at most 0.

        The log-partition of ``restrict(allowed)`` less that of all, in float64.
        """
        some = self.restrict(allowed)._log_partition()
        chances = at_most_zero(some - self._log_partition())
        return self._held(chances, "a log-probability")

    def entropy(self) -> Float[Tensor, " batch"]:
        """Entropy of the outputs, in nats. Differentiable once."""
        arcs = self._sums_of()
        read = self._reads("arcs") & (arcs.detach() > -torch.inf)
        if arcs.numel():
            # each word has one head: what all of them share takes no part
            top = arcs.detach().masked_fill(~read, -torch.inf).amax(1, keepdim=True)
            arcs = arcs - top.nan_to_num(0, neginf=0)
        chances = self._chances(arcs)
        mean = (chances * arcs.masked_fill(~read, 0)).sum((1, 2))
        value = self._total(arcs) - mean
        return self._held(value.clamp(min=0), "an entropy")

    def sample(
        self, n: int, generator: torch.Generator | None = None
    ) -> Int[Tensor, "batch n words"]:
        """Independent draws, ``(batch, n, words)`` int64, -1 beyond the sentence."""
        n = checks.positive_int("n", n)
        generator = checks.generator(generator)
        size, device = (len(self.arcs), n), self.arcs.device
        seeds = torch.randint(2**63 - 1, size, generator=generator, device=device)
        if is_transformed():
            asked = transformed.Samples(self._single)
            return asked.ask(self._sums_of().detach(), self._lengths, seeds)
        return find_samples(self._sums_of(), self._trees, seeds)

    def log_count(self) -> Float[Tensor, " batch"]:
        """Logarithm of the number of outputs that are not forbidden."""
        arcs = self._sums_of().detach()
        flat = torch.where(arcs > -torch.inf, 0.0, -torch.inf).double()
        return self._total(flat).to(self.arcs.dtype)
