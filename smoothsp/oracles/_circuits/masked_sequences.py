"""Circuits over the real positions of masked sequences."""

from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from smoothsp.oracles._circuits.structure import CircuitStructure
from smoothsp.oracles._inference import checks
from smoothsp.oracles._inference.positions import Positions


class MaskedSequences(CircuitStructure):
    """Structure of sequences whose circuit runs over the real positions in order.

    An output is ``(batch, time)``, one label for each position. A subclass calls
    ``_count_real_positions`` before the constructor.
    """

    row_attributes: ClassVar[tuple[str, ...]] = ("_steps",)
    # ``(batch, time)``: real positions of each row in order, then masked ones
    _steps: Tensor | None = None

    def _count_real_positions(
        self, potentials: Tensor, lengths: Tensor | None, mask: Tensor | None
    ) -> Tensor | int:
        """Number of real positions of potentials ``(batch, time, ...)``."""
        B, T = potentials.shape[:2]
        if lengths is not None and mask is not None:
            raise ValueError("lengths, mask: expected at most one of them, got both")
        if mask is not None:
            description = "(batch, time)"
            mask = checks.as_bool_mask(
                "mask", mask, (B, T), description, potentials.device
            )
            positions = Positions.from_mask(mask)
            self._steps = positions.steps
            return positions.lengths
        if lengths is not None:
            return checks.as_lengths(lengths, B, T, potentials.device)
        return T

    @property
    def output_shapes(self) -> Int[Tensor, "batch 1"]:
        """``(batch, 1)``: the labels of each row up to its last real position."""
        if self._steps is None:
            return super().output_shapes
        B, T = self._steps.shape
        positions = Positions(B, T, self._steps.device, self._steps, self.lengths)
        return positions.end_positions[:, None]

    def _pack(self, potentials: Tensor) -> Tensor:
        """Reorder ``(batch, time, ...)`` with the real positions first."""
        if self._steps is None:
            return potentials
        steps = self._steps.reshape(*self._steps.shape, *[1] * (potentials.dim() - 2))
        return potentials.gather(1, steps.expand_as(potentials))

    def _unpack(self, parts: Tensor) -> Tensor:
        """Invert ``_pack``, with 0 at masked positions."""
        if self._steps is None:
            return parts
        steps = self._steps.reshape(*self._steps.shape, *[1] * (parts.dim() - 2))
        return torch.zeros_like(parts).scatter(1, steps.expand_as(parts), parts)

    def _pack_labels(self, y: Tensor) -> Tensor:
        """Reorder ``(batch, k, time)`` with the real positions first."""
        if self._steps is None:
            return y
        return y.gather(2, self._steps[:, None].expand_as(y))

    def _unpack_labels(self, y: Tensor) -> Tensor:
        """Invert ``_pack_labels``, with -1 at masked positions."""
        if self._steps is None:
            return y
        return torch.full_like(y, -1).scatter(2, self._steps[:, None].expand_as(y), y)

    def outputs_of(self, labels: Tensor) -> Tensor:
        return self._unpack_labels(labels)

    def labels_of(self, y: Tensor) -> Tensor:
        return self._pack_labels(y)

    def hamming(self, y: Tensor) -> Tensor:
        """Cost 1 for every part whose label differs from y's.

        It has the shape of the first potentials. The cost of an output is its number of
        wrong labels. y holds one output per row.
        """
        return self._unpack(super().hamming(y))
