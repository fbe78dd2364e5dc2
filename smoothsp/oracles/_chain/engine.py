"""Engine of chains: calls the kernels of the device that holds the potentials."""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from smoothsp.oracles._chain import cuda, forward_backward, scores, viterbi
from smoothsp.oracles._chain.buffers import ChainBuffers
from smoothsp.oracles._chain.vjp import unpack_marginals, vjp, vjp_overwriting
from smoothsp.oracles._inference.double_double import as_hi_lo, to_dtype
from smoothsp.oracles._inference.engine import BestOutputs, Engine, weight_rows
from smoothsp.oracles._inference.op import ENGINE_BUILDERS
from smoothsp.oracles._inference.positions import Positions
from smoothsp.oracles._inference.tracing import (
    is_dense_cpu,
    is_eager,
    is_eager_tensor,
)

FLOAT64 = torch.float64


class ChainEngine(ChainBuffers, Engine):  # type: ignore[misc]
    """Engine of a linear chain: emissions, transitions, start, end, real positions.

    ``used_parts`` are labels ``[B, k, T]``, padded with rows of -1.
    """

    __slots__ = ()
    name = "chain"

    @property
    def num_row_potentials(self) -> int:  # type: ignore[override]
        return 1 if self.shared_transitions else 2

    @property
    def runs_kernels(self) -> bool:  # type: ignore[override]
        return self.kernel_ready or is_eager_tensor(self.potentials[0], "cuda")

    @property
    def row_attributes(self) -> tuple[Tensor, ...]:  # type: ignore[override]
        return self.positions.steps, self.positions.lengths

    def with_tensors(self, tensors: Sequence[Tensor]) -> "ChainEngine":
        emissions, transitions, start, end, *row_attributes = tensors
        potentials = emissions, transitions, start, end
        if row_attributes:
            return build_chain_engine(tensors)
        B, T, _ = emissions.shape
        positions = self.positions
        if (positions.batch, positions.time) != (B, T):
            positions = Positions(
                B, T, emissions.device, *positions.steps_and_lengths()
            )
        return ChainEngine(potentials, positions)

    def _cpu_buffers(self) -> ChainBuffers | None:
        """Buffers that CPU kernels may read; None if the tensors are on a device."""
        if self.kernel_ready:
            return self
        if self.potentials[0].is_cuda:
            return None
        result: ChainBuffers = ChainBuffers.from_op_args(*self.op_args)
        return result

    def log_partition_and_marginals(
        self,
        needs_grad: Sequence[bool],
        dtype: torch.dtype | None,
        with_hi_lo: bool = False,
    ) -> tuple[Tensor, Tensor | None, list[Tensor]]:
        chain = self._cpu_buffers()
        if chain is None:
            value, *device_marginals = cuda.log_partition(*self.op_args, True)
            rounded = to_dtype(value, dtype or self.dtype)
            return rounded, as_hi_lo(value) if with_hi_lo else None, device_marginals
        hi_lo = self._empty_hi_lo() if with_hi_lo else None
        returns_float64 = dtype == FLOAT64
        value, *marginals = forward_backward.log_partition_and_marginals(
            chain, returns_float64, hi_lo
        )
        if hi_lo is not None and self.potentials[0].shape[2] == 1:
            # with one state, log Z is the score: a loss of exactly 0 needs equal digits
            only = self.potentials[0].new_zeros(len(hi_lo), 1, 1, dtype=torch.int64)
            used_parts = only.expand(-1, -1, self.potentials[0].shape[1])
            hi_lo = cast(Tensor, self.score(used_parts, FLOAT64, True)[1])[:, 0]
        return value, hi_lo, marginals

    def _empty_hi_lo(self) -> Tensor:
        B = len(self.potentials[0])
        return torch.empty(B, 2, dtype=torch.float64, device="cpu")

    def log_partition(
        self, needs_grad: Sequence[bool], dtype: torch.dtype, with_hi_lo: bool = False
    ) -> tuple[Tensor, Tensor | None, Any]:
        if not (self.kernel_ready and self.shared_transitions and dtype == self.dtype):
            return self.log_partition_and_marginals(needs_grad, dtype, with_hi_lo)
        hi_lo = self._empty_hi_lo() if with_hi_lo else None
        value, saved = forward_backward.log_partition_and_saved_marginals(self, hi_lo)
        return value, hi_lo, saved

    def saved_marginals(
        self, saved: Any, needs_grad: Sequence[bool]
    ) -> list[Tensor] | None:
        if not isinstance(saved, tuple):
            return super().saved_marginals(saved, needs_grad)
        # copies: outputs of one custom op may not share memory
        nodes, *others = unpack_marginals(saved)
        return [nodes, *(x.clone() for x in others)]

    def vjp(
        self, weights: Tensor, marginals: Any, needs_grad: Sequence[bool]
    ) -> list[Tensor | None]:
        if isinstance(marginals, tuple):
            return vjp_overwriting(weights, marginals, needs_grad)
        if weights.is_cuda:
            return list(cuda.vjp(weights, tuple(marginals), self.shared_transitions))
        if self.shared_transitions:
            return weight_rows(weights, marginals, self.num_row_potentials, needs_grad)
        return vjp(weights, marginals)

    def covariance(self, directions: Sequence[Tensor]) -> list[Tensor]:
        chain = self._cpu_buffers()
        if chain is not None:
            return list(forward_backward.covariance_cpu(chain, *directions))
        return list(cuda.covariance(*self.op_args, *directions))

    def entropy(self) -> Tensor:
        chain = self._cpu_buffers()
        if chain is None:
            return cuda.entropy(*self.op_args)
        return forward_backward.entropy_cpu(chain)

    def best(
        self, k: int | None, dtype: torch.dtype, recheck_in_float64: bool = False
    ) -> BestOutputs:
        chain = self._cpu_buffers()
        if k is None:
            if chain is None:
                value, labels = cuda.decode(*self.op_args)
            else:
                value, labels = viterbi.decode_cpu(chain)
            return BestOutputs(to_dtype(value, dtype), labels)
        if chain is not None:
            labels, valid, values = viterbi.decode_topk_cpu(chain, k)
        else:
            labels, valid = cuda.decode_topk(*self.op_args, k)
            existing = torch.where(valid[..., None], labels, labels[:, :1])
            values = cuda.score(*self.op_args, existing)
            values = values.masked_fill(~valid, -torch.inf)
        return BestOutputs(to_dtype(values, dtype), labels, valid=valid)

    def empty_outputs(self, k: int | None) -> tuple[Tensor, ...]:
        B, T, _ = self.potentials[0].shape
        rows = (B,) if k is None else (B, k)
        return (self.potentials[0].new_empty((*rows, T), dtype=torch.int64),)

    def score(
        self, used_parts: Tensor, dtype: torch.dtype, with_hi_lo: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        chain = self._cpu_buffers()
        if chain is None:
            value = cuda.score(*self.op_args, used_parts)
            return value.to(dtype), as_hi_lo(value) if with_hi_lo else None
        value, hi_lo = scores.score_cpu(chain, used_parts, with_hi_lo)
        return to_dtype(value, dtype), hi_lo

    def count_parts(
        self, weights: Tensor, used_parts: Tensor, needs_grad: Sequence[bool]
    ) -> list[Tensor | None]:
        if used_parts.shape[1] > 1:
            none = (used_parts < 0).all(2)
            used_parts = torch.where(none[..., None], used_parts[:, :1], used_parts)
            weights = weights.masked_fill(none, 0)
        chain = self._cpu_buffers()
        if chain is not None:
            return list(scores.count_parts_cpu(chain, weights, used_parts))
        S, (steps, lengths) = self.potentials[0].shape[2], self.row_attributes
        return list(
            cuda.count_parts(
                weights, used_parts, steps, lengths, S, self.shared_transitions
            )
        )

    def part_entries(self, used_parts: Tensor) -> Tensor:
        steps, lengths = self.row_attributes
        _, T, S = self.potentials[0].shape
        if not T:
            return used_parts.new_empty((*used_parts.shape[:2], 0))
        labels = used_parts.gather(2, steps[:, None].expand(used_parts.shape))
        step = torch.arange(T, device=used_parts.device)
        real = (step < lengths[:, None])[:, None] & (labels >= 0)
        labels = labels.clamp(0, S - 1)
        emissions = (steps[:, None] * S + labels).masked_fill(~real, -1)
        transitions = T * S + labels[..., :-1] * S + labels[..., 1:]
        if not self.shared_transitions:
            transitions = transitions + (steps[:, None, 1:] - 1) * S * S
        transitions = transitions.masked_fill(~real[..., 1:], -1)
        first_start = T * S + (
            S * S if self.shared_transitions else max(T - 1, 0) * S * S
        )
        last = (
            (lengths - 1).clamp(min=0)[:, None, None].expand(*used_parts.shape[:2], 1)
        )
        start_entry, end_entry = (
            labels[..., :1] + first_start,
            labels.gather(2, last) + first_start + S,
        )
        end_entries = torch.cat([start_entry, end_entry], 2).masked_fill(
            ~real[..., :1], -1
        )
        return torch.cat([emissions, transitions, end_entries], 2)

    def sample(self, random_numbers: Tensor) -> Tensor:
        chain = self._cpu_buffers()
        if chain is None:
            return cuda.sample(*self.op_args, random_numbers)
        return viterbi.sample_cpu(chain, random_numbers)


class PerStepChainEngine(Engine):
    """Engine of a chain with shared transitions that returns marginals of each step.

    Its potentials are those of the chain, with transitions expanded over rows and time.
    """

    name = "chain"
    num_row_potentials = 2

    def __init__(self, chain: ChainEngine) -> None:
        emissions, transitions, *ends = chain.potentials
        B, T, _ = emissions.shape
        per_step = transitions.expand(B, max(T - 1, 0), *transitions.shape)
        self.chain, self.potentials = chain, (emissions, per_step, *ends)
        self.row_attributes, self.runs_kernels = (
            chain.row_attributes,
            chain.kernel_ready,
        )

    def with_tensors(self, tensors: Sequence[Tensor]) -> Engine:  # type: ignore[override]
        return self.chain.with_tensors(tensors)

    def log_partition_and_marginals(
        self,
        needs_grad: Sequence[bool],
        dtype: torch.dtype | None,
        with_hi_lo: bool = False,
    ) -> tuple[Tensor, None, list[Tensor]]:
        value, nodes, edges, *ends = forward_backward.per_step_marginals(self.chain)
        return to_dtype(value, dtype or value.dtype), None, [nodes, edges, *ends]


def build_chain_engine(tensors: Sequence[Tensor]) -> ChainEngine:
    """Build the engine of potentials, ``steps`` and ``lengths``.

    Positions are checked if the tensors are eager and on the CPU.
    """
    emissions, transitions, start, end, steps, lengths = tensors
    if is_eager() and all(is_dense_cpu(x) for x in tensors):
        result: ChainEngine = ChainEngine.from_op_args(*tensors)
        return result
    B, T, _ = emissions.shape
    positions = Positions(B, T, emissions.device, steps, lengths)
    return ChainEngine((emissions, transitions, start, end), positions)


ENGINE_BUILDERS["chain"] = build_chain_engine
