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
from smoothsp.oracles._searches.distinct_trees import sample_distinct_trees
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
    # set by the module of LabelledSpanningTree, which imports this one
    _labelled: ClassVar[type[Any]]

    def __new__(cls, arcs: Any = None, **options: Any) -> Any:
        """Return ``SpanningTree``, or ``LabelledSpanningTree`` if arcs have labels."""
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
        self._single_root = checks.as_flag("single_root", single_root)
        super().__init__({"arcs": arcs}, (arcs.shape[1] - 1,))

    @classmethod
    def _from_checked(
        cls, arcs: Tensor, lengths: Tensor, single_root: bool
    ) -> "SpanningTree":
        """Construct the structure without validation."""
        trees = object.__new__(cls)
        trees._lengths, trees._single_root = lengths, single_root
        trees.shape = (arcs.shape[1] - 1,)
        trees._set_potentials({"arcs": arcs})
        return trees

    @property
    def output_shapes(self) -> Int[Tensor, "batch axis"]:
        """``(batch, 1)``: the number of words of each sentence."""
        return self._lengths[:, None].clone()

    def _usable_parts(self, name: str) -> Tensor:
        node = torch.arange(self.arcs.shape[1], device=self.arcs.device)
        inside = node <= self._lengths[:, None]
        usable = (
            inside[:, :, None] & inside[:, None] & (node[:, None] != node) & (node > 0)
        )
        return usable

    def _labels_of_outputs(self, y: Tensor) -> Tensor:
        return y.masked_fill(~self._real_mask[:, None], -1)

    @property
    def _label_counts_width(self) -> int:
        return self.shape[0] + 1

    def _used_entries_and_first_invalid(self, y: Tensor) -> tuple[Tensor | None, int]:
        if not is_eager_tensor(y):
            return super()._used_entries_and_first_invalid(y)
        # one kernel validates y and returns the used entries
        y, lengths = y.contiguous(), self._lengths_on_cpu()
        used = y.new_empty(y.shape)
        lengths_data_ptr = 0 if lengths is None else lengths.data_ptr()
        data_ptrs = y.data_ptr(), used.data_ptr(), lengths_data_ptr
        return used, chu_liu_edmonds.indices_of_arcs(
            tuple(y.shape), data_ptrs, self._single_root
        )

    def _used_entry_indices(self, y: Tensor) -> Tensor:
        used, _ = (
            self._used_entries_and_first_invalid(y) if is_eager_tensor(y) else (None, 0)
        )
        if used is not None:
            return used
        n = self.shape[0]
        word = torch.arange(1, n + 1, device=y.device)
        entry = y.clamp(0, n) * (n + 1) + word
        return entry.masked_fill(~self._real_mask[:, None], -1)

    def _is_output(self, y: Tensor) -> Tensor:
        real = self._real_mask[:, None]
        is_node = (y >= 0) & (y <= self._lengths[:, None, None])
        head = torch.where(real & is_node, y, 0)
        ancestor = torch.nn.functional.pad(head, (1, 0))
        # pointer doubling: after log2(n) steps every word of a tree points to the root
        for _ in range(self.shape[0].bit_length()):
            ancestor = ancestor.gather(2, ancestor)
        is_tree = (is_node | ~real).all(2) & (ancestor == 0).all(2)
        if self._single_root:
            # an empty sentence has no root
            roots = ((head == 0) & real).sum(2)
            is_tree = is_tree & (roots == self._lengths[:, None].clamp(max=1))
        return is_tree

    def _has_output(self) -> NDArray[np.bool_]:
        arcs, lengths = self._first_potentials_on_cpu(), self._lengths_on_cpu()
        args = arcs.data_ptr(), tuple(arcs.shape), VECTORS[arcs.dtype]
        has_output = np.empty(args[1][0], np.bool_)
        lengths_data_ptr = 0 if lengths is None else lengths.data_ptr()
        settings = lengths_data_ptr, self._single_root
        chu_liu_edmonds.is_feasible(*args, *settings, has_output)
        return has_output

    def _decode_rows(self) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.bool_]]:
        """Best outputs ``[B, n]``, their scores ``[B]``, and which exist."""
        arcs, lengths = self._first_potentials_on_cpu(), self._lengths_on_cpu()
        B, m, _ = shape = tuple(arcs.shape)
        heads, has_output = np.empty((B, m - 1), np.int64), np.empty(B, np.bool_)
        values = np.empty(B, VECTORS[arcs.dtype].dtype)
        lengths_data_ptr = 0 if lengths is None else lengths.data_ptr()
        args = arcs.data_ptr(), shape, lengths_data_ptr, self._single_root
        work = 8 * B * m**2
        run_rows(chu_liu_edmonds.best_tree, B, work, *args, heads, values, has_output)
        return heads, values, has_output

    def _search_best_outputs(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        heads, _, has_output = self._decode_rows()
        return heads, has_output

    def _search_best_outputs_and_scores(self) -> tuple[NDArray[np.int64], NDArray[Any]]:
        heads, values, _ = self._decode_rows()
        return heads, values

    def _search_k_best_outputs(
        self, k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        B, m, _ = self.arcs.shape
        heads, valid = np.empty((B, k, m - 1), np.int64), np.empty((B, k), np.bool_)
        arcs, lengths = to_numpy(self.arcs.cpu()), to_numpy(self._lengths.cpu())
        arrays = arcs, lengths, self._single_root, heads, valid
        run_rows(camerini.k_best_trees, B, 30 * B * k * m**2, *arrays)
        return heads, valid

    def _kernel_scores(self, y: NDArray[np.int64]) -> NDArray[np.float64]:
        values = np.empty(y.shape[:2])
        chu_liu_edmonds.score_trees(to_numpy(self.arcs.cpu()), y, values)
        return values

    def max_marginals(self, name: str = "arcs") -> Float[Tensor, "batch head modifier"]:
        """Highest score of a tree that has each arc; -inf if there is none.

        Not differentiable. O(n^4): one search for each arc.
        """
        self._resolve_name(name)
        arcs, lengths = self.arcs.detach().cpu().double(), self._lengths.tolist()
        highest = torch.full_like(arcs, -torch.inf)
        for b, size in enumerate(lengths):
            head, word = torch.meshgrid(
                *(torch.arange(x, size + 1, device="cpu") for x in (0, 1)),
                indexing="ij",
            )
            head, word = (x[head != word] for x in (head, word))
            # one problem per arc, in which the modifier has no other head
            arc = torch.arange(len(head), device="cpu")
            rows = arcs[b].repeat(len(head), 1, 1)
            rows[arc, :, word] = -torch.inf
            rows[arc, head, word] = arcs[b, head, word]
            sizes = torch.full((len(head),), size, device="cpu")
            trees = SpanningTree._from_checked(rows, sizes, self._single_root)
            _, score, has_output = trees._decode_rows()
            values = np.where(has_output, score, -np.inf)
            highest[b, head, word] = torch.from_numpy(values)
        return highest.to(self.arcs)

    def _has_same_outputs(self, other: "SpanningTree") -> bool:
        return self._single_root == other._single_root and self._lengths.equal(
            other._lengths
        )

    def log_partition(self) -> Float[Tensor, " batch"]:
        """Logarithm of the sum of exp(score) over all outputs: the exp oracle.

        Its gradient is the marginals. Differentiable twice.
        """
        return self._to_dtype(self._log_partition_float64(self.arcs))

    @property
    def _engine(self) -> TreeEngine:
        return TreeEngine(self.arcs, self._lengths, self._single_root)

    @property
    def _likelihood_structure(self) -> "SpanningTree":
        return self._with_first_potentials(self._shifted_potentials())

    def _log_partition_float64(self, arcs: Tensor) -> Tensor:
        engine = TreeEngine(arcs, self._lengths, self._single_root)
        return rules.log_partition(engine, torch.float64).value

    def _shifted_potentials(self) -> Tensor:
        """Arcs in float64 less the best head of each word, -inf in entries never read.

        Each word has one head, so a constant per word changes neither log-probabilities
        nor entropies.
        """
        usable = self._usable_parts("arcs")
        arcs = torch.where(usable, self.arcs.double(), -torch.inf)
        if not arcs.numel():
            return arcs
        top = arcs.detach().amax(1, keepdim=True)
        return arcs - top.masked_fill(top == -torch.inf, 0)

    def marginals(self, name: str = "arcs") -> Float[Tensor, "batch head modifier"]:
        """Probability of each arc. Differentiable once."""
        self._resolve_name(name)
        return rules.marginals(self._engine)[0]

    def _log_partition_hi_lo(self) -> DoubleDouble:
        # log Z = sum of the best heads' scores + log-partition of the shifted arcs
        arcs = torch.where(
            self._usable_parts("arcs"), self.arcs.detach().double(), -torch.inf
        )
        max_per_word = arcs.amax(1) if arcs.numel() else arcs.new_zeros(len(arcs), 0)
        shifted = self._log_partition_float64(self._shifted_potentials().detach())
        return self._add_log_partition_hi_lo(
            self.log_partition(), max_per_word, shifted
        )

    def entropy(self) -> Float[Tensor, " batch"]:
        """Entropy of the outputs, in nats. Differentiable once."""
        arcs = self._shifted_potentials()
        marginals = rules.marginals(self._engine.with_tensors([arcs]))[0]
        forbidden = arcs.detach() == -torch.inf
        mean = (marginals * arcs.masked_fill(forbidden, 0)).sum((1, 2))
        # H = log Z - E[s], from shifted arcs so that large scores do not cancel
        value = self._log_partition_float64(arcs) - mean
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
            return self._sample_distinct(arcs.detach()[..., None], n, generator)[..., 0]
        size, device = (B, n), self.arcs.device
        # a seed per tree from the user's generator; the kernel derives its numbers
        seeds = torch.randint(2**63 - 1, size, generator=generator, device=device)
        return rules.sample(self._engine, seeds)

    def _sample_distinct(
        self, arcs: Tensor, n: int, generator: torch.Generator | None
    ) -> Tensor:
        """Distinct trees of arcs with labels, ``(batch, n, words, 2)``."""

        def log_partition_and_marginals(
            arcs: Tensor, lengths: Tensor
        ) -> tuple[Tensor, Tensor]:
            trees = SpanningTree._from_checked(
                logsumexp(arcs), lengths, self._single_root
            )
            marginals = trees.marginals()[..., None] * softmax(arcs)
            # the determinant of a row without a tree may be positive by rounding
            has_none = torch.from_numpy(~trees._search_best_outputs()[1]).to(
                arcs.device
            )
            return trees.log_partition().masked_fill(has_none, -torch.inf), marginals

        return sample_distinct_trees(
            arcs, self._lengths, n, generator, log_partition_and_marginals
        )

    def log_count(self) -> Float[Tensor, " batch"]:
        """Logarithm of the number of outputs that are not forbidden."""
        arcs = self.arcs.detach()
        # allowed arcs score 0: the partition function counts the trees
        flat = torch.where(arcs > -torch.inf, 0.0, -torch.inf).to(arcs.dtype)
        return self._to_dtype(self._log_partition_float64(flat))
