"""Connectionist temporal classification (CTC)."""

from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from smoothsp.oracles._circuits import Circuit, CircuitStructure, Items, topology
from smoothsp.oracles._inference import checks


class CTC(CircuitStructure):
    """A batch of targets, each aligned with the frames of a row in all possible ways.

    A path assigns a class to each frame. Merging equal neighbours and dropping blanks
    turns the path into the target. Its score is the sum of its frames' scores. With
    log-probabilities, ``-log_partition()`` is the CTC loss, as
    ``torch.nn.functional.ctc_loss`` with ``reduction="none"``. A part with score
    ``-inf`` is forbidden. Every result is exact, and differentiable in the scores.

    Parameters
    ----------
    log_probs
        ``(batch, time, class)``: any scores, though log-probabilities are usual;
        float32 or float64; bfloat16 and float16 are computed in float32.
    targets
        ``(batch, label)`` integers: classes other than the blank. Entries past the end
        of a target may hold any value.
    lengths
        ``(batch,)`` integers from 0 to time: the frames of each row. Entries beyond are
        never read; their gradient is exactly zero.
    target_lengths
        ``(batch,)`` integers from 0 to label: the labels of each target.
    blank
        The class that stands for no label.

    Raises
    ------
    TypeError
        For a wrong type, dtype or device.
    ValueError
        For a wrong shape, a target label that is the blank or out of range, or NaN or
        +inf in an entry that is read. Also for a row without a path: all are forbidden,
        or its target needs more frames, for symbols and for a blank between equal
        neighbours.

    Notes
    -----
    An output is ``(batch, time)``: the class of each frame, -1 beyond the row.
    O(batch time label).

    Source: Graves et al., "Connectionist Temporal Classification" (2006), section 4.1,
    equations 5 to 8.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.oracles import CTC
    >>> log_probs = torch.log_softmax(torch.arange(12.0).reshape(1, 4, 3).sin(), 2)
    >>> ctc = CTC(log_probs, torch.tensor([[2, 1]]))
    >>> ctc.decode()[1].tolist()
    [[2, 0, 1, 0]]
    """

    log_probs: Tensor
    skips: Tensor
    row_attributes: ClassVar[tuple[str, ...]] = ("_classes",)
    output_description = (
        "classes of frames that become the target when equal neighbours are merged and "
        "blanks dropped"
    )

    def __init__(
        self,
        log_probs: Tensor,
        targets: Tensor,
        *,
        lengths: Tensor | None = None,
        target_lengths: Tensor | None = None,
        blank: int = 0,
    ) -> None:
        log_probs = checks.as_potentials("log_probs", log_probs)
        if log_probs.dim() != 3 or not log_probs.shape[2]:
            raise ValueError(
                "log_probs: expected (batch, time, class) with at least one class, got "
                f"{tuple(log_probs.shape)}"
            )
        (B, T, C), device = log_probs.shape, log_probs.device
        targets = checks.as_int64("targets", targets, device)
        if targets.dim() != 2 or len(targets) != B:
            raise ValueError(
                f"targets: expected (batch, label) with {B} rows, got "
                f"{tuple(targets.shape)}"
            )
        if isinstance(blank, bool) or not isinstance(blank, int):
            raise TypeError(f"blank: expected an int, got {type(blank).__name__}")
        if not 0 <= blank < C:
            raise ValueError(f"blank: expected a class from 0 to {C - 1}, got {blank}")
        M = targets.shape[1]
        frames: Tensor | int = T
        labels: Tensor | int = M
        if lengths is not None:
            frames = checks.as_lengths(lengths, B, T, device)
        if target_lengths is not None:
            name = "target_lengths"
            labels = checks.as_lengths(target_lengths, B, M, device, name)
        real = None
        if isinstance(labels, Tensor):
            real = torch.arange(M, device=device) < labels[:, None]
        if checks.has_concrete_values():
            _require_target_classes(targets, real, C, blank)
        self.blank = blank
        # class of each target position: 0 is the blank, 1 to M the labels
        labels_or_blank = targets if real is None else torch.where(real, targets, blank)
        self._classes = torch.cat(
            [labels_or_blank.new_full((B, 1), blank), labels_or_blank], 1
        )
        # a blank between labels may be skipped only if they differ; skips are an extra
        # potential of score 0 or -inf, so that one circuit serves all targets
        skips = torch.zeros((B, max(M - 1, 0)), dtype=log_probs.dtype, device=device)
        is_repeat = targets[:, 1:] == targets[:, :-1]
        skips = skips.masked_fill(is_repeat, -torch.inf)
        # M labels and at most M - 1 blanks always fit into 2 M frames
        self._has_enough_frames = isinstance(frames, int) and 2 * M <= T
        if not self._has_enough_frames and checks.has_concrete_values():
            repeats = (is_repeat if real is None else is_repeat & real[:, 1:]).sum(1)
            _require_enough_frames(frames, labels, repeats)
            self._has_enough_frames = True
        built = topology(_build_ctc, T, M)
        super().__init__(
            built,
            {"log_probs": log_probs, "skips": skips},
            roots=built.root(frames, labels),
            lengths=frames,
            shape=(T,),
        )

    def leaves(self) -> tuple[tuple[Tensor, Tensor], tuple[()]]:
        """Scores of the target's classes at each frame, then of skipped blanks."""
        B, T, _ = self.log_probs.shape
        classes = self._classes[:, None].expand(B, T, -1)
        return (self.log_probs.gather(2, classes), self.skips), ()

    def may_be_infeasible(self, name: str) -> bool:
        """Whether -inf in a potential may leave a row without a path.

        Forbidden skips do so only in rows with fewer than 2 M frames.
        """
        return name != "skips" or not self._has_enough_frames

    def outputs_of(self, labels: Tensor) -> Tensor:
        """Classes of frames, of labels that are positions in the target."""
        B, K, _ = labels.shape
        classes = self._classes[:, None].expand(B, K, -1)
        classes_of_frames = classes.gather(2, labels.clamp(min=0))
        return torch.where(labels >= 0, classes_of_frames, -1)

    def labels_of(self, y: Tensor) -> Tensor:
        """Position of each frame in the target: 0 for the blank, m for its m-th label.

        The position is the number of labels begun so far.
        """
        is_label = y != self.blank
        begins = is_label.clone()
        begins[..., 1:] &= y[..., 1:] != y[..., :-1]
        count = begins.long().cumsum(2)
        position = torch.where(is_label, count, 0)
        # a class other than the target's gets a label of no leaf
        B, K, _ = y.shape
        invalid = self._classes.shape[1]
        classes = self._classes[:, None].expand(B, K, invalid)
        is_match = classes.gather(2, position.clamp(max=invalid - 1)) == y
        return torch.where(is_match & (count < invalid), position, invalid)

    def leaves_used(self, labels: Tensor) -> Tensor:
        """Leaves of the frames, and of skipped blanks."""
        frames = super().leaves_used(labels)
        _, T, _ = self.log_probs.shape
        num_positions = self._classes.shape[1]
        current, previous = labels[..., 1:], labels[..., :-1]
        skipped = (previous > 0) & (current == previous + 1) & (current < num_positions)
        return torch.cat(
            [frames, torch.where(skipped, T * num_positions + current - 2, -1)], 2
        )

    def hamming(
        self, y: Int[Tensor, "batch time"]
    ) -> Float[Tensor, "batch time class_"]:
        """Cost 1 for every class that differs from y at a frame of the row."""
        y = self._checked_frames(y)
        C = self.log_probs.shape[2]
        # costs are per class of a frame, although leaves are positions in the target
        wrong = y[..., None] != torch.arange(C, device=y.device)
        real = torch.arange(y.shape[1], device=y.device) < self.lengths[:, None]
        return (wrong & real[..., None]).to(self.log_probs.dtype)

    def _checked_frames(self, y: Tensor) -> Tensor:
        """Return y as int64 ``(batch, time)``; raise ValueError if it is no path."""
        y = checks.as_int64("y", y, self.log_probs.device)
        checks.require_shape("y", y, tuple(self.log_probs.shape[:2]), "(batch, time)")
        self._labels_per_row(y)
        return y

    @property
    def _label_counts_width(self) -> int:
        return self.log_probs.shape[2]

    def label_counts(self, y: Tensor) -> Float[Tensor, "batch class_"]:
        """Number of frames that y assigns to each class."""
        y = self._checked_frames(y)
        B, T, C = self.log_probs.shape
        real = torch.arange(T, device=y.device) < self.lengths[:, None]
        real = real & (y >= 0) & (y < C)
        # an extra class collects the padding
        counts = self.log_probs.new_zeros(B, C + 1)
        ones = counts.new_ones(y.shape)
        return counts.scatter_add(1, torch.where(real, y, C), ones)[:, :C]


