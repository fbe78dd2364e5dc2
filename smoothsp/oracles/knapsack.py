"""Knapsacks: subsets of bounded total weight."""

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

# Maximum number of items (elements times units) of a circuit: building needs 80 bytes
# for each.
_MAX_ITEMS = 4_000_000
# Maximum memory of a thread for one row of a ``LargeKnapsack``.
_MAX_BYTES = 2**30


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
        For a wrong shape, a negative weight or capacity, NaN or +inf in an entry that
        is read, or a row that would need more than 1 GiB. Values are not checked while
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
        """Return a ``Knapsack``, or a ``LargeKnapsack`` if its chart is too large."""
        if _may_exceed_circuit_size(scores, capacity):
            arguments = _checked_arguments(scores, weights, capacity, lengths)
            if arguments.is_large:
                return LargeKnapsack(*arguments.large_knapsack_args())
        return object.__new__(cls)

    def __init__(
        self,
        scores: Tensor,
        weights: Tensor,
        capacity: int | Tensor,
        *,
        lengths: Tensor | None = None,
    ) -> None:
        scores, unit_weights, capacities, size = _checked_arguments(
            scores, weights, capacity, lengths
        )
        N = scores.shape[1]
        # graphs record shapes only: values of the weights are unknown while tracing
        if is_compiling():
            built = topology(_build_knapsack, (0,) * N, 0)
            super().__init__(built, {"scores": scores}, roots=0, lengths=N, shape=(N,))
            return
        largest = max(capacities, default=0)
        built = topology(_build_knapsack, tuple(unit_weights), largest)
        root_capacity: int | Tensor = largest
        if len(set(capacities)) > 1:
            root_capacity = torch.tensor(capacities, device="cpu")
        super().__init__(
            built,
            {"scores": scores},
            roots=built.root(size, root_capacity),
            lengths=size,
            shape=(N,),
        )

    def leaves(self) -> tuple[Tensor, Tensor]:
        """Scores, and a leaf of score 0 for an element that is left out."""
        return self.scores, self.scores.new_zeros(self.shape)


class _KnapsackArguments(NamedTuple):
    """Validated arguments; weights and capacities in units of the common divisor."""

    scores: Tensor
    weights: list[int]
    capacities: list[int]
    lengths: int | Tensor

    @property
    def is_large(self) -> bool:
        """Return True if a circuit would have too many items."""
        units = 1 + max(self.capacities, default=0)
        return len(self.weights) * units > _MAX_ITEMS

    def large_knapsack_args(self) -> tuple[Tensor, NDArray[np.int64], Tensor, Tensor]:
        """Arguments of ``LargeKnapsack``."""
        N, largest = len(self.weights), max(self.capacities)
        # bytes per unit of capacity: a decision bit for each element, and two float64
        # rows for each of sqrt(N) checkpoints, the second between two checkpoints
        max_capacity = _MAX_BYTES // (N // 8 + 16 * (2 + math.isqrt(N))) - 1
        if largest > max_capacity:
            raise ValueError(
                f"capacity: expected at most {max_capacity:,} units for {N:,} "
                f"elements, got {largest:,}; measure weights in larger units"
            )
        device = self.scores.device
        capacities, size = torch.tensor(self.capacities, device=device), self.lengths
        if isinstance(size, int):
            size = torch.full_like(capacities, size)
        return self.scores, np.array(self.weights, np.int64), capacities, size


def _may_exceed_circuit_size(scores: Any, capacity: Any) -> bool:
    """Return True if the knapsack may be large, so that its weights must be read."""
    if is_compiling() or not isinstance(scores, Tensor) or scores.dim() != 2:
        return False
    is_int = isinstance(capacity, int)
    return not is_int or scores.shape[1] * (capacity + 1) > _MAX_ITEMS


def _checked_arguments(
    scores: Tensor,
    weights: Tensor,
    capacity: int | Tensor,
    lengths: Tensor | None,
) -> _KnapsackArguments:
    """Validate the arguments and divide weights by their greatest common divisor."""
    scores = checks.as_potentials("scores", scores)
    if scores.dim() != 2:
        raise ValueError(f"scores: expected (batch, N), got {tuple(scores.shape)}")
    B, N = scores.shape
    weights = checks.as_int64("weights", weights, scores.device)
    checks.require_shape("weights", weights, (N,), "(N,)")
    unit_weights = checks.as_row_ints("weights", weights, N, scores.device)
    rows = B if isinstance(capacity, Tensor) else 1
    capacities = checks.as_row_ints("capacity", capacity, rows, scores.device)
    size = N if lengths is None else checks.as_lengths(lengths, B, N, scores.device)
    unit = max(math.gcd(*unit_weights), 1)
    unit_weights = [weight // unit for weight in unit_weights]
    # capacity beyond the sum of all weights changes nothing
    unit_capacities = [min(c // unit, sum(unit_weights)) for c in capacities]
    return _KnapsackArguments(
        scores,
        unit_weights,
        unit_capacities if len(unit_capacities) == B else unit_capacities * B,
        size,
    )


def _build_knapsack(weights: tuple[int, ...], capacity: int) -> tuple[Circuit, Items]:
    """Build ``prefix[v, c]``: the sum over subsets of weight at most c of v elements.

    ``prefix[v + 1, c] = prefix[v, c] + prefix[v, c - weight_v] score_v``.
    """
    c = Circuit()
    N = len(weights)
    chosen, out = c.leaves(N), c.shared(N)
    for value, leaf in enumerate((out, chosen)):
        c.label(leaf, np.arange(N), value)
    prefix = c.chart(N + 1, capacity + 1)
    prefix[0] = c.ONE
    max_weight = 0
    for v, weight in enumerate(weights):
        without_element = np.full(capacity + 1, c.NONE)
        without_element[weight:] = prefix[v, : max(capacity + 1 - weight, 0)]
        predecessors = np.stack([prefix[v], without_element], 1)
        # beyond the total weight so far, all capacities have the same sum
        max_weight = min(max_weight + weight, capacity)
        reachable = slice(max_weight + 1)
        choices = np.stack([out[v], chosen[v]])[None]
        c.define(prefix[v + 1, reachable], (predecessors[reachable], choices))
        prefix[v + 1, max_weight + 1 :] = prefix[v + 1, max_weight]
    return c, prefix
