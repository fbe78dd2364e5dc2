"""Arrays and pointers that share the memory of tensors."""

from array import array as integer_array
from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.dlpack import from_dlpack, to_dlpack  # type: ignore[attr-defined]


def to_numpy(tensor: Tensor) -> NDArray[Any]:
    """Return a CPU tensor as a contiguous array, sharing memory if it is contiguous.

    ``Tensor.numpy()`` makes a storage permanently non-resizable, but FSDP resizes the
    storages of parameters. DLPack gives another storage over the same memory.
    """
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    tensor = tensor.contiguous()
    if tensor.untyped_storage().resizable():
        tensor = from_dlpack(to_dlpack(tensor))
    result: NDArray[Any] = tensor.numpy()
    return result


def unbatched_to_numpy(name: str, integers: Tensor) -> NDArray[Any]:
    """Return integers as an array, also from under a transform of ``torch.func``."""
    wrapped = torch._C._functorch
    while wrapped.is_functorch_wrapped_tensor(integers):
        if wrapped.is_batchedtensor(integers):
            raise TypeError(
                f"{name}: expected a tensor that is the same in all calls, got one that"
                " torch.func.vmap maps over; put the rows into one batch"
            )
        integers = wrapped.get_unwrapped(integers)
    with torch._C._DisableFuncTorch():
        return to_numpy(integers.cpu())


class PointerTable:
    """Table of array pointers for kernels, which keeps the arrays alive.

    An entry has four integers: pointer, size (of one row for ``row_arrays``), whether
    rows share the array, and pointer of the target or 0. ``address_and_size`` holds the
    address of the table and its number of entries.
    """

    def __init__(
        self,
        row_arrays: Sequence[Tensor],
        shared_arrays: Sequence[Tensor],
        targets: Sequence[Tensor | None] | None = None,
    ) -> None:
        n = len(row_arrays)
        B = max(row_arrays[0].shape[0], 1)
        # int64 in one buffer: compiled code reads it without unboxing Python numbers
        self.arrays, numbers = [], integer_array("q")
        for i, x in enumerate((*row_arrays, *shared_arrays)):
            if not x.is_contiguous():
                x = x.contiguous()
            self.arrays.append(x)
            target = None if targets is None else targets[i]
            target_ptr = 0 if target is None else target.data_ptr()
            size = x.numel()
            numbers.extend(
                (x.data_ptr(), size // B if i < n else size, i >= n, target_ptr)
            )
        self._table = numbers
        self.address_and_size = numbers.buffer_info()[0], len(self.arrays)
