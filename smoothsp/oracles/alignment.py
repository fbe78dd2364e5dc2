"""Monotone alignments of two sequences: matches and gaps."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from smoothsp.oracles._circuits import Circuit, CircuitStructure, Items, topology
from smoothsp.oracles._inference import checks
from smoothsp.oracles._inference.score_values import LIMIT

_AFFINE = ("gap_open", "gap_extend")


class Alignment(CircuitStructure):
    """A batch of pairs of sequences, each aligned from left to right.

    An alignment consumes both sequences from left to right. Each move matches the next
    item of each sequence, or leaves the next item of one sequence unmatched. The score
    sums ``match[i, j]`` over matches, ``gap_first[i]`` over unmatched items of the
    first sequence, and ``gap_second[j]`` over those of the second. Affine gap scores
    are optional. A part with score ``-inf`` is forbidden. Every result is exact, and
    differentiable in every potential.

    Parameters
    ----------
    match
        ``(batch, N, M)``: item i of the first sequence with item j of the second;
        float32 or float64; bfloat16 and float16 are computed in float32.
    gap_first, gap_second
        ``(batch, N)`` and ``(batch, M)``: scores of unmatched items. Or a number, or a
        tensor without axes, for all items. Zero if absent.
    gap_open, gap_extend
        ``(batch,)``, or a number, or a tensor without axes: affine gaps. A gap is a run
        of unmatched items of one sequence. A gap of g items scores ``gap_open + (g - 1)
        gap_extend`` in addition to its items. Zero if absent.
    lengths_first, lengths_second
        ``(batch,)`` integers from 0 to N and from 0 to M: the numbers of real items.
        Entries beyond are never read; their gradient is exactly zero. Two empty
        sequences have one output, the empty one, with score 0.

    Raises
    ------
    TypeError
        For a wrong type, dtype or device.
    ValueError
        For a wrong shape, NaN or +inf in an entry that is read, or a row whose outputs
        are all forbidden. Values are not checked while ``torch.compile`` traces.

    Notes
    -----
    An output is ``(batch, N + 1, M + 1)``. Entry ``[i, j]`` is the move made after i
    items of the first sequence and j of the second. A match is 0, an unmatched item of
    the first sequence 1, and one of the second 2. The entry is -1 where the alignment
    does not pass. ``(y == 0)[:, :-1, :-1]`` is the matrix of matches. Leaving two items
    unmatched in either order gives two different outputs.

    The Hamming cost counts matches that y does not have. It ignores gaps, so an
    alignment without matches costs 0. To penalise missed matches too, subclass and add
    costs of gaps, as in the second example. ``lengths`` is the sum of both lengths, and
    ``label_counts`` counts items by move. O(batch N M).

    The negated best score is the edit distance if gaps score -1 and ``match`` is -1
    where items differ, 0 elsewhere. For dynamic time warping use ``Warping``.

    Source: Needleman and Wunsch, "A General Method Applicable to the Search for
    Similarities in the Amino Acid Sequence of Two Proteins" (1970); Wagner and Fischer,
    "The String-to-String Correction Problem" (1974); affine gaps: Gotoh, "An Improved
    Algorithm for Matching Biological Sequences" (1982), equations 1 to 3.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.oracles import Alignment
    >>> one, other = (torch.tensor([[ord(c) for c in w]]) for w in ("smooth", "mouth"))
    >>> differ = (one[:, :, None] != other[:, None]).float()
    >>> alignment = Alignment(-differ, gap_first=-1.0, gap_second=-1.0)
    >>> value, y = alignment.decode()
    >>> value.tolist()  # edit distance 2
    [-2.0]
    >>> (y == 0)[0, :-1, :-1].nonzero().tolist()
    [[1, 0], [2, 1], [3, 2], [4, 3], [5, 4]]

    Here costs have an extra column for unmatched items of the first sequence. Leaving
    an item unmatched that y matches costs as much as matching it differently:

    >>> class WithGaps(Alignment):
    ...     def augment(self, cost):
    ...         first, second = (self.output_shapes - 1).unbind(1)
    ...         match = super().augment(cost[..., :-1]).match
    ...         gaps = self.gap_first + cost[..., -1], self.gap_second
    ...         lengths = {"lengths_first": first, "lengths_second": second}
    ...         return Alignment(match, *gaps, **lengths)
    >>> def missed(alignment, y):
    ...     matched = (y == 0)[:, :-1, :-1].any(2, keepdim=True)
    ...     return torch.cat([alignment.hamming(y), matched.to(alignment.match)], 2)
    >>> costly = WithGaps(-9 * differ, gap_first=0.0, gap_second=0.0)
    >>> alone = torch.full((1, 7, 6), -1)
    >>> alone[:, :-1, 0], alone[:, -1, :-1] = 1, 2
    >>> costs = costly.augment(missed(costly, y))
    >>> costly.score(alone).tolist(), costs.score(alone).tolist()
    ([0.0], [5.0])
    """

    match: Tensor
    gap_first: Tensor
    gap_second: Tensor
    gap_open: Tensor
    gap_extend: Tensor
    row_attributes = ("_sizes",)
    ragged_axes = 0
    output_description = (
        "0 (match), 1 (first alone) or 2 (second alone) along a path from beginning to "
        "end of both sequences, -1 elsewhere"
    )

    def __init__(
        self,
        match: Tensor,
        gap_first: Tensor | float | None = None,
        gap_second: Tensor | float | None = None,
        *,
        gap_open: Tensor | float | None = None,
        gap_extend: Tensor | float | None = None,
        lengths_first: Tensor | None = None,
        lengths_second: Tensor | None = None,
    ) -> None:
        match = checks.as_potentials("match", match)
        if match.dim() != 3:
            raise ValueError(f"match: expected (batch, N, M), got {tuple(match.shape)}")
        _, N, M = match.shape
        gaps = {
            "gap_first": _as_gap_scores("gap_first", gap_first, match, N),
            "gap_second": _as_gap_scores("gap_second", gap_second, match, M),
        }
        # affine gaps need three charts: used only if requested
        affine = gap_open is not None or gap_extend is not None
        if affine:
            gaps["gap_open"] = _as_gap_scores("gap_open", gap_open, match)
            gaps["gap_extend"] = _as_gap_scores("gap_extend", gap_extend, match)
        first, second = resolve_lengths(match, lengths_first, lengths_second)
        ragged = isinstance(first, Tensor)
        self._sizes = torch.stack([first, second], 1) if ragged else None
        built = topology(_build_affine_alignment if affine else _build_alignment, N, M)
        super().__init__(
            built,
            {"match": match, **gaps},
            roots=built.root(first, second),
            lengths=first + second,
            shape=(N + 1, M + 1),
        )

    def leaves(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Scores of pairs, then of gaps."""
        B, N, M = self.match.shape
        first = self.gap_first[:, :, None].expand(B, N, M + 1)
        second = self.gap_second[:, None].expand(B, N + 1, M)
        affine = [
            x[:, None] for name, x in self._row_potentials.items() if name in _AFFINE
        ]
        return (self.match, first, second, *affine), ()

    def leaves_used(self, labels: Tensor) -> Tensor:
        """Leaves of the moves, and of opening or extending each gap."""
        used = super().leaves_used(labels)
        if "gap_open" not in self._row_potentials:
            return used
        moves = torch.nn.functional.pad(labels, (0, 1), value=-1)
        moves = moves.reshape(*labels.shape[:2], *self.shape)
        previous = torch.nn.functional.pad(moves, (1, 0, 1, 0), value=-1)
        # a gap is extended if the move before it is of the same kind
        extends_gap = (moves == 1) & (previous[..., :-1, 1:] == 1)
        extends_gap |= (moves == 2) & (previous[..., 1:, :-1] == 2)
        is_gap = (moves == 1) | (moves == 2)
        leaf = self._circuit_batch.topology.leaves - 2 + extends_gap.long()
        return torch.cat([used, torch.where(is_gap, leaf, -1).flatten(2)], 2)

    def outputs_of(self, labels: Tensor) -> Tensor:
        """Outputs ``(batch, k, N + 1, M + 1)`` of labels, which lack the last entry."""
        # no move starts at entry [N, M], so it has no label and is -1
        return super().outputs_of(torch.nn.functional.pad(labels, (0, 1), value=-1))

    def labels_of(self, y: Tensor) -> Tensor:
        """Labels of y: the move at each entry; all 3 if y is not a path."""
        moves = torch.where(is_within_lengths(y, self._sizes, 1), y, -1)
        down, right, previous_move = steps_between_labels(moves)
        is_step = (down == (previous_move != 2).long()) & (
            right == (previous_move != 1).long()
        )
        on_path = (is_step | (moves.flatten(2) == -1)).all(2)
        # label 3 belongs to no leaf, so y is rejected as an output
        return torch.where(on_path[..., None], super().labels_of(y), 3)[..., :-1]

    @property
    def output_shapes(self) -> Int[Tensor, "batch 2"]:
        """``(batch, 2)``: the length of each sequence plus one."""
        return super().output_shapes if self._sizes is None else self._sizes + 1

    def label_counts(self, y: Int[Tensor, "batch N1 M1"]) -> Float[Tensor, "batch 3"]:
        """Number of matched items of y, then unmatched ones of each sequence."""
        moves = self._labels_per_row(y)
        # a match has one item of each sequence
        items = ((0, 2), (1, 1), (2, 1))
        counts = [
            items_per_move * (moves == move).sum(1) for move, items_per_move in items
        ]
        return torch.stack(counts, 1).to(self.match.dtype)


