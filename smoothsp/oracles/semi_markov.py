"""Semi-Markov chains: segmentations of sequences into labelled segments."""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from smoothsp.oracles._circuits import Circuit, Items, topology
from smoothsp.oracles._circuits.masked_sequences import MaskedSequences
from smoothsp.oracles._inference import checks


class SemiMarkov(MaskedSequences):
    """A batch of sequences cut into segments, each with a state.

    The score of a segmentation sums its segments' scores, the transitions between
    neighbours, and the scores of the first and of the last segment. The segments cover
    all real positions, in order. A part with score ``-inf`` is forbidden. Every result
    is exact, and differentiable in every potential.

    Parameters
    ----------
    segments
        ``(batch, time, duration, state)``: ``segments[b, t, d, s]`` scores the segment
        of state s that starts at position t and lasts d + 1 positions. float32 or
        float64; bfloat16 and float16 are computed in float32. Entries for segments past
        the end of their sequence are never read; their gradient is exactly zero.
    transitions
        ``(state, state)``: ``transitions[i, j]`` scores a segment of state i followed
        by one of state j. Or ``(batch, time, state, state)``:
        ``transitions[b, t, i, j]`` is used if the segment of state j starts at position
        t. Entries at the first position are never read. Zero if absent.
    start, end
        ``(state,)`` scores of the first and of the last segment; zero if absent.
    lengths
        ``(batch,)`` integers from 0 to time: the number of real positions of each row,
        the first ones.
    mask
        ``(batch, time)`` bool, True where a position is real: instead of ``lengths``.
        Masked positions are skipped as if deleted. A row without a real position has
        one output, the empty one, with score 0.

    Raises
    ------
    TypeError
        For a wrong type, dtype or device.
    ValueError
        For a wrong shape, NaN or +inf in an entry that is read, or a row whose outputs
        are all forbidden. Values are not checked while ``torch.compile`` traces.

    Notes
    -----
    An output is ``(batch, time)``: the state of the segment that starts there, -1 where
    none starts; a segment lasts until the next one. ``from_tags`` and ``to_tags``
    convert to and from a state at each position. The Hamming cost counts the positions
    at which outputs differ. O(batch time state (duration + state)).

    Source: Sarawagi and Cohen, "Semi-Markov Conditional Random Fields for Information
    Extraction" (2004), equations 1 and 2.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.oracles import SemiMarkov
    >>> segments = torch.zeros(1, 4, 3, 2)
    >>> segments[0, 0, 2, 1] = segments[0, 3, 0, 0] = 1.0  # three positions, then one
    >>> chain = SemiMarkov(segments)
    >>> value, y = chain.decode()
    >>> value.tolist(), y.tolist(), chain.to_tags(y).tolist()
    ([2.0], [[1, -1, -1, 0]], [[1, 1, 1, 0]])
    """

    segments: Tensor
    transitions: Tensor
    start: Tensor
    end: Tensor
    output_description = (
        "states at the starts of segments that cover a row, each within the longest "
        "duration, -1 between starts"
    )

    def __init__(
        self,
        segments: Tensor,
        transitions: Tensor | None = None,
        start: Tensor | None = None,
        end: Tensor | None = None,
        *,
        lengths: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> None:
        segments = checks.as_potentials("segments", segments)
        if segments.dim() != 4 or 0 in segments.shape[2:]:
            raise ValueError(
                "segments: expected (batch, time, duration, state) with at least one "
                f"duration and one state, got {tuple(segments.shape)}"
            )
        _, T, D, S = segments.shape
        # row-wise transitions are packed with the segments where positions are masked
        per_position = isinstance(transitions, Tensor) and transitions.dim() == 4
        scores = {
            "transitions": _as_shared_or_position_scores(
                "transitions", transitions, segments, per_position
            ),
            "start": _as_shared_or_position_scores("start", start, segments),
            "end": _as_shared_or_position_scores("end", end, segments),
        }
        row_potentials = {"segments": segments}
        if per_position:
            row_potentials["transitions"] = scores.pop("transitions")
        size = self._count_real_positions(segments, lengths, mask)
        built = topology(_build_semi_markov, T, D, S, per_position)
        super().__init__(
            built,
            row_potentials,
            scores,
            roots=built.root(size),
            lengths=size,
            shape=(T,),
        )

    @staticmethod
    def from_tags(
        tags: Int[Tensor, "batch time"], starts: Tensor | None = None
    ) -> Int[Tensor, "batch time"]:
        """Convert states of positions to an output, for sequences without holes.

        Parameters
        ----------
        tags
            States of positions; negative past the end of a row.
        starts
            ``(batch, time)`` bool, True where a segment starts. By default equal
            neighbours form one segment.

        Raises
        ------
        ValueError
            If ``starts`` is False at the first position or where the state changes.
        """
        tags = checks.as_int64("tags", tags, checks.as_dense("tags", tags).device)
        if tags.dim() != 2:
            raise ValueError(f"tags: expected (batch, time), got {tuple(tags.shape)}")
        changed = torch.ones_like(tags, dtype=torch.bool)
        changed[:, 1:] = tags[:, 1:] != tags[:, :-1]
        if starts is None:
            starts = changed
        else:
            form, size = "the shape of tags", tuple(tags.shape)
            starts = checks.as_bool_mask("starts", starts, size, form, tags.device)
            is_missing = changed & ~starts & (tags >= 0)
            if bool(is_missing.any()):
                b, t = is_missing.nonzero()[0].tolist()
                raise ValueError(
                    "starts: expected True at the first position and wherever the tag "
                    f"changes, got False at row {b}, position {t}"
                )
        return torch.where(starts & (tags >= 0), tags, -1)

    def to_tags(self, y: Int[Tensor, "batch *k time"]) -> Int[Tensor, "batch *k time"]:
        """Convert an output to the state of each real position, -1 elsewhere."""
        self._resolve_outputs(y)
        has_k = y.dim() == 3
        labels = self._pack_labels(y if has_k else y[:, None])
        T = labels.shape[2]
        start_position = torch.where(labels >= 0, torch.arange(T, device=y.device), 0)
        last_start = start_position.cummax(2).values if T else start_position
        real = torch.arange(T, device=y.device) < self.lengths[:, None, None]
        S = self.segments.shape[3]
        is_invalid = real & ((labels < -1) | (labels >= S))
        if checks.has_concrete_values() and bool(is_invalid.any()):
            b, k, t = is_invalid.nonzero()[0].tolist()
            raise ValueError(
                f"y: expected states from 0 to {S - 1} at the starts of segments, -1 "
                f"between starts, got {labels[b, k, t].item()} at row {b}"
            )
        tags = self._unpack_labels(torch.where(real, labels.gather(2, last_start), -1))
        return tags if has_k else tags.squeeze(1)

    def hamming(
        self, y: Int[Tensor, "batch time"]
    ) -> Float[Tensor, "batch time duration state"]:
        """Cost of each segment: the number of positions that differ from y."""
        labels = self._labels_per_row(y)
        _, T, D, S = self.segments.shape
        state = torch.where(labels >= 0, labels % S, -1)
        differs = state[:, :, None] != torch.arange(S, device=y.device)
        # a segment differs from y at its first position unless y starts one of the same
        # state there, and at each later position where y starts one
        count = torch.nn.functional.pad((state >= 0).long().cumsum(1), (0, D))
        position = torch.arange(T, device=y.device)[:, None]
        last_position = position + torch.arange(D, device=y.device)
        num_starts_inside = (
            count[:, last_position.clamp(max=max(T - 1, 0))] - count[:, :T, None]
        )
        cost = differs[:, :, None] + num_starts_inside[..., None]
        is_real = last_position < self.lengths[:, None, None]
        cost = torch.where(is_real[..., None], cost, 0).to(self.segments.dtype)
        return self._unpack(cost)

    @property
    def _label_counts_width(self) -> int:
        return self.segments.shape[3]

    def label_counts(self, y: Tensor) -> Float[Tensor, "batch state"]:
        """Number of segments of each state in y."""
        labels, S = self._labels_per_row(y), self.segments.shape[3]
        state = torch.where(labels >= 0, labels % S, S)
        # an extra state collects positions without a start
        counts = self.segments.new_zeros(len(labels), S + 1)
        ones = counts.new_ones(state.shape)
        return counts.scatter_add(1, state, ones)[:, :S]

    def leaves(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Potentials of real positions first, then those of all rows."""
        row_leaves = tuple(self._pack(x) for x in self._row_potentials.values())
        return row_leaves, tuple(self._shared_potentials.values())

    def outputs_of(self, labels: Tensor) -> Tensor:
        """The state where a segment starts, -1 elsewhere."""
        S = self.segments.shape[3]
        return self._unpack_labels(torch.where(labels >= 0, labels % S, -1))

    def labels_of(self, y: Tensor) -> Tensor:
        """``duration * S + state`` where a segment starts, from duration 0."""
        state = self._pack_labels(y)
        _, T, D, S = self.segments.shape
        position = torch.arange(T, device=y.device)
        real = position < self.lengths[:, None, None]
        begins = real & (state != -1)
        # a segment ends at the next start (reversed running minimum), or with the row
        row_end = self.lengths[:, None, None].expand(*state.shape[:2], 1)
        segment_end = torch.cat([torch.where(begins, position, T)[..., 1:], row_end], 2)
        segment_end = (
            segment_end.flip(2).cummin(2).values.flip(2) if T else segment_end[..., :0]
        )
        duration = torch.minimum(segment_end, row_end) - position - 1
        is_segment = begins & (state >= 0) & (state < S) & (duration < D)
        # invalid segments get label D S, which belongs to no leaf
        return torch.where(
            is_segment, duration * S + state, torch.where(begins, D * S, -1)
        )

    def leaves_used(self, labels: Tensor) -> Tensor:
        """Leaves of segments, transitions, and the start and end scores."""
        B, K, T = labels.shape
        _, _, D, S = self.segments.shape
        # offsets of the leaves: transitions from P, start scores from Q
        P = T * D * S
        Q = P + S * S * (T if "transitions" in self._row_potentials else 1)
        position = torch.arange(T, device=labels.device)
        is_segment = (labels >= 0) & (labels < D * S)
        parts = torch.where(is_segment, position * D * S + labels, -1)
        state = torch.where(is_segment, labels % S, -1)
        # state of the previous segment: running maximum of starts, shifted by one
        last_start = torch.where(is_segment, position, -1)
        last_start = last_start.cummax(2).values if T else last_start
        previous_start = torch.cat([last_start.new_full((B, K, 1), -1), last_start], 2)
        previous_state = state.gather(2, previous_start[..., :T].clamp(min=0))
        previous_state = (
            position * S + previous_state
            if "transitions" in self._row_potentials
            else previous_state
        )
        transitions = torch.where(
            is_segment & (previous_start[..., :T] >= 0),
            P + previous_state * S + state,
            -1,
        )
        has_segment = previous_start[..., T:] >= 0
        first = is_segment.int().argmax(2, keepdim=True) if T else previous_start
        first_and_last = (
            (first, previous_start[..., T:].clamp(min=0))
            if T
            else (previous_start, previous_start)
        )
        start, end = (
            torch.where(has_segment, Q + i * S + state.gather(2, x), -1) if T else x
            for i, x in enumerate(first_and_last)
        )
        return torch.cat([parts, transitions, start, end], 2)


def _as_shared_or_position_scores(
    name: str, value: Tensor | None, segments: Tensor, per_position: bool = False
) -> Tensor:
    """Validate transitions ``(state, state)``, or start or end scores ``(state,)``.

    With ``per_position``, transitions are ``(batch, time, state, state)``. Absent
    scores are 0.
    """
    B, T, _, S = segments.shape
    form = ("state", "state") if name == "transitions" else ("state",)
    shape: tuple[int, ...] = (S,) * len(form)
    if per_position:
        form, shape = ("batch", "time", *form), (B, T, *shape)
    if value is None:
        return segments.new_zeros(shape)
    value = checks.as_potentials(name, value)
    checks.require_same_dtype(name, value, "segments", segments)
    checks.require_shape(
        name, value, shape, f"({', '.join(form)})".replace("(state)", "(state,)")
    )
    return value


def _build_semi_markov(
    T: int, D: int, S: int, per_position: bool
) -> tuple[Circuit, Items]:
    """Build the forward algorithm of Sarawagi and Cohen (2004).

    ``ending[t, s]`` sums over segmentations of the first t positions whose last segment
    has state s; ``entering[t, s]`` over those of the first t positions, with the
    transition to a segment of state s that starts at t.
    """
    c = Circuit()
    segment = c.leaves(T, D, S)
    transition = (
        c.leaves(T, S, S) if per_position else c.shared(S, S)[None].repeat(T, 0)
    )
    start, end = c.shared(S), c.shared(S)
    value = np.arange(D)[:, None] * S + np.arange(S)
    c.label(segment, np.arange(T)[:, None, None], value)
    ending, entering = c.chart(T + 1, S), c.chart(T, S)
    roots = c.chart(T + 1)
    roots[0] = c.ONE
    for t in range(T):
        if t:
            c.define(entering[t], (ending[t][None], transition[t].T))
        else:
            entering[0] = start
        d = np.arange(min(D, t + 1))
        # sum over durations on the last axis; a segment of d + 1 positions that ends at
        # t starts at t - d
        c.define(ending[t + 1], (entering[t - d].T, segment[t - d, d].T))
        c.define(roots[t + 1], (ending[t + 1], end))
    return c, roots