def _require_enough_frames(
    frames: Tensor | int, labels: Tensor | int, repeats: Tensor
) -> None:
    """Raise ValueError for rows with fewer frames than labels and needed blanks."""
    missing = labels + repeats - frames
    if bool((missing > 0).any()):
        row = int((missing > 0).int().argmax())
        N, M = (int(x if isinstance(x, int) else x[row]) for x in (frames, labels))
        R = int(repeats[row])
        raise ValueError(
            f"targets: row {row} needs {M + R} frames ({_pluralise(M, 'symbol')}, "
            f"{_pluralise(R, 'repeat')}), got {N}; leave the row out"
        )


def _pluralise(n: int, word: str) -> str:
    return f"{n} {word}" if n == 1 else f"{n} {word}s"


def _require_target_classes(
    targets: Tensor, real: Tensor | None, C: int, blank: int
) -> None:
    """Raise ValueError unless real target labels are classes other than the blank."""
    # one reduction accepts most batches, without masks of the padding
    if targets.numel():
        low, high = (int(x) for x in targets.aminmax())
        if 0 <= low <= high < C and not low <= blank <= high:
            return
    wrong = (targets < 0) | (targets >= C) | (targets == blank)
    wrong = wrong if real is None else wrong & real
    if bool(wrong.any()):
        b, m = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"targets: expected classes from 0 to {C - 1} other than the blank "
            f"{blank}, got {int(targets[b, m])} at row {b}, label {m}"
        )


