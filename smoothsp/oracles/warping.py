"""Dynamic time warping and soft-DTW."""

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from smoothsp.oracles._circuits import Circuit, CircuitStructure, Items, topology
from smoothsp.oracles._inference import checks
from smoothsp.oracles.alignment import (
    is_within_lengths,
    resolve_lengths,
    steps_between_labels,
)


class Warping(CircuitStructure):
    """A batch of pairs of sequences, warped onto each other.

    A path leads from the first items of both sequences to their last items. Each step
    advances by one item in the first sequence, the second, or both. Its score is the
    sum of ``match[i, j]`` over its pairs. A part with score ``-inf`` is forbidden.
    Every result is exact, and differentiable in the scores.

    With distances D, ``-Warping(-D).decode()[0]`` is dynamic time warping and ``-gamma
    * Warping(-D / gamma).log_partition()`` soft-DTW, whose gradient in D is
    ``marginals()``.

    Parameters
    ----------
    match
        ``(batch, N, M)``: item i of the first sequence with item j of the second;
        float32 or float64; bfloat16 and float16 are computed in float32.
    lengths_first, lengths_second
        ``(batch,)`` integers from 0 to N and from 0 to M: the numbers of real items.
        Entries beyond are never read; their gradient is exactly zero. Two empty
        sequences have one output, the empty one, with score 0.

    Raises
    ------
    TypeError
        For a wrong type, dtype or device.
    ValueError
        For a wrong shape, NaN or +inf in an entry that is read, or a row without a
        path. A row has none if all are forbidden, or if only one sequence is empty.
        Values are not checked while ``torch.compile`` traces.

    Notes
    -----
    An output is ``(batch, N, M)``: 0 at pairs on the path, -1 elsewhere. The Hamming
    cost counts pairs on the path that are not on y. ``lengths`` are the lengths of the
    shortest paths. O(batch N M).

    Source: Sakoe and Chiba, "Dynamic Programming Algorithm Optimization for Spoken Word
    Recognition" (1978); Cuturi and Blondel, "Soft-DTW: a Differentiable Loss Function
    for Time-Series" (2017), equation 1.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.oracles import Warping
    >>> one, other = torch.tensor([[0.0, 1, 2]]), torch.tensor([[0.0, 1.5, 2, 2]])
    >>> distance = (one[:, :, None] - other[:, None]).abs()
    >>> value, y = Warping(-distance).decode()
    >>> -value, (y[0] == 0).nonzero().tolist()
    (tensor([0.5000]), [[0, 0], [1, 1], [2, 2], [2, 3]])
    """

    match: Tensor
    row_attributes = ("_sizes",)
    ragged_axes = 0
    output_description = (
        "0 along a path from the first pair to the last, one item further at each step "
        "in either sequence or both, -1 elsewhere"
    )

    def __init__(
        self,
        match: Tensor,
        *,
        lengths_first: Tensor | None = None,
        lengths_second: Tensor | None = None,
    ) -> None:
        match = checks.as_potentials("match", match)
        if match.dim() != 3:
            raise ValueError(f"match: expected (batch, N, M), got {tuple(match.shape)}")
        _, N, M = match.shape
        first, second = resolve_lengths(match, lengths_first, lengths_second)
        ragged = isinstance(first, Tensor)
        self._sizes = torch.stack([first, second], 1) if ragged else None
        built = topology(_build_warping, N, M)
        super().__init__(
            built,
            {"match": match},
            roots=built.root(first, second),
            lengths=max(N, M) if isinstance(first, int) else first.maximum(second),
            shape=(N, M),
        )

    def labels_of(self, y: Tensor) -> Tensor:
        """Labels of y: 0 along a path, -1 elsewhere; all 1 if y is not a path."""
        pairs = torch.where(is_within_lengths(y, self._sizes), y, -1)
        down, right, _ = steps_between_labels(pairs)
        # each pair is one step right, down or diagonal from the previous pair
        is_step = (down >= 0) & (down <= 1) & (right >= 0) & (right <= 1)
        on_path = (is_step | (pairs.flatten(2) == -1)).all(2)
        # label 1 belongs to no leaf, so y is rejected as an output
        return torch.where(on_path[..., None], super().labels_of(y), 1)

    @property
    def output_shapes(self) -> Int[Tensor, "batch 2"]:
        """``(batch, 2)``: the lengths of both sequences."""
        return super().output_shapes if self._sizes is None else self._sizes.clone()


def _build_warping(N: int, M: int) -> tuple[Circuit, Items]:
    """Build ``prefix[i, j]``: the sum over paths to the i-th and j-th item, from 1.

    ``prefix[i, j] = (prefix[i-1, j-1] + prefix[i-1, j] + prefix[i, j-1]) match[i, j]``.
    """
    c = Circuit()
    match = c.leaves(N, M)
    c.label(match, np.arange(N * M).reshape(N, M), 0)
    prefix = c.chart(N + 1, M + 1)
    # only the corner before both sequences is a start
    prefix[0], prefix[:, 0] = c.NONE, c.NONE
    prefix[0, 0] = c.ONE
    # entries of an anti-diagonal depend on the two before it only: one call for each
    for d in range(2, N + M + 1):
        i = np.arange(max(1, d - M), min(N, d - 1) + 1)
        j = d - i
        predecessors = [prefix[i - 1, j - 1], prefix[i - 1, j], prefix[i, j - 1]]
        c.define(
            prefix[i, j], (np.stack(predecessors, 1), match[i - 1, j - 1][:, None])
        )
    return c, prefix
