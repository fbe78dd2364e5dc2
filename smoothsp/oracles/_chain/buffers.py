"""Buffers of a batch of chains: checked once, on construction, and passed by address.

Ops take ``(emissions, transitions, start, end, steps, lengths)``: ``[B, T, S]``,
``[S, S]`` or ``[B, T - 1, S, S]``, ``[S]``, ``[S]``, ``[B, T]``, ``[B]``.
``steps[b, :lengths[b]]`` are the real positions of row b in order. None for both: all
positions are real.
"""

import math
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from smoothsp._kernels.chain.cpu import validation
from smoothsp.oracles._chain.chunks import VECTORS
from smoothsp.oracles._inference.positions import Positions
from smoothsp.oracles._inference.to_numpy import to_numpy
from smoothsp.oracles._inference.tracing import is_dense_cpu, is_eager

Potentials = tuple[Tensor, Tensor, Tensor, Tensor]
# x.new_empty is cheaper than torch.empty with a dtype and a device.
EMPTY_TENSORS = {
    dtype: torch.empty(0, dtype=dtype, device="cpu")
    for dtype in (torch.float32, torch.float64, torch.int64, torch.bool)
}
POTENTIAL_NAMES = ("emissions", "transitions", "start", "end")


@lru_cache(maxsize=64)
def shared_zeros(S: int, dtype: torch.dtype) -> Tensor:
    """Zeros ``[S]`` on the CPU, shared by all chains and never written.

    The attribute ``shared_location`` holds their address and storage.
    """
    with torch.inference_mode(False):
        zeros = torch.zeros(S, dtype=dtype, device="cpu")
    zeros.numpy()  # makes the storage non-resizable: to_numpy then skips DLPack
    data_ptr = zeros.data_ptr(), zeros.untyped_storage()
    zeros.shared_location = data_ptr  # type: ignore[attr-defined]
    return zeros


def copy_if_shared(end: Tensor) -> Tensor:
    """Return scores that a user may write to: a copy of the shared zeros."""
    return end.clone() if hasattr(end, "shared_location") else end


class ChainBuffers:
    """Potentials and positions of a batch of chains, with memory addresses on the CPU.

    Parameters
    ----------
    potentials
        Valid dtypes and shapes, on one device, without a negative bit.
    positions
        Real positions, within the time axis.
    kernel_ready
        True if the caller has checked that all are eager dense CPU tensors.

    Attributes
    ----------
    kernel_ready
        Whether CPU kernels may read the memory, as long as nothing traces. ``sizes``
        and ``addresses`` exist only then.
    dtype
        Dtype of the potentials.
    sizes
        Batch size, number of steps and number of states.
    addresses
        Sizes and addresses as ``_kernels.chain.cpu.fused`` takes them for shared
        transitions.
    """

    __slots__ = (
        *(
            "potentials",
            "positions",
            "kernel_ready",
            "shared_transitions",
            "sizes",
            "dtype",
            "addresses",
        ),
        *("_arrays", "_views", "_storages"),
    )
    sizes: torch.Size
    dtype: torch.dtype
    addresses: tuple[Any, ...]

    def __init__(
        self, potentials: Potentials, positions: Positions, kernel_ready: bool = False
    ) -> None:
        self.potentials, self.positions = potentials, positions
        self._arrays: tuple[Any, ...] | None = None
        self._views: tuple[Tensor, ...] | None = None
        emissions, transitions, start, end = potentials
        self.shared_transitions, self.dtype = transitions.dim() == 2, emissions.dtype
        if not kernel_ready:
            kernel_ready = is_eager() and all(is_dense_cpu(x) for x in potentials)
        self.kernel_ready = kernel_ready
        if not kernel_ready:
            return
        shared_end = getattr(start, "shared_location", None) if start is end else None
        if not (
            emissions.is_contiguous()
            and transitions.is_contiguous()
            and (shared_end or (start.is_contiguous() and end.is_contiguous()))
        ):
            self._views = _detach_contiguous(potentials)
            emissions, transitions, start, end = self._views
            shared_end = None
        # assigning tensor.data frees the old storage unless it is referenced here
        first, second = emissions.untyped_storage(), transitions.untyped_storage()
        if shared_end:
            at, storage = shared_end
            self._storages = first, second, storage, storage
            data_ptrs = emissions.data_ptr(), transitions.data_ptr(), at, at
        else:
            ends = start.untyped_storage(), end.untyped_storage()
            self._storages = first, second, *ends
            ends_at = start.data_ptr(), end.data_ptr()
            data_ptrs = emissions.data_ptr(), transitions.data_ptr(), *ends_at
        if 0 in data_ptrs:
            _require_memory(potentials, data_ptrs)
        self.sizes = sizes = emissions.shape
        self.addresses = (
            *sizes,
            *data_ptrs,
            *positions.addresses(),
            VECTORS[self.dtype],
        )

    @classmethod
    def from_op_args(
        cls,
        emissions: Tensor,
        transitions: Tensor,
        start: Tensor,
        end: Tensor,
        steps: Tensor | None,
        lengths: Tensor | None,
    ) -> Any:
        """Return buffers of dense CPU tensors; check the positions."""
        B, T, _ = emissions.shape
        if steps is not None:
            steps = steps.contiguous()
        if lengths is not None:
            lengths = lengths.contiguous()
        positions = Positions(B, T, emissions.device, steps, lengths)
        if lengths is not None:
            require_positions(positions.steps, lengths, T)
        return cls((emissions, transitions, start, end), positions, kernel_ready=True)

    def __reduce__(self) -> tuple[Any, ...]:
        emissions, transitions, *ends = self.potentials
        unshared_ends = (None if hasattr(x, "shared_location") else x for x in ends)
        args = emissions, transitions, *unshared_ends, self.positions
        return _unpickle, (type(self), *args)

    @property
    def op_args(self) -> tuple[Any, ...]:
        """Inputs of ops; steps and lengths are None if all positions are real."""
        positions = self.positions
        if self.kernel_ready:
            return (*self.potentials, *positions.steps_and_lengths())
        return (*self.potentials, positions.steps, positions.lengths)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of emissions, transitions, start and end."""
        B, T, S = self.sizes
        transitions_shape = (
            (S, S) if self.shared_transitions else (B, max(T - 1, 0), S, S)
        )
        return (B, T, S), transitions_shape, (S,), (S,)

    @property
    def inner_steps(self) -> int:
        """Iterations of the innermost loop in one pass over the batch: B T S^2."""
        B, T, S = self.sizes
        return B * T * S * S

    @property
    def views(self) -> tuple[Tensor, ...]:
        """The potentials as contiguous tensors without gradients."""
        if self._views is None:
            data_ptrs = self.addresses[3:7]
            memory = zip(
                self.potentials, self._storages, data_ptrs, self.shapes, strict=True
            )
            self._views = tuple(_view_storage(*args, self.dtype) for args in memory)
        return self._views

    @property
    def arrays(self) -> tuple[Any, ...]:
        """Potentials, steps and lengths as arrays, then ``shared_transitions``."""
        if self._arrays is None:
            emissions, transitions, start, end = (to_numpy(x) for x in self.views)
            positions = self.positions.steps.numpy(), self.positions.lengths.numpy()
            transitions = (
                transitions[None, None] if self.shared_transitions else transitions
            )
            self._arrays = (
                emissions,
                transitions,
                start,
                end,
                *positions,
                self.shared_transitions,
            )
        return self._arrays

    @property
    def as_float64(self) -> "ChainBuffers":
        """Buffers in float64, for kernels that exist in float64 only."""
        if self.dtype == torch.float64:
            return self
        emissions, transitions, start, end = (x.double() for x in self.views)
        return ChainBuffers(
            (emissions, transitions, start, end), self.positions, kernel_ready=True
        )

    def select_rows_as_float64(self, rows: Tensor) -> "ChainBuffers":
        """Return buffers of the given rows in float64."""
        emissions, transitions, start, end = self.views
        row_transitions = transitions if self.shared_transitions else transitions[rows]
        float64_tensors = (
            x.double() for x in (emissions[rows], row_transitions, start, end)
        )
        first, second, third, fourth = float64_tensors
        potentials = first, second, third, fourth
        return ChainBuffers(potentials, self.positions.select(rows), kernel_ready=True)

    def requires_grad(self) -> bool:
        """Whether autograd is enabled and a potential requires a gradient."""
        if not torch.is_grad_enabled():
            return False
        emissions, transitions, start, end = self.potentials
        return (
            emissions.requires_grad
            or transitions.requires_grad
            or start.requires_grad
            or end.requires_grad
        )

    def empty(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Allocate a result on the CPU."""
        new = EMPTY_TENSORS[dtype or self.dtype].new_empty
        # PyTorch parses separate integers faster than a tuple
        return new(*shape) if shape else new(())