def _build_ctc(T: int, M: int) -> tuple[Circuit, Items]:
    """Build the forward variables of Graves et al. (2006), equations 5 to 7.

    ``alpha[t, s]`` sums over prefixes of paths that are at position s of blank, label,
    blank, ..., blank at frame t. ``merged[t, m]`` is the sum of the predecessors of the
    m-th label, before its frame is multiplied.
    """
    c = Circuit()
    S = 2 * M + 1
    frame, skip = c.leaves(T, M + 1), c.leaves(max(M - 1, 0))
    c.label(frame, np.arange(T)[:, None], np.arange(M + 1))
    alpha, merged = c.chart(T, S), c.chart(T, M)
    from_label = np.append(np.full(min(M, 1), c.NONE, np.int32), skip)
    roots = np.full((T + 1, M + 1), c.NONE, np.int32)
    roots[0, 0] = c.ONE
    for t in range(T):
        # each frame advances by at most two positions
        alpha[t, 2 * t + 2 :] = c.NONE
        blanks, labels = slice(0, 2 * t + 2, 2), slice(1, 2 * t + 2, 2)
        num_labels = len(alpha[t, labels])
        if t == 0:
            alpha[0, :2] = frame[0, :2]
        else:
            previous = np.append([c.NONE, c.NONE], alpha[t - 1]).astype(np.int32)
            stays, skips = (
                np.stack([previous[2:], previous[1:-1]], 1),
                previous[:-2, None],
            )
            c.define(alpha[t, blanks], (stays[blanks], frame[t, :1, None]))
            skipped = skips[labels], from_label[:num_labels, None]
            # skips have their own factor, so the frame is multiplied after the sum
            c.define(merged[t, :num_labels], (stays[labels],), skipped)
            c.multiply(
                alpha[t, labels], merged[t, :num_labels], frame[t, 1 : num_labels + 1]
            )
        # complete paths of a target of m labels end with its last label or a blank
        complete = c.chart(M + 1)
        last_label = np.append(c.NONE, alpha[t, 1::2]).astype(np.int32)
        c.define(complete, (np.stack([alpha[t, ::2], last_label], 1),))
        roots[t + 1] = complete
    return c, roots
