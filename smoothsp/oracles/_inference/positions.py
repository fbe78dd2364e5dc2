"""Real (unmasked) positions of a batch of sequences."""

import torch
from torch import Tensor

from smoothsp._kernels.chain.cpu import fused
from smoothsp.oracles._inference.tracing import is_eager_tensor


class Positions:
    """Real positions of ``batch`` rows of ``time`` steps; by default all are real.

    Parameters
    ----------
    batch, time
        Sizes.
    device
        Device of the tensors.
    steps, lengths
        See the properties: int64, contiguous and not shared with a caller, who could
        change them later. Computed at first use if absent.
    """

    __slots__ = ("_lengths", "_steps", "batch", "device", "time")

    def __init__(
        self,
        batch: int,
        time: int,
        device: torch.device,
        steps: Tensor | None = None,
        lengths: Tensor | None = None,
    ) -> None:
        self.batch, self.time, self.device = batch, time, device
        self._steps, self._lengths = steps, lengths

    @classmethod
    def from_mask(cls, mask: Tensor) -> "Positions":
        """Return the positions with ``mask`` True, ``(batch, time)`` bool."""
        B, T = mask.shape
        if not is_eager_tensor(mask):
            # stable: real positions first, each group in order of time
            steps = torch.sort(~mask, dim=1, stable=True).indices
            return cls(B, T, mask.device, steps, mask.sum(1))
        mask = mask.contiguous()
        steps = torch.empty((B, T), dtype=torch.int64, device=mask.device)
        lengths = torch.empty(B, dtype=torch.int64, device=mask.device)
        addresses = mask.data_ptr(), steps.data_ptr(), lengths.data_ptr()
        fused.mask_to_steps(B, T, *addresses)
        return cls(B, T, mask.device, steps, lengths)

    @property
    def steps(self) -> Tensor:
        """``(batch, time)``: real positions of each row in order, then the masked."""
        if self._steps is None:
            steps = torch.arange(self.time, device=self.device)
            self._steps = steps.expand(self.batch, self.time).contiguous()
        return self._steps

    @property
    def lengths(self) -> Tensor:
        """``(batch,)``: number of real positions of each row."""
        if self._lengths is None:
            self._lengths = torch.full((self.batch,), self.time, device=self.device)
        return self._lengths

    @property
    def end_positions(self) -> Tensor:
        """``(batch,)``: last real position of each row plus 1; 0 without one."""
        if self._steps is None or not self.time:
            return self.lengths
        last = self.steps.gather(1, (self.lengths - 1).clamp(min=0)[:, None])
        return torch.where(self.lengths > 0, last.squeeze(1) + 1, 0)

    @property
    def mask(self) -> Tensor:
        """``(batch, time)``: True where a position is real."""
        B, T = self.batch, self.time
        mask = torch.ones(B, T, dtype=torch.bool, device=self.device)
        if self._steps is None and self._lengths is None:
            return mask
        real = torch.arange(T, device=self.device) < self.lengths[:, None]
        return mask.scatter(1, self.steps, real)

    def steps_and_lengths(self) -> tuple[Tensor | None, Tensor | None]:
        """Steps and lengths; None for both if all positions are real."""
        if self._steps is None and self._lengths is None:
            return None, None
        return self.steps, self.lengths

    def addresses(self) -> tuple[int, int]:
        """Addresses of steps and lengths, 0 if absent."""
        steps, lengths = self._steps, self._lengths
        if steps is None and lengths is None:
            return 0, 0
        return (
            0 if steps is None else steps.data_ptr(),
            0 if lengths is None else lengths.data_ptr(),
        )

    def select(self, rows: Tensor) -> "Positions":
        """Return the positions of the given rows."""
        steps, lengths = self.steps[rows], self.lengths[rows]
        return Positions(len(lengths), self.time, self.device, steps, lengths)
