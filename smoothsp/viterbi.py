"""Viterbi decoding in plain PyTorch, for exported programs."""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan

NO_TORCHSCRIPT = "torch.jit: TorchScript is not supported; use torch.export"


class Viterbi(nn.Module):
    r"""``LinearChain.decode`` without kernels: for ``torch.export`` and ONNX.

    Two scans over time, with operators that every runtime supports. The forward scan
    computes

    .. math:: v_t(j) = e_t(j) + \max_i v_{t-1}(i) + A(i, j)

    in float64 and stores the maximisers; the backward scan follows them.

    Parameters
    ----------
    transitions
        ``(state, state)``, -inf where forbidden.
    start, end
        ``(state,)``.
    batch_first
        If False, emissions, mask and labels have time before batch.

    Notes
    -----
    O(batch time state^2), and O(batch state^2) memory per step. ``LinearChain.decode``
    is many times as fast. Values are not checked.

    Source: Pillutla et al., "A Smoother Way to Train Structured Prediction Models",
    algorithm 1.
    """

    transitions: Tensor
    start: Tensor
    end: Tensor

    def __init__(
        self, transitions: Tensor, start: Tensor, end: Tensor, batch_first: bool = True
    ) -> None:
        super().__init__()
        self.batch_first = batch_first
        for name, scores in (
            ("transitions", transitions),
            ("start", start),
            ("end", end),
        ):
            self.register_buffer(name, scores.detach().double())

    def __prepare_scriptable__(self) -> None:
        """Raise TypeError: ``torch.jit.script`` calls this method first."""
        raise TypeError(NO_TORCHSCRIPT)

    def forward(
        self,
        emissions: Float[Tensor, "batch time state"],
        mask: Bool[Tensor, "batch time"],
    ) -> tuple[Int[Tensor, "batch time"], Float[Tensor, " batch"]]:
        """Return the best labels, -1 where masked, and their scores; no gradients."""
        if torch._C._is_tracing():
            raise TypeError(NO_TORCHSCRIPT)
        emissions = emissions.detach()
        if self.batch_first:
            emissions, mask = emissions.transpose(0, 1), mask.transpose(0, 1)
        scores, mask = emissions.double(), mask.bool()
        T, B, S = scores.shape
        if T == 0 or B == 0:
            labels = mask.long()
            labels = labels.transpose(0, 1) if self.batch_first else labels
            return labels, emissions.new_zeros(B)
        # until the first real position, best[b, j] is the start score of j
        has_started = scores.new_zeros(B, 1)
        best = scores.new_zeros(B, S) + self.start
        states = torch.arange(S, device=scores.device)
        masked = torch.full((1,), -1, device=scores.device)

        def step(carry: tuple[Tensor, Tensor], x: tuple[Tensor, Tensor]) -> Any:
            best, has_started = carry
            e, real = x[0], x[1][:, None]
            # max over i of v_{t-1}(i) + A(i, j), and its argmax
            extended, backpointers = (best[:, :, None] + self.transitions).max(1)
            extended = torch.where(has_started > 0, extended, best)
            backpointers = torch.where(
                (has_started > 0) & real, backpointers, states.expand(B, S)
            )
            # masked positions keep the values and point to the same state
            best = torch.where(real, extended + e, best)
            has_started = torch.maximum(has_started, real.to(has_started.dtype))
            return (best, has_started), backpointers

        (best, has_started), backpointers = scan(
            step, (best, has_started), (scores, mask)
        )
        value, last = (best + self.end).max(1)

        def follow_backpointers(label: Tensor, x: tuple[Tensor, Tensor]) -> Any:
            backpointers, real = x
            output = torch.where(real, label, masked.expand(B))
            return backpointers.gather(1, label[:, None]).squeeze(1), output

        _, labels = scan(follow_backpointers, last, (backpointers, mask), reverse=True)
        # a row without real positions scores 0
        value = torch.where(has_started[:, 0] > 0, value, 0.0).to(emissions.dtype)
        return labels.transpose(0, 1) if self.batch_first else labels, value