def _unpickle(
    kind: type["ChainBuffers"],
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor | None,
    end: Tensor | None,
    positions: Positions,
) -> ChainBuffers:
    """Rebuild copied or loaded buffers at their new addresses.

    None stands for ``shared_zeros``, of which each process has one copy.
    """
    zeros = shared_zeros(emissions.shape[2], emissions.dtype)
    ends = zeros if start is None else start, zeros if end is None else end
    return kind((emissions, transitions, *ends), positions)


def _detach_contiguous(potentials: Potentials) -> tuple[Tensor, ...]:
    return tuple(x.detach().contiguous() for x in potentials)


def _view_storage(
    tensor: Tensor,
    storage: torch.UntypedStorage,
    data_ptr: int,
    shape: tuple[int, ...],
    dtype: torch.dtype,
) -> Tensor:
    """Return the contiguous tensor that begins at an address within a storage.

    Usually a detached ``tensor``; another one if ``tensor`` has got other memory.
    """
    is_unmoved = tensor.data_ptr() == data_ptr != 0 and tensor.dtype == dtype
    if is_unmoved and tensor.shape == shape and tensor.is_contiguous():
        return tensor.detach()
    memory = torch.empty(0, dtype=dtype, device="cpu").set_(storage)
    first_index = (data_ptr - storage.data_ptr()) // dtype.itemsize if data_ptr else 0
    return memory[first_index : first_index + math.prod(shape)].view(shape)


def _require_memory(potentials: Potentials, data_ptrs: tuple[int, ...]) -> None:
    for name, x, data_ptr in zip(POTENTIAL_NAMES, potentials, data_ptrs, strict=True):
        if data_ptr == 0 and x.numel():
            raise ValueError(
                f"{name}: expected a tensor with memory, got one whose memory was freed"
            )


def require_positions(steps: Tensor, lengths: Tensor, T: int) -> None:
    """Raise ValueError for lengths or positions outside of T steps."""
    row = validation.first_row_of_invalid_positions(
        to_numpy(steps), to_numpy(lengths), T
    )
    if row >= 0:
        raise ValueError(
            f"lengths: expected values from 0 to {T}, the time axis of emissions, got "
            f"{int(lengths[row])} at row {row}"
        )
