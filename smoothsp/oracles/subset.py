"""Subsets with a bounded number of elements."""

from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothsp._kernels.combinatorial import selection
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp.oracles._circuits import Circuit, CircuitStructure, Items, topology
from smoothsp.oracles._circuits.circuit_batch import CircuitBatch
from smoothsp.oracles._circuits.cpu import EMPTY, VECTORS, round_hi_lo
from smoothsp.oracles._circuits.engine import CircuitEngine
from smoothsp.oracles._inference import checks
from smoothsp.oracles._inference.double_double import DoubleDouble
from smoothsp.oracles._inference.engine import BestOutputs
from smoothsp.oracles._inference.op import any_requires_grad
from smoothsp.oracles._inference.tracing import is_compiling, is_eager_tensor

Pairs = tuple[tuple[int, int], ...]


class Subset(CircuitStructure):
    r"""A batch of subsets of N elements, with bounds on their size.

    .. math:: s(y) = \sum_v y_v \, \mathrm{scores}[v], \quad
        y \in \{0, 1\}^N, \quad a \le \sum_v y_v \le b

    An element with score ``-inf`` is forbidden. Every result is exact, and
    differentiable in the scores.

    Parameters
    ----------
    scores
        ``(batch, N)``: score of choosing each element; float32 or float64; bfloat16 and
        float16 are computed in float32.
    at_least, at_most
        Bounds of the number of chosen elements: integers, or one for each row
        ``(batch,)``. 0 and N if absent; ``at_most`` may exceed N.
    lengths
        ``(batch,)`` integers from 0 to N: the number of real elements of each row, the
        first ones. Entries beyond are never read; their gradient is exactly zero.

    Raises
    ------
    TypeError
        For a wrong type, dtype or device.
    ValueError
        For a wrong shape, or bounds that no subset meets. Also for NaN or +inf in an
        entry that is read, or a row whose outputs are all forbidden. Values are not
        checked while ``torch.compile`` traces.

    Notes
    -----
    An output is ``(batch, N)``: 1 for chosen elements, 0 for others, -1 beyond the row.
    The Hamming cost counts chosen elements that are not in y. O(batch N at_most).

    Source: Swersky et al., "Cardinality Restricted Boltzmann Machines" (2012), section
    3: the sum over counts, as a chain of counts.

    Examples
    --------
    The best two or three of four:

    >>> import torch
    >>> from smoothsp.oracles import Subset
    >>> subset = Subset(torch.tensor([[3.0, -1.0, -2.0, 1.0]]), 2, 3)
    >>> value, y = subset.decode()
    >>> value.tolist(), y.tolist(), round(subset.log_count().exp().item())
    ([4.0], [[1, 0, 0, 1]], 10)
    """

    scores: Tensor
    _gold_parts_index_potentials = True
    output_description = "0 or 1 for each element, as many 1 as the bounds allow"

    def __init__(
        self,
        scores: Tensor,
        at_least: int | Tensor = 0,
        at_most: int | Tensor | None = None,
        *,
        lengths: Tensor | None = None,
    ) -> None:
        scores = checks.as_potentials("scores", scores)
        if scores.dim() != 2:
            raise ValueError(f"scores: expected (batch, N), got {tuple(scores.shape)}")
        B, N = scores.shape
        size = N if lengths is None else checks.as_lengths(lengths, B, N, scores.device)
        max_size = N if at_most is None else at_most
        has_int_bounds = isinstance(at_least, int) and isinstance(max_size, int)
        rows = min(B, 1) if has_int_bounds and lengths is None else B
        low = checks.as_row_ints("at_least", at_least, rows, scores.device)
        high = checks.as_row_ints("at_most", max_size, rows, scores.device)
        if is_compiling():
            built = topology(_build_subset, N, ())
            super().__init__(built, {"scores": scores}, roots=0, lengths=N, shape=(N,))
            return
        bounds = [(a, min(b, N)) for a, b in zip(low, high, strict=True)]
        sizes = checks.to_list(size) if isinstance(size, Tensor) else [size] * rows
        for b, n in enumerate(sizes):
            if bounds[b][0] > min(bounds[b][1], n):
                raise ValueError(
                    f"at_least: expected at most {min(high[b], n)}, the smaller of "
                    f"at_most and the number of elements, got {low[b]} at row {b}"
                )
        # distinct bounds in order of appearance; equal ones share a circuit
        pairs = tuple(dict.fromkeys(bounds)) or ((0, N),)
        self._pairs = pairs
        pair_index: int | Tensor = 0
        if len(pairs) > 1:
            indices = [pairs.index(pair) for pair in bounds]
            pair_index = torch.tensor(indices, device="cpu")
        built = topology(_build_subset, N, pairs)
        super().__init__(
            built,
            {"scores": scores},
            roots=built.root(pair_index, size),
            lengths=size,
            shape=(N,),
        )

    def _best(self, recheck_in_float64: bool) -> tuple[DoubleDouble, Tensor]:
        # selection needs no circuit, but is not differentiable
        if not is_eager_tensor(self.scores) or any_requires_grad((self.scores,)):
            return super()._best(recheck_in_float64)
        args = self.scores, self._circuit_batch, self._pairs
        hi_lo = None
        if recheck_in_float64:
            hi_lo = EMPTY[torch.float64].new_empty(self.scores.shape[0], 2)
        values, y = _select_best(*args, None, hi_lo)
        return DoubleDouble(values, hi_lo), y

    @property
    def _engine(self) -> CircuitEngine:
        engine = _SubsetEngine(self._leaves(), self._circuit_batch)
        engine.pairs = self._pairs
        return engine

    def leaves(self) -> tuple[Tensor, Tensor]:
        """Scores, and a leaf of score 0 for an element that is left out."""
        return self.scores, self.scores.new_zeros(self.shape)


