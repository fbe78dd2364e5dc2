"""A semi-Markov head: segments scored as a whole, over emissions of BIOES labels."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothsp.layers import Decoding
from smoothsp.oracles import SemiMarkov
from smoothsp.oracles._inference import checks

__all__ = ["SegmentHead"]

OUTSIDE = 0  # the state of words outside of spans


class SegmentHead(nn.Module):
    r"""Segments over emissions ``e`` of BIOES labels: owns what segments add.

    A segment of type X from word t to word u > t, and one of word t alone, score

    .. math::

        e_{t, B-X} + \sum_{t < v < u} e_{v, I-X} + e_{u, E-X} + \text{duration}_{u-t, X}
        \qquad e_{t, S-X} + \text{duration}_{0, X}

    and words outside are segments of one word. Neighbours have a transition.

    Parameters
    ----------
    labels
        In BIOES: ``O``, and four for each type.
    longest
        How many words a segment has at most.

    Attributes
    ----------
    states
        ``O``, and the types in the order of the labels.
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
        number = {label: n for n, label in enumerate(labels)}
        wanted = ["O", *(f"{p}-{kind}" for kind in types for p in "BIES")]
        if sorted(wanted) != sorted(labels):
            raise ValueError(
                f"labels: expected O and B-, I-, E-, S- of each type, got {labels}"
            )
        columns = [[number[f"{p}-{kind}"] for kind in types] for p in "BIES"]
        self._register("_columns", torch.tensor(columns).reshape(4, len(types)))
        rank = {name: n for n, name in enumerate(self.states)}
        owners = [rank[kind or "O"] for _, kind in parts]
        self._register("_state_of", torch.tensor(owners))
        begins = [prefix in ("O", "B", "S") for prefix, _ in parts]
        self._register("_begins", torch.tensor(begins))
        # the label of a word, by its state and whether it is first and last
        table = [[[number["O"]] * 2] * 2]
        for kind in types:
            inner, last = number[f"I-{kind}"], number[f"E-{kind}"]
            table.append([[inner, last], [number[f"B-{kind}"], number[f"S-{kind}"]]])
        self._register("_label_of", torch.tensor(table))
        K = len(self.states)
        self.transitions = nn.Parameter(torch.zeros(K, K))
        self.start_transitions = nn.Parameter(torch.zeros(K))
        self.end_transitions = nn.Parameter(torch.zeros(K))
        self.durations = nn.Parameter(torch.zeros(longest, K))

    def _register(self, name: str, values: Tensor) -> None:
        self.register_buffer(name, values, persistent=False)

    def structure(self, emissions: Tensor, mask: Tensor) -> SemiMarkov:
        """Segmentations of rows whose real positions, True in the mask, come first.

        ``emissions`` are ``(batch, time, label)``.
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
        _refuse_wrong("emissions", emissions, mask)
        _refuse_wrong("durations", self.durations)
        try:
            return SemiMarkov(
                self._segments(emissions) + self.durations,
                self.transitions,
                self.start_transitions,
                self.end_transitions,
                lengths=mask.sum(1),
            )
        except ValueError as error:
            # which parts of the score the segments are made of
            said = str(error).replace("segments:", "emissions, durations:", 1)
            raise ValueError(said) from error

    def _segments(self, emissions: Tensor) -> Tensor:
        """Sum of emissions over each segment, ``(batch, time, duration, state)``."""
        begin, inner, last, single = (emissions[..., c] for c in self._columns)
        outside = emissions[..., self.labels.index("O")][..., None]
        none = torch.full_like(outside, -torch.inf)
        found = [torch.cat([outside, single], 2)]
        for d in range(1, self.longest):
            found.append(torch.cat([none, begin + _later(last, d)], 2))
            begin = begin + _later(inner, d)
        return torch.stack(found, 2)

    def allowed(self, labels: Tensor) -> Tensor:
        """The segments of which each word may have its label.

        From bool ``(batch, time, label)``, bool ``(batch, time, duration, state)``: for
        losses of partial labels.
        """
        scores = torch.zeros(labels.shape, device=labels.device)
        return self._segments(scores.masked_fill(~labels, -torch.inf)) == 0

    def outputs(self, tags: Tensor, mask: Tensor) -> Tensor:
        """Outputs of ``SemiMarkov``, ``(batch, time)``, from label numbers."""
        tags = checks.as_int64("tags", tags, mask.device)
        checks.require_shape("tags", tags, tuple(mask.shape), "(batch, time)")
        wrong = mask & ((tags < 0) | (tags >= len(self.labels)))
        if bool(wrong.any()):
            b, t = wrong.nonzero()[0].tolist()
            raise ValueError(
                f"tags: expected labels from 0 to {len(self.labels) - 1}, got "
                f"{int(tags[b, t])} at row {b}, step {t}"
            )
        known = torch.where(mask, tags, 0)
        begins = self._begins[known] & mask  # type: ignore[index]
        return torch.where(begins, self._state_of[known], -1)

    def tags(self, y: Tensor, lengths: Tensor) -> Tensor:
        """Label numbers, -1 in the padding, from outputs ``(batch, k, time)``."""
        T = y.shape[2]
        at = torch.arange(T, device=y.device)
        real = at < lengths[:, None, None]
        begins = y >= 0
        place = torch.where(begins, at, 0)
        place = place.cummax(2).values if T else place
        state = y.gather(2, place).clamp(min=0)
        # a word is last where the next one begins or is none
        after = _later(begins.movedim(2, 1), 1).movedim(1, 2)
        ends = after | (at + 1 >= lengths[:, None, None])
        labels = self._label_of[state, begins.long(), ends.long()]  # type: ignore[index]
        return torch.where(real & (y >= 0).any(2, keepdim=True), labels, -1)

    def forward(
        self, emissions: Tensor, tags: Tensor, mask: Tensor, loss: nn.Module
    ) -> Tensor:
        """Loss of the gold labels, which no segment longer than ``longest`` may have.

        Parameters
        ----------
        emissions
            ``(batch, time, label)``.
        tags
            ``(batch, time)`` label numbers; anything where masked.
        mask
            ``(batch, time)`` bool, True where a position is real.
        loss
            Over structures.
        """
        structure = self.structure(emissions, mask)
        value: Tensor = loss(structure, self.outputs(tags, mask))
        return value

    def decode(self, emissions: Tensor, mask: Tensor) -> Decoding:
        """Best labels, -1 where masked, and their score; no gradient is recorded."""
        with torch.no_grad():
            chain = self.structure(emissions, mask)
            scores, y = chain.decode()
            return Decoding(self.tags(y[:, None], chain.lengths).squeeze(1), scores)


def _refuse_wrong(name: str, scores: Tensor, mask: Tensor | None = None) -> None:
    """Raise where scores are NaN or +inf, at real positions if there is a mask."""
    if not checks.has_concrete_values():
        return
    wrong = ~(scores < torch.inf)
    if mask is not None:
        wrong = wrong & mask[..., None]
    if bool(wrong.any()):
        place = wrong.nonzero()[0].tolist()
        axes = ("row", "step", "label") if mask is not None else ("duration", "state")
        where = ", ".join(f"{a} {i}" for a, i in zip(axes, place, strict=True))
        raise ValueError(
            f"{name}: expected no NaN and no +inf, got {scores[tuple(place)].item()} at"
            f" {where}; scores must be finite, or -inf to forbid"
        )


def _later(x: Tensor, steps: int) -> Tensor:
    """``x[:, t + steps]`` at t, zero past the end."""
    return F.pad(x[:, steps:], (0, 0, 0, min(steps, x.shape[1])))
