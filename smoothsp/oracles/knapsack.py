"""Knapsacks: subsets of bounded weight."""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothsp.oracles._circuits import Circuit, CircuitStructure, Items, topology
from smoothsp.oracles._inference import checks
from smoothsp.oracles._inference.tracing import is_compiling
from smoothsp.oracles.large_knapsack import LargeKnapsack

# Elements times weights that a circuit may have: 80 bytes each while it is built.
_MOST = 4_000_000
# Memory that a thread takes for one row of a larger one.
_BYTES = 2**30


class Knapsack(CircuitStructure):
    r"""A batch of knapsacks: choices among N elements with a bounded total weight.

    .. math:: s(y) = \sum_v y_v \, \mathrm{scores}[v], \quad
        y \in \{0, 1\}^N, \quad
        \sum_v y_v \, \mathrm{weights}[v] \le \mathrm{capacity}

    An element with score ``-inf`` is forbidden. Every result is exact, and
    differentiable in the scores.

    Parameters
    ----------
    scores
        ``(batch, N)``: score of choosing each element; float32 or float64; bfloat16 and
        float16 are computed in float32.
    weights
        ``(N,)`` integers of at least 0, shared by all rows.
    capacity
        Largest total weight of the chosen elements: an integer of at least 0, or one
        for each row ``(batch,)``.
    lengths
        ``(batch,)`` integers from 0 to N: the number of real elements of each row, the
        first ones. Entries beyond are never read; their gradient is exactly zero.

    Raises
    ------
    TypeError
        For a wrong type, dtype or device.
    ValueError
        For a wrong shape, a negative weight or capacity, or NaN or +inf in an entry
        that is read, or if a row would take over 1 GiB. Values are not checked while
        ``torch.compile`` traces.

    Notes
    -----
    An output is ``(batch, N)``: 1 for chosen elements, 0 for others, -1 beyond the row.
    The Hamming cost counts chosen elements that are not in y. O(batch N capacity),
    where the capacity counts units of the greatest common divisor of the weights.

    For more than 4,000,000 elements times units, the constructor returns a
    ``LargeKnapsack``. It decodes with one bit for each element and unit, sums with two
    passes over N that keep sqrt(N) rows, and lacks ``sample`` and second derivatives.

    Source: Martello and Toth, "Knapsack Problems" (1990), section 2.6, equation 2.29.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.oracles import Knapsack
    >>> scores = torch.tensor([[6.0, 10.0, 12.0]])
    >>> value, y = Knapsack(scores, torch.tensor([1, 2, 3]), 5).decode()
    >>> value.tolist(), y.tolist()
    ([22.0], [[0, 1, 1]])
    """

    scores: Tensor
    output_description = "0 or 1 for each element, of no more weight than the capacity"

    def __new__(
        cls,
        scores: Any = None,
        weights: Any = None,
        capacity: Any = 0,
        *,
        lengths: Any = None,
    ) -> Any:
        """The structure, or one in memory of few rows of its chart."""
        if _may_be_large(scores, capacity):
            given = _checked(scores, weights, capacity, lengths)
            if given.is_large:
                return LargeKnapsack(*given.in_tensors())
        return object.__new__(cls)

    def __init__(
        self,
        scores: Tensor,
        weights: Tensor,
        capacity: int | Tensor,
        *,
        lengths: Tensor | None = None,
    ) -> None:
        scores, each, room, size = _checked(scores, weights, capacity, lengths)
        N = scores.shape[1]
        if is_compiling():
            built = topology(_filled, (0,) * N, 0)
            super().__init__(built, {"scores": scores}, roots=0, lengths=N, shape=(N,))
            return
        largest = max(room, default=0)
        built = topology(_filled, tuple(each), largest)
        held: int | Tensor = largest
        if len(set(room)) > 1:
            held = torch.tensor(room, device="cpu")
        super().__init__(
            built,
            {"scores": scores},
            roots=built.root(size, held),
            lengths=size,
            shape=(N,),
        )

    def leaves(self) -> tuple[Tensor, Tensor]:
        """Scores, and a leaf of score 0 for an element that is left out."""
        return self.scores, self.scores.new_zeros(self.shape)


class _Given(NamedTuple):
    """Checked arguments, weights and rooms in units."""

    scores: Tensor
    weights: list[int]
    rooms: list[int]
    lengths: int | Tensor

    @property
    def is_large(self) -> bool:
        """Whether a circuit would have too many items."""
        units = 1 + max(self.rooms, default=0)
        return len(self.weights) * units > _MOST

    def in_tensors(self) -> tuple[Tensor, NDArray[np.int64], Tensor, Tensor]:
        """Arguments of ``LargeKnapsack``."""
        N, largest = len(self.weights), max(self.rooms)
        # bits of all elements, and two rows for each row that is kept
        most = _BYTES // (N // 8 + 16 * (2 + math.isqrt(N))) - 1
        if largest > most:
            raise ValueError(
                f"capacity: expected at most {most:,} units for {N:,} elements, got "
                f"{largest:,}; measure weights in larger units"
            )
        device = self.scores.device
        rooms, size = torch.tensor(self.rooms, device=device), self.lengths
        if isinstance(size, int):
            size = torch.full_like(rooms, size)
        return self.scores, np.array(self.weights, np.int64), rooms, size


def _may_be_large(scores: Any, capacity: Any) -> bool:
    """Whether a look at the weights has to tell."""
    if is_compiling() or not isinstance(scores, Tensor) or scores.dim() != 2:
        return False
    known = isinstance(capacity, int)
    return not known or scores.shape[1] * (capacity + 1) > _MOST


def _checked(
    scores: Tensor,
    weights: Tensor,
    capacity: int | Tensor,
    lengths: Tensor | None,
) -> _Given:
    scores = checks.as_potentials("scores", scores)
    if scores.dim() != 2:
        raise ValueError(f"scores: expected (batch, N), got {tuple(scores.shape)}")
    B, N = scores.shape
    weights = checks.as_int64("weights", weights, scores.device)
    checks.require_shape("weights", weights, (N,), "(N,)")
    each = checks.as_row_ints("weights", weights, N, scores.device)
    rows = B if isinstance(capacity, Tensor) else 1
    most = checks.as_row_ints("capacity", capacity, rows, scores.device)
    size = N if lengths is None else checks.as_lengths(lengths, B, N, scores.device)
    unit = max(math.gcd(*each), 1)
    each = [weight // unit for weight in each]
    room = [min(c // unit, sum(each)) for c in most]
    return _Given(scores, each, room if len(room) == B else room * B, size)


def _filled(weights: tuple[int, ...], capacity: int) -> tuple[Circuit, Items]:
    """``within[v, c]``: all choices of the first v elements that weigh at most c."""
    c = Circuit()
    N = len(weights)
    chosen, out = c.leaves(N), c.shared(N)
    for value, leaf in enumerate((out, chosen)):
        c.label(leaf, np.arange(N), value)
    within = c.chart(N + 1, capacity + 1)
    within[0] = c.ONE
    heaviest = 0
    for v, weight in enumerate(weights):
        lighter = np.full(capacity + 1, c.NONE)
        lighter[weight:] = within[v, : max(capacity + 1 - weight, 0)]
        before = np.stack([within[v], lighter], 1)
        # all together weigh no more than this
        heaviest = min(heaviest + weight, capacity)
        some = slice(heaviest + 1)
        either = np.stack([out[v], chosen[v]])[None]
        c.define(within[v + 1, some], (before[some], either))
        within[v + 1, heaviest + 1 :] = within[v + 1, heaviest]
    return c, within