class _SubsetEngine(CircuitEngine):
    """Circuit engine whose best output is a selection of the largest scores."""

    pairs: Pairs

    def best(
        self, k: int | None, dtype: torch.dtype, recheck_in_float64: bool = False
    ) -> BestOutputs:
        """Select the largest scores; the circuit computes k best and CUDA outputs."""
        scores = self.potentials[0]
        if k is not None or not scores.is_cpu:
            return super().best(k, dtype, recheck_in_float64)
        used = EMPTY[torch.int32].new_empty(scores.shape)
        hi_lo = EMPTY[torch.float64].new_empty(scores.shape[0], 2)
        values, labels = _select_best(scores, self.batch, self.pairs, used, hi_lo)
        # hi + lo is rounded once, to the requested dtype
        values = values if scores.dtype == dtype else round_hi_lo(hi_lo, dtype)
        return BestOutputs(values, labels, used, hi_lo)


def _select_best(
    scores: Tensor,
    query: CircuitBatch,
    pairs: Pairs,
    used: Tensor | None,
    hi_lo: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Values ``[B]`` and labels ``[B, N]`` of the best subsets.

    Fills ``used`` with the used entries and ``hi_lo`` with the values as hi + lo, if
    given.
    """
    scores = scores.contiguous()
    B, N = shape = tuple(scores.shape)
    labels = EMPTY[torch.int64].new_empty(shape)
    values = EMPTY[scores.dtype].new_empty(B)
    args = (
        scores.data_ptr(),
        shape,
        VECTORS[scores.dtype],
        _size_bounds_and_lengths(query, pairs),
    )
    optional_data_ptrs = (0 if x is None else x.data_ptr() for x in (used, hi_lo))
    data_ptrs = labels.data_ptr(), values.data_ptr(), *optional_data_ptrs
    run_rows(selection.best_subset, B, 10 * B * N, *args, data_ptrs)
    return values, labels


_Bounds = NDArray[np.int64]
_bounds_cache: "WeakKeyDictionary[CircuitBatch, _Bounds]" = WeakKeyDictionary()


def _size_bounds_and_lengths(query: CircuitBatch, pairs: Pairs) -> NDArray[np.int64]:
    """Minimum size, maximum size and length of each row, ``[B, 3]``."""
    bounds = _bounds_cache.get(query)
    if bounds is None:
        roots = query.topology.roots.numpy()
        root_number = np.zeros(roots.max() + 1, np.int64)
        root_number[roots.reshape(-1)] = np.arange(roots.size)
        # the roots of the topology are [pair of bounds, length], so the root item of a
        # row determines both
        pair, length = np.divmod(root_number[query.rows.roots], roots.shape[1])
        sizes = np.array(pairs, np.int64)[pair]
        bounds = _bounds_cache[query] = np.concatenate([sizes, length[:, None]], 1)
    return bounds


def _build_subset(N: int, bounds: tuple[tuple[int, int], ...]) -> tuple[Circuit, Items]:
    """Build ``count[v, j]`` of each pair of bounds: subsets of j of the first v.

    ``count[v + 1, j] = count[v, j] + count[v, j - 1] score_v``. Each pair of bounds has
    its items, so the rounding of a row does not depend on the bounds of other rows.
    """
    c = Circuit()
    chosen, out = c.leaves(N), c.shared(N)
    for value, leaf in enumerate((out, chosen)):
        c.label(leaf, np.arange(N), value)
    roots = c.chart(len(bounds), N + 1)
    for (low, high), pair_roots in zip(bounds, roots, strict=True):
        count = c.chart(N + 1, high + 1)
        count[0] = c.NONE
        count[0, 0] = c.ONE
        for v in range(N):
            predecessors = np.stack([count[v], np.append(c.NONE, count[v, :-1])], 1)
            c.define(count[v + 1], (predecessors, np.stack([out[v], chosen[v]])[None]))
        c.define(pair_roots, (count[:, low:],))
    return c, roots