def resolve_lengths(
    match: Tensor, lengths_first: Tensor | None, lengths_second: Tensor | None
) -> tuple[Any, Any]:
    """Lengths of both sequences: ``(batch,)`` each, or (N, M) if both are absent."""
    B, N, M = match.shape
    if lengths_first is None and lengths_second is None:
        return N, M
    arguments = (
        ("lengths_first", lengths_first, N),
        ("lengths_second", lengths_second, M),
    )
    first, second = (
        torch.full((B,), max_length, device=match.device)
        if lengths is None
        else checks.as_lengths(lengths, B, max_length, match.device, name)
        for name, lengths, max_length in arguments
    )
    return first, second


def is_within_lengths(y: Tensor, sizes: Tensor | None, margin: int = 0) -> Tensor:
    """Return True for entries of ``y (batch, k, R, C)`` within ``sizes (batch, 2)``.

    With ``margin`` 1, arrays have one more row and column than items; the last corner,
    where both sequences end, is excluded.
    """
    down, right = (torch.arange(x, device=y.device) for x in y.shape[2:])
    rows: Tensor | int = y.shape[2] - margin
    columns: Tensor | int = y.shape[3] - margin
    if sizes is not None:
        rows, columns = (x[:, None, None, None] for x in sizes.unbind(1))
    inside = (down[:, None] < rows + margin) & (right < columns + margin)
    if margin:
        inside = inside & ((down[:, None] < rows) | (right < columns))
    return inside


