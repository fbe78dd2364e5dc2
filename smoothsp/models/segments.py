"""Semi-Markov output layer: segment scores from emissions of BIOES labels."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothsp.layers import Decoding
from smoothsp.oracles import SemiMarkov
from smoothsp.oracles._inference import checks

__all__ = ["SegmentHead"]

OUTSIDE_STATE = 0  # state of words outside of spans


class SegmentHead(nn.Module):
    r"""Semi-Markov layer with transitions and durations, over BIOES emissions ``e``.

    A segment of type X from word t to word u > t, and one of word t alone, score

    .. math::

        e_{t, B-X} + \sum_{t < v < u} e_{v, I-X} + e_{u, E-X} + \text{duration}_{u-t, X}
        \qquad e_{t, S-X} + \text{duration}_{0, X}

    and words outside of spans are segments of one word. Transitions score pairs of
    neighbouring segments.

    Parameters
    ----------
    labels
        Labels in BIOES: ``O``, and four for each type.
    longest
        Maximum number of words of a segment.

    Attributes
    ----------
    states
        ``O``, then the types in the order of the labels.
    transitions
        ``(state, state)``.
    start_transitions, end_transitions
        ``(state,)``.
    durations
        ``(longest, state)``: ``[d, s]`` scores a segment of d + 1 words.

    Notes
    -----
    Source: Sarawagi and Cohen, "Semi-Markov Conditional Random Fields for Information
    Extraction" (2004).
    """

    _state_of: Tensor
    _columns: Tensor

    def __init__(self, labels: Sequence[str], longest: int) -> None:
        super().__init__()
        if isinstance(longest, bool) or not isinstance(longest, int) or longest < 1:
            raise ValueError(f"longest: expected an int from 1, got {longest!r}")
        labels = list(labels) if isinstance(labels, Iterable) else labels
        if not isinstance(labels, list) or not all(isinstance(x, str) for x in labels):
            raise TypeError(f"labels: expected strings, got {labels!r}")
        self.labels, self.longest = labels, longest
        parts = [
            label.split("-", 1) if "-" in label else (label, "") for label in labels
        ]
        types = list(dict.fromkeys(kind for _, kind in parts if kind))
        self.states = ["O", *types]
        label_index = {label: n for n, label in enumerate(labels)}
        expected = ["O", *(f"{p}-{kind}" for kind in types for p in "BIES")]
        if sorted(expected) != sorted(labels):
            raise ValueError(
                f"labels: expected O and B-, I-, E-, S- of each type, got {labels}"
            )
        columns = [[label_index[f"{p}-{kind}"] for kind in types] for p in "BIES"]
        self._register_constant(
            "_columns", torch.tensor(columns).reshape(4, len(types))
        )
        state_index = {name: n for n, name in enumerate(self.states)}
        state_of_label = [state_index[kind or "O"] for _, kind in parts]
        self._register_constant("_state_of", torch.tensor(state_of_label))
        is_first = [prefix in ("O", "B", "S") for prefix, _ in parts]
        self._register_constant("_begins", torch.tensor(is_first))
        # Label of a word, indexed by state, is first, is last.
        label_table = [[[label_index["O"]] * 2] * 2]
        for kind in types:
            inner, last = label_index[f"I-{kind}"], label_index[f"E-{kind}"]
            label_table.append(
                [[inner, last], [label_index[f"B-{kind}"], label_index[f"S-{kind}"]]]
            )
        self._register_constant("_label_of", torch.tensor(label_table))
        K = len(self.states)
        self.transitions = nn.Parameter(torch.zeros(K, K))
        self.start_transitions = nn.Parameter(torch.zeros(K))
        self.end_transitions = nn.Parameter(torch.zeros(K))
        self.durations = nn.Parameter(torch.zeros(longest, K))

    def _register_constant(self, name: str, values: Tensor) -> None:
        self.register_buffer(name, values, persistent=False)

    def structure(self, emissions: Tensor, mask: Tensor) -> SemiMarkov:
        """Build the semi-Markov structure from emissions ``(batch, time, label)``.

        In each row of the mask, real positions (True) come first.
        """
        emissions = checks.as_potentials("emissions", emissions)
        if emissions.dim() != 3 or emissions.shape[2] != len(self.labels):
            raise ValueError(
                f"emissions: expected (batch, time, {len(self.labels)}), got "
                f"{tuple(emissions.shape)}"
            )
        if emissions.dtype != self.transitions.dtype:
            raise TypeError(
                f"emissions: expected {self.transitions.dtype} like this head, got "
                f"{emissions.dtype}; convert them"
            )
        if emissions.device != self.transitions.device:
            raise TypeError(
                f"emissions: expected a tensor on {self.transitions.device} like this "
                f"head, got one on {emissions.device}; move the head with .to(device)"
            )
        size = tuple(emissions.shape[:2])
        mask = checks.as_bool_mask(
            "mask", mask, size, "(batch, time)", emissions.device
        )
        if bool((mask[:, 1:] & ~mask[:, :-1]).any()):
            raise ValueError(
                "mask: expected the real positions of each row first, got a hole"
            )
        _require_no_nan_or_inf("emissions", emissions, mask)
        _require_no_nan_or_inf("durations", self.durations)
        try:
            return SemiMarkov(
                self._score_segments(emissions) + self.durations,
                self.transitions,
                self.start_transitions,
                self.end_transitions,
                lengths=mask.sum(1),
            )
        except ValueError as error:
            # Segments are internal: name the inputs that they are sums of.
            message = str(error).replace("segments:", "emissions, durations:", 1)
            raise ValueError(message) from error

    def _score_segments(self, emissions: Tensor) -> Tensor:
        """Sum emissions over each segment, ``(batch, time, duration, state)``.

        Recurrence over durations d: prefix sums ``B + I + ... + I`` from t, plus the E
        emission at t + d.
        """
        begin, inner, last, single = (emissions[..., c] for c in self._columns)
        outside = emissions[..., self.labels.index("O")][..., None]
        none = torch.full_like(outside, -torch.inf)
        scores = [torch.cat([outside, single], 2)]
        for d in range(1, self.longest):
            scores.append(torch.cat([none, begin + _shift_time(last, d)], 2))
            begin = begin + _shift_time(inner, d)
        return torch.stack(scores, 2)

    def allowed(self, labels: Tensor) -> Tensor:
        """Return the segments that allowed labels permit, for partial-label losses.

        From labels bool ``(batch, time, label)`` to segments bool
        ``(batch, time, duration, state)``. A segment of -inf has a forbidden label.
        """
        scores = torch.zeros(labels.shape, device=labels.device)
        return self._score_segments(scores.masked_fill(~labels, -torch.inf)) == 0

    def outputs(self, tags: Tensor, mask: Tensor) -> Tensor:
        """Convert label indices to ``SemiMarkov`` outputs, ``(batch, time)``.

        An output has the state at the first word of a segment, else -1.
        """
        tags = checks.as_int64("tags", tags, mask.device)
        checks.require_shape("tags", tags, tuple(mask.shape), "(batch, time)")
        wrong = mask & ((tags < 0) | (tags >= len(self.labels)))
        if bool(wrong.any()):
            b, t = wrong.nonzero()[0].tolist()
            raise ValueError(
                f"tags: expected labels from 0 to {len(self.labels) - 1}, got "
                f"{int(tags[b, t])} at row {b}, step {t}"
            )
        real_tags = torch.where(mask, tags, 0)
        begins = self._begins[real_tags] & mask  # type: ignore[index]
        return torch.where(begins, self._state_of[real_tags], -1)

    def tags(self, y: Tensor, lengths: Tensor) -> Tensor:
        """Convert outputs ``(batch, k, time)`` to label indices, -1 in the padding."""
        T = y.shape[2]
        step = torch.arange(T, device=y.device)
        real = step < lengths[:, None, None]
        begins = y >= 0
        start = torch.where(begins, step, 0)
        start = start.cummax(2).values if T else start
        state = y.gather(2, start).clamp(min=0)
        # A word is last if the next one starts a segment or lies beyond the row.
        starts_next = _shift_time(begins.movedim(2, 1), 1).movedim(1, 2)
        ends = starts_next | (step + 1 >= lengths[:, None, None])
        labels = self._label_of[state, begins.long(), ends.long()]  # type: ignore[index]
        return torch.where(real & (y >= 0).any(2, keepdim=True), labels, -1)

    def forward(
        self, emissions: Tensor, tags: Tensor, mask: Tensor, loss: nn.Module
    ) -> Tensor:
        """Return the loss of gold labels with segments of at most ``longest`` words.

        Parameters
        ----------
        emissions
            ``(batch, time, label)``.
        tags
            ``(batch, time)`` label indices; arbitrary where masked.
        mask
            ``(batch, time)`` bool, True where a position is real.
        loss
            Loss of a structure and an output.
        """
        structure = self.structure(emissions, mask)
        value: Tensor = loss(structure, self.outputs(tags, mask))
        return value

    def decode(self, emissions: Tensor, mask: Tensor) -> Decoding:
        """Return the best labels, -1 where masked, and scores, without gradient."""
        with torch.no_grad():
            chain = self.structure(emissions, mask)
            scores, y = chain.decode()
            return Decoding(self.tags(y[:, None], chain.lengths).squeeze(1), scores)


def _require_no_nan_or_inf(
    name: str, scores: Tensor, mask: Tensor | None = None
) -> None:
    """Raise if scores are NaN or +inf; with a mask, at real positions only."""
    if not checks.has_concrete_values():
        return
    is_invalid = ~(scores < torch.inf)
    if mask is not None:
        is_invalid = is_invalid & mask[..., None]
    if bool(is_invalid.any()):
        position = is_invalid.nonzero()[0].tolist()
        axes = ("row", "step", "label") if mask is not None else ("duration", "state")
        where = ", ".join(f"{a} {i}" for a, i in zip(axes, position, strict=True))
        raise ValueError(
            f"{name}: expected no NaN and no +inf, got"
            f" {scores[tuple(position)].item()} at {where}; scores must be finite, or"
            " -inf to forbid"
        )


def _shift_time(x: Tensor, steps: int) -> Tensor:
    """Shift along time: ``x[:, t + steps]`` at t, zero beyond the end."""
    return F.pad(x[:, steps:], (0, 0, 0, min(steps, x.shape[1])))
