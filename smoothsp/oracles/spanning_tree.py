"""Dependency trees over sentences, arcs crossing or not."""

from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from smoothsp._kernels.combinatorial import camerini, chu_liu_edmonds
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp.oracles._inference import checks, rules
from smoothsp.oracles._inference.double_double import DoubleDouble
from smoothsp.oracles._inference.logsumexp import logsumexp, softmax
from smoothsp.oracles._inference.score_values import VECTORS
from smoothsp.oracles._inference.to_numpy import to_numpy
from smoothsp.oracles._inference.tracing import is_eager_tensor
from smoothsp.oracles._searches.distinct_trees import distinct_trees
from smoothsp.oracles._searches.tree_engine import TreeEngine
from smoothsp.oracles._searches.trees import DependencyTrees


class SpanningTree(DependencyTrees):
    r"""A batch of sentences whose words form a tree of heads; arcs may cross.

    Every word has one head: another word, or the root 0. The score of a tree is the sum
    of its arcs' scores. A part with score ``-inf`` is forbidden. Every result is exact,
    and differentiable in every potential. ``ProjectiveDependencies`` are the trees
    without crossing arcs.

    Parameters
    ----------
    arcs
        ``(batch, n + 1, n + 1)``: ``[head, modifier]``, float32 or float64; bfloat16
        and float16 are computed in float32. Word i is at i, the root at 0: column 0 and
        the diagonal are never read. Or ``(batch, n + 1, n + 1, label)`` for arcs with
        labels; the constructor then returns a ``LabelledSpanningTree``.
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
        are all forbidden.

    Notes
    -----
    An output is ``(batch, n)``: the head of each word, -1 beyond the sentence; with
    labels ``(batch, n, 2)``: head and label. ``decode`` is O(n^2) per row and the k
    best O(k n^2). Sums are O(n^3), by elimination in the matrix-tree theorem

    .. math:: \sum_y \exp s(y) = \det L, \quad
        L_{jj} = \sum_i \exp s_{ij}, \quad L_{ij} = -\exp s_{ij}

    without subtractions, so that sums of terms of any magnitude stay accurate. They are
    computed in float64 on the CPU; tensors on a device are copied to the CPU and back.

    Source: Chu and Liu (1965), Edmonds (1967), and for O(n^2) Tarjan, "Finding Optimum
    Branchings" (1977), with paths grown as by Gabow et al. (1986); the k best: Camerini
    et al., "The K Best Spanning Arborescences of a Network" (1980); sums: Koo et al.,
    "Structured Prediction Models via the Matrix-Tree Theorem" (2007); elimination as by
    Grassmann, Taksar and Heyman (1985); samples: Wilson (1996).

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
    row_attributes = ("_lengths",)
    output_description = "heads of words that form a tree"
    # the class for arcs with labels, which sets it: its sums are over trees without
    _labelled: ClassVar[type[Any]]

    def __new__(cls, arcs: Any = None, **options: Any) -> Any:
        """The structure, or that of arcs with labels."""
        if isinstance(arcs, Tensor) and arcs.dim() == 4:
            return cls._labelled(arcs, **options)
        return object.__new__(cls)

    def __init__(
        self,
        arcs: Tensor,
        *,
        lengths: Tensor | None = None,
        single_root: bool = False,
    ) -> None:
        arcs = checks.as_potentials("arcs", arcs)
        if arcs.dim() != 3 or not 0 < arcs.shape[1] == arcs.shape[2]:
            raise ValueError(
                "arcs: expected (batch, n + 1, n + 1) or (batch, n + 1, n + 1, label), "
                f"got {tuple(arcs.shape)}"
            )
        self._set_lengths(arcs, lengths)
        self._single = checks.as_flag("single_root", single_root)
        super().__init__({"arcs": arcs}, (arcs.shape[1] - 1,))

    @classmethod
    def _of(cls, arcs: Tensor, lengths: Tensor, single_root: bool) -> "SpanningTree":
        """Trees of such arcs, trusted to be sound."""
        found = object.__new__(cls)
        found._lengths, found._single = lengths, single_root
        found.shape = (arcs.shape[1] - 1,)
        found._set_potentials({"arcs": arcs})
        return found

    @property
    def output_shapes(self) -> Int[Tensor, "batch axis"]:
        """``(batch, 1)``: the words of each sentence."""
        return self._lengths[:, None].clone()

    def _usable_parts(self, name: str) -> Tensor:
        at = torch.arange(self.arcs.shape[1], device=self.arcs.device)
        inside = at <= self._lengths[:, None]
        read = inside[:, :, None] & inside[:, None] & (at[:, None] != at) & (at > 0)
        return read

    def _labels(self, y: Tensor) -> Tensor:
        return y.masked_fill(~self._real[:, None], -1)

    @property
    def _num_labels(self) -> int:
        return self.shape[0] + 1

    def _entries_of(self, y: Tensor) -> tuple[Tensor | None, int]:
        if not is_eager_tensor(y):
            return super()._entries_of(y)
        y, lengths = y.contiguous(), self._lengths_on_host()
        used = y.new_empty(y.shape)
        at = 0 if lengths is None else lengths.data_ptr()
        places = y.data_ptr(), used.data_ptr(), at
        return used, chu_liu_edmonds.indices_of_arcs(
            tuple(y.shape), places, self._single
        )

    def _used(self, y: Tensor) -> Tensor:
        used, _ = self._entries_of(y) if is_eager_tensor(y) else (None, 0)
        if used is not None:
            return used
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

    def _have_outputs(self) -> NDArray[np.bool_]:
        arcs, lengths = self._on_host(), self._lengths_on_host()
        given = arcs.data_ptr(), tuple(arcs.shape), VECTORS[arcs.dtype]
        found = np.empty(given[1][0], np.bool_)
        place = 0 if lengths is None else lengths.data_ptr()
        chu_liu_edmonds.is_feasible(*given, place, self._single, found)
        return found

    def _search(self) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.bool_]]:
        """Best outputs, their scores, and which rows have any."""
        arcs, lengths = self._on_host(), self._lengths_on_host()
        B, m, _ = shape = tuple(arcs.shape)
        heads, found = np.empty((B, m - 1), np.int64), np.empty(B, np.bool_)
        values = np.empty(B, VECTORS[arcs.dtype].dtype)
        place = 0 if lengths is None else lengths.data_ptr()
        given = arcs.data_ptr(), shape, place, self._single
        work = 8 * B * m**2
        run_rows(chu_liu_edmonds.best_tree, B, work, *given, heads, values, found)
        return heads, values, found

    def _best(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        heads, _, found = self._search()
        return heads, found

    def _best_and_total(self) -> tuple[NDArray[np.int64], NDArray[Any]]:
        heads, values, _ = self._search()
        return heads, values

    def _k_best(self, k: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        B, m, _ = self.arcs.shape
        heads, exist = np.empty((B, k, m - 1), np.int64), np.empty((B, k), np.bool_)
        arcs, lengths = to_numpy(self.arcs.cpu()), to_numpy(self._lengths.cpu())
        arrays = arcs, lengths, self._single, heads, exist
        run_rows(camerini.k_best_trees, B, 30 * B * k * m**2, *arrays)
        return heads, exist

    def _totals(self, y: NDArray[np.int64]) -> NDArray[np.float64]:
        values = np.empty(y.shape[:2])
        chu_liu_edmonds.score_trees(to_numpy(self.arcs.cpu()), y, values)
        return values

    def max_marginals(self, name: str = "arcs") -> Float[Tensor, "batch head modifier"]:
        """Highest score of a tree that has each arc; -inf if there is none.

        Not differentiable. O(n^4): one search for each arc.
        """
        self._resolve_name(name)
        arcs, lengths = self.arcs.detach().cpu().double(), self._lengths.tolist()
        found = torch.full_like(arcs, -torch.inf)
        for b, size in enumerate(lengths):
            head, word = torch.meshgrid(
                *(torch.arange(x, size + 1, device="cpu") for x in (0, 1)),
                indexing="ij",
            )
            head, word = (x[head != word] for x in (head, word))
            # in row i no word has another head where arc i is
            every = torch.arange(len(head), device="cpu")
            rows = arcs[b].repeat(len(head), 1, 1)
            rows[every, :, word] = -torch.inf
            rows[every, head, word] = arcs[b, head, word]
            sizes = torch.full((len(head),), size, device="cpu")
            trees = SpanningTree._of(rows, sizes, self._single)
            _, total, exist = trees._search()
            values = np.where(exist, total, -np.inf)
            found[b, head, word] = torch.from_numpy(values)
        return found.to(self.arcs)

    def _has_same_outputs(self, other: "SpanningTree") -> bool:
        return self._single == other._single and self._lengths.equal(other._lengths)

    def log_partition(self) -> Float[Tensor, " batch"]:
        """Logarithm of the sum of exp(score) over all outputs: the exp oracle.

        Its gradient is the marginals. Differentiable twice.
        """
        return self._to_dtype(self._log_partition(self.arcs))

    @property
    def _engine(self) -> TreeEngine:
        return TreeEngine(self.arcs, self._lengths, self._single)

    @property
    def _likelihood_structure(self) -> "SpanningTree":
        return self._with_first_potentials(self._relative())

    def _log_partition(self, arcs: Tensor) -> Tensor:
        engine = TreeEngine(arcs, self._lengths, self._single)
        return rules.log_partition(engine, torch.float64).value

    def _relative(self) -> Tensor:
        """Arcs in float64, -inf where none reads, less the best head of each word.

        Each word has one head: what all of its heads share takes no part in
        log-probabilities and entropies.
        """
        read = self._usable_parts("arcs")
        arcs = torch.where(read, self.arcs.double(), -torch.inf)
        if not arcs.numel():
            return arcs
        top = arcs.detach().amax(1, keepdim=True)
        return arcs - top.masked_fill(top == -torch.inf, 0)

    def marginals(self, name: str = "arcs") -> Float[Tensor, "batch head modifier"]:
        """Probability of each arc. Differentiable once."""
        self._resolve_name(name)
        return rules.marginals(self._engine)[0]

    def _log_partition_hi_lo(self) -> DoubleDouble:
        # the best heads of all words, and what is relative to these
        arcs = torch.where(
            self._usable_parts("arcs"), self.arcs.detach().double(), -torch.inf
        )
        tops = arcs.amax(1) if arcs.numel() else arcs.new_zeros(len(arcs), 0)
        found = self._log_partition(self._relative().detach())
        return self._around(self.log_partition(), tops, found)

    def entropy(self) -> Float[Tensor, " batch"]:
        """Entropy of the outputs, in nats. Differentiable once."""
        arcs = self._relative()
        chances = rules.marginals(self._engine.with_tensors([arcs]))[0]
        barred = arcs.detach() == -torch.inf
        mean = (chances * arcs.masked_fill(barred, 0)).sum((1, 2))
        value = self._log_partition(arcs) - mean
        return value.clamp(min=0).to(self.arcs.dtype)

    def sample(
        self,
        n: int,
        generator: torch.Generator | None = None,
        *,
        replace: bool = True,
    ) -> Int[Tensor, "batch n words"]:
        """Independent samples, ``(batch, n, words)`` int64, -1 beyond the sentence.

        With ``replace=False`` the trees of a row are distinct: each is drawn from the
        outputs that were not drawn before it. If a row has fewer than n outputs, the
        remaining samples are -1 throughout. Each sample then needs sums over trees for
        each word.
        """
        B, m, _ = self.arcs.shape
        n = checks.as_output_count("n", n, B * m, sampled=True)
        generator = checks.as_generator(generator)
        if not checks.as_flag("replace", replace):
            arcs = torch.where(
                self._usable_parts("arcs"), self.arcs.double(), -torch.inf
            )
            return self._distinct(arcs.detach()[..., None], n, generator)[..., 0]
        size, device = (B, n), self.arcs.device
        seeds = torch.randint(2**63 - 1, size, generator=generator, device=device)
        return rules.sample(self._engine, seeds)

    def _distinct(
        self, arcs: Tensor, n: int, generator: torch.Generator | None
    ) -> Tensor:
        """Distinct trees of arcs with labels, ``(batch, n, words, 2)``."""

        def sums(arcs: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
            trees = SpanningTree._of(logsumexp(arcs), lengths, self._single)
            chances = trees.marginals()[..., None] * softmax(arcs)
            # sums are of rows that have a tree
            none = torch.from_numpy(~trees._best()[1]).to(arcs.device)
            return trees.log_partition().masked_fill(none, -torch.inf), chances

        return distinct_trees(arcs, self._lengths, n, generator, sums)

    def log_count(self) -> Float[Tensor, " batch"]:
        """Logarithm of the number of outputs that are not forbidden."""
        arcs = self.arcs.detach()
        flat = torch.where(arcs > -torch.inf, 0.0, -torch.inf).to(arcs.dtype)
        return self._to_dtype(self._log_partition(flat))