def steps_between_labels(y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Offsets from the previous labelled entry of y, in row-major order, to each entry.

    Returns rows down, columns right, and the label of the previous entry, each
    ``(batch, k, R C)`` for ``y (batch, k, R, C)``. The first labelled entry is measured
    from a virtual entry left of [0, 0] with label 2 (one step right).
    """
    flat, C = y.flatten(2), y.shape[3]
    position = torch.arange(flat.shape[2], device=y.device)
    labelled = torch.where(flat != -1, position, -1)
    if not len(position):
        return labelled, labelled, labelled
    # running maximum of labelled positions, shifted by one
    preceding = torch.nn.functional.pad(
        labelled.cummax(2).values[..., :-1], (1, 0), value=-1
    )
    label = torch.where(preceding < 0, 2, flat.gather(2, preceding.clamp(min=0)))
    down = torch.where(preceding < 0, position, position // C - preceding // C)
    right = torch.where(preceding < 0, 1, position % C - preceding % C)
    return down, right, label


def _as_gap_scores(
    name: str, value: Tensor | float | None, match: Tensor, *items: int
) -> Tensor:
    """Expand gap scores to ``(batch, items)``, or ``(batch,)`` without ``items``."""
    size = len(match), *items
    if value is None:
        return match.new_zeros(size)
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name}: expected a number or a tensor, got {value}")
    if isinstance(value, (np.integer, np.floating)):
        value = float(value)
    if isinstance(value, int | float):
        # an int may be larger than any float; NaN stays
        clipped = value if value != value else max(min(value, LIMIT), -LIMIT)
        return match.new_full(size, clipped)
    value = checks.as_potentials(name, value)
    checks.require_same_dtype(name, value, "match", match)
    if value.dim():
        axes = {"gap_first": "(batch, N)", "gap_second": "(batch, M)"}
        checks.require_shape(
            name, value, size, f"a number or {axes.get(name, '(batch,)')}"
        )
    return value.expand(size)


def _build_alignment(N: int, M: int) -> tuple[Circuit, Items]:
    """Build ``prefix[i, j]``: the sum over alignments of the first i and j items.

    ``prefix[i, j] = prefix[i-1, j-1] match[i-1, j-1] + prefix[i-1, j] first[i-1, j]
    + prefix[i, j-1] second[i, j-1]``, in the semiring of the circuit.
    """
    c = Circuit()
    match, first, second = c.leaves(N, M), c.leaves(N, M + 1), c.leaves(N + 1, M)
    label = np.arange((N + 1) * (M + 1)).reshape(N + 1, M + 1)
    for move, leaf in enumerate((match, first, second)):
        c.label(leaf, label[: leaf.shape[0], : leaf.shape[1]], move)
    prefix = c.chart(N + 1, M + 1)
    prefix[0, 0] = c.ONE
    # row and column of NONE before the first ones: the recurrence needs no border cases
    padded = _pad_impossible(prefix)
    last_move = (
        _pad_impossible(match),
        _pad_impossible(first)[:, 1:],
        _pad_impossible(second)[1:],
    )
    # entries of an anti-diagonal depend on the two before it only: one call for each
    for d in range(1, N + M + 1):
        i = np.arange(max(0, d - M), min(N, d) + 1)
        j = d - i
        predecessors = np.stack([padded[i, j], padded[i, j + 1], padded[i + 1, j]], 1)
        c.define(
            prefix[i, j], (predecessors, np.stack([x[i, j] for x in last_move], 1))
        )
    return c, prefix


def _build_affine_alignment(N: int, M: int) -> tuple[Circuit, Items]:
    """Build Gotoh's recurrence for affine gaps.

    ``prefix_by_move[m, i, j]`` sums over alignments of the first i and j items that end
    with move m, and ``prefix[i, j]`` over all of them. A gap is extended from
    alignments that end with the same move, and opened after any other move.
    """
    c = Circuit()
    match, first, second = c.leaves(N, M), c.leaves(N, M + 1), c.leaves(N + 1, M)
    open_gap, extend_gap = c.leaves(1)[0], c.leaves(1)[0]
    label = np.arange((N + 1) * (M + 1)).reshape(N + 1, M + 1)
    for move, leaf in enumerate((match, first, second)):
        c.label(leaf, label[: leaf.shape[0], : leaf.shape[1]], move)
    prefix, prefix_by_move = c.chart(N + 1, M + 1), c.chart(3, N + 1, M + 1)
    prefix[0, 0] = prefix_by_move[0, 0, 0] = c.ONE
    prefix_by_move[1:, 0, 0] = c.NONE
    last_move = (
        _pad_impossible(match),
        _pad_impossible(first)[:, 1:],
        _pad_impossible(second)[1:],
    )
    # by anti-diagonals, as without affine gaps
    for d in range(1, N + M + 1):
        i = np.arange(max(0, d - M), min(N, d) + 1)
        j = d - i
        predecessor = _pad_impossible(prefix)[i, j]
        c.multiply(prefix_by_move[0, i, j], predecessor, last_move[0][i, j])
        for move, (di, dj) in ((1, (0, 1)), (2, (1, 0))):
            by_move = [_pad_impossible(x)[i + di, j + dj] for x in prefix_by_move]
            # after a match, after the other gap (both open), after the same gap
            predecessors = np.stack([by_move[0], by_move[3 - move], by_move[move]], 1)
            gap = c.chart(len(i))
            c.define(gap, (predecessors, np.array([[open_gap, open_gap, extend_gap]])))
            c.multiply(prefix_by_move[move, i, j], gap, last_move[move][i, j])
        c.define(prefix[i, j], (np.moveaxis(prefix_by_move[:, i, j], 0, 1),))
    return c, prefix


def _pad_impossible(items: Items) -> Items:
    """Prepend a row and a column of the item NONE, which no output has."""
    return np.pad(items, ((1, 0), (1, 0)), constant_values=Circuit.NONE)
