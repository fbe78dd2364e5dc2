"""Validation of arguments: types, shapes, ranges, and the error messages."""

import os
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smoothsp._kernels.vectors.whole_arrays import copy_checked_indices
from smoothsp.oracles._inference.tracing import (
    is_dense_cpu,
    is_eager,
    is_transformed,
)

DEVICES = ("cpu", "cuda")
FLOATS = (torch.float32, torch.float64)
HALVES = (torch.bfloat16, torch.float16)
# Largest k of the k best outputs: more would not fit into memory.
MAX_OUTPUTS = 10**6
# Bytes of memory of this machine; Windows has no sysconf, so no limit is known there.
try:
    MEMORY_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
except (AttributeError, ValueError, OSError):
    MEMORY_BYTES = 2**63 - 1

_CONVERTIBLE_TYPES = (list, tuple, np.ndarray)

NO_TORCHSCRIPT = (
    "torch.jit: TorchScript is not supported; use torch.export, of "
    "LinearChain.exportable() where smoothsp cannot be imported"
)
# torch.jit.is_tracing calls this through two Python functions.
is_jit_tracing = torch._C._is_tracing


def has_concrete_values() -> bool:
    """Whether tensors have values: not while torch.compile or torch.func trace."""
    return not (
        torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
    )


def require_no_torchscript() -> None:
    """Raise an error while ``torch.jit.trace`` runs, which would keep constants."""
    if is_jit_tracing():
        raise TypeError(NO_TORCHSCRIPT)


def as_dense(name: str, value: object) -> Tensor:
    """Return ``value`` as a strided tensor whose memory holds its entries.

    A negative bit is resolved, since memory then holds the negated entries. Zero
    tensors of forward differentiation have no memory and are copied to new memory.
    """
    if not isinstance(value, Tensor):
        remedy = (
            "; convert with torch.as_tensor"
            if isinstance(value, _CONVERTIBLE_TYPES)
            else ""
        )
        raise TypeError(
            f"{name}: expected a torch.Tensor, got {type(value).__name__}{remedy}"
        )
    if value.layout is not torch.strided or value.is_nested:
        layout = "a nested tensor" if value.is_nested else value.layout
        raise TypeError(
            f"{name}: expected a dense tensor, with layout torch.strided, got {layout}"
        )
    if torch.compiler.is_compiling():
        return value
    if value.is_neg() or value._is_zerotensor():
        return value.resolve_neg().clone()
    return value


def as_potentials(name: str, value: object) -> Tensor:
    """Return ``value`` as a dense float32 or float64 tensor.

    bfloat16 and float16 become float32.
    """
    if not torch.compiler.is_compiling():
        require_no_torchscript()
        if is_dense_cpu(value) and value.dtype in FLOATS:  # type: ignore[attr-defined]
            return value  # type: ignore[return-value]
    value = as_dense(name, value)
    if value.dtype in HALVES:
        value = value.float()
    if value.dtype not in FLOATS:
        raise TypeError(
            f"{name}: expected float32 or float64 (or a half type), got {value.dtype}"
        )
    if value.device.type not in DEVICES:
        remedy = "move it with .cpu(), gradients flow back through the move"
        if value.is_meta:
            remedy = "it has no values: give the network some with module.to_empty()"
        raise TypeError(
            f"{name}: structures compute on {' and '.join(DEVICES)}, got a tensor on "
            f"{value.device}; {remedy}"
        )
    return value


def require_same_dtype(
    name: str, value: Tensor, reference_name: str, reference: Tensor
) -> None:
    """Require the dtype and device of ``reference``.

    Potentials are never converted silently, which would round or copy them.
    """
    require_device(name, value, reference.device)
    if value.dtype != reference.dtype:
        raise TypeError(
            f"{name}: expected {reference.dtype} to match {reference_name}, "
            f"got {value.dtype}"
        )


def require_device(name: str, value: Tensor, device: torch.device) -> None:
    """Require ``value`` on the device of the potentials."""
    if value.device != device:
        raise TypeError(
            f"{name}: expected a tensor on {device} like the potentials, got one on "
            f"{value.device}"
        )


def require_shape(
    name: str, value: Tensor, expected: tuple[int, ...], description: str
) -> None:
    """Require the expected shape; ``description`` names it in the message."""
    if tuple(value.shape) != expected:
        raise ValueError(
            f"{name}: expected {description} = {expected}, got {tuple(value.shape)}"
        )


def as_positive_int(name: str, value: object) -> int:
    """Return ``value`` if it is an int of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}: expected an int, got {type(value).__name__}")
    if value < 1:
        raise ValueError(f"{name}: expected at least 1, got {value}")
    return value


def as_output_count(
    name: str, value: object, values_per_output: int = 1, sampled: bool = False
) -> int:
    """Return ``value`` as a number of outputs, at least 1, that fits into memory.

    One output of each row has ``values_per_output`` values of 8 bytes. ``sampled``
    outputs have no further bound, the k best have ``MAX_OUTPUTS``.
    """
    count = as_positive_int(name, value)
    # comparing a symbolic size would make a compiler specialise on it
    max_outputs = (
        MEMORY_BYTES // (8 * max(values_per_output, 1))
        if has_concrete_values()
        else count
    )
    max_count = max_outputs if sampled else min(max_outputs, MAX_OUTPUTS)
    if count > max_count:
        gigabytes = f"{MEMORY_BYTES / 2**30:.3g} GiB"
        why = f", which fill the {gigabytes} of memory of this machine"
        got = count if count < 2**63 else "more than 64 bits hold"
        raise ValueError(
            f"{name}: expected at most {max_count}"
            f"{why if max_count == max_outputs else ''}, got {got}"
        )
    return count


def require_number(name: str, value: object) -> None:
    """Require a number, or a tensor with one element."""
    if isinstance(value, str) or not hasattr(value, "__float__"):
        raise TypeError(f"{name}: expected a number, got {type(value).__name__}")


def as_positive(name: str, value: float) -> float:
    """Return ``value`` if it is positive and finite."""
    require_number(name, value)
    if isinstance(value, bool):
        raise TypeError(f"{name}: expected a number, got bool")
    if not 0 < value < float("inf"):
        raise ValueError(f"{name}: expected a positive number, got {value}")
    return value


def as_nonnegative(name: str, value: float) -> float:
    """Return ``value`` if it is finite and at least 0."""
    require_number(name, value)
    if not 0 <= value < float("inf"):
        raise ValueError(f"{name}: expected a number >= 0, got {value}")
    return float(value)


def as_flag(name: str, value: object) -> bool:
    """Return ``value`` if it is a bool."""
    if not isinstance(value, bool):
        raise TypeError(f"{name}: expected True or False, got {value!r}")
    return value


def as_generator(value: object) -> torch.Generator | None:
    """Return ``value`` if it is a generator, or None for the default generator."""
    if value is None or isinstance(value, torch.Generator):
        return value
    raise TypeError(
        f"generator: expected a torch.Generator or None, got {type(value).__name__}"
    )


def as_bool_mask(
    name: str,
    value: object,
    expected: tuple[int, ...],
    description: str,
    device: torch.device,
) -> Tensor:
    """Return ``value`` as a boolean mask of the expected shape and device."""
    value = as_dense(name, value)
    if value.dtype != torch.bool:
        raise TypeError(
            f"{name}: expected torch.bool with True at real positions, "
            f"got {value.dtype}; convert with .bool() where 1 is real, "
            "with == 0 where 0 is"
        )
    require_device(name, value, device)
    require_shape(name, value, expected, description)
    return value


def as_int64(name: str, value: object, device: torch.device) -> Tensor:
    """Return an integer tensor as int64; require the device of the potentials."""
    value = as_dense(name, value)
    if value.is_floating_point() or value.is_complex() or value.dtype == torch.bool:
        raise TypeError(
            f"{name}: expected an integer dtype, got {value.dtype}; "
            "convert with .long()"
        )
    require_device(name, value, device)
    return value.to(torch.int64)


def as_lengths(
    value: object,
    batch: int,
    time: int,
    device: torch.device,
    name: str = "lengths",
) -> Tensor:
    """Return a copy of ``value`` as int64 lengths ``(batch,)`` from 0 to ``time``.

    A copy, so that a later change in place by the caller cannot invalidate it.
    """
    if is_eager() and is_dense_cpu(value) and device.type == "cpu":
        copy = _copy_valid_lengths(value, batch, time)  # type: ignore[arg-type]
        if copy is not None:
            return copy
    value = as_int64(name, value, device)
    require_shape(name, value, (batch,), "(batch,)")
    value = value.clone(memory_format=torch.contiguous_format)
    if not has_concrete_values() and value.is_cuda:
        # an error would need a copy to the host, which synchronises the device
        return value.clamp(0, time)
    if has_concrete_values() and batch:
        is_invalid = (value < 0) | (value > time)
        if bool(is_invalid.any()):
            row = int(is_invalid.int().argmax())
            raise ValueError(
                f"{name}: expected values from 0 to {time}, got "
                f"{int(value[row])} at row {row}"
            )
    return value


def as_row_ints(
    name: str, value: object, batch: int, device: torch.device
) -> list[int]:
    """Return an integer of at least 0 for each row, from an int or ``(batch,)``.

    The list is empty while ``torch.compile`` traces.
    """
    if type(value) is int and value >= 0 and not torch.compiler.is_compiling():
        return [value] * batch
    if isinstance(value, bool) or not isinstance(value, int | Tensor):
        raise TypeError(
            f"{name}: expected an int or a tensor (batch,), got {type(value).__name__}"
        )
    if isinstance(value, Tensor):
        value = as_int64(name, value, device)
        require_shape(name, value, (batch,), "(batch,)")
    if torch.compiler.is_compiling():
        return []
    if isinstance(value, Tensor):
        ints: list[int] = to_list(value)
    else:
        ints = [value] * batch
    for row, int_value in enumerate(
        ints or ([value] if isinstance(value, int) else [])
    ):
        if int_value < 0:
            raise ValueError(
                f"{name}: expected at least 0, got {int_value} at row {row}"
            )
    return ints


def _copy_valid_lengths(value: Tensor, batch: int, time: int) -> Tensor | None:
    """Check and copy int64 lengths in one pass; None sends them to the slow path.

    The slow path converts other dtypes and raises the errors.
    """
    if value.dtype != torch.int64 or value.shape != (batch,):
        return None
    data_ptr, copy = value.data_ptr(), value.new_empty(batch)
    if not data_ptr:
        return None
    bad_row = copy_checked_indices(
        batch, data_ptr, value.stride(0), time, copy.data_ptr()
    )
    return copy if bad_row < 0 else None


def as_row_index(value: object, batch: int, device: torch.device) -> Tensor:
    """Return ``value`` as an index of rows: bool ``(batch,)`` or int64 ``(number,)``.

    Negative indices count from the end.
    """
    if isinstance(value, Tensor) and value.dtype == torch.bool:
        return as_bool_mask("rows", value, (batch,), "(batch,)", device)
    value = as_int64("rows", value, device)
    if value.dim() != 1:
        raise ValueError(
            "rows: expected indices (number,) or a bool mask (batch,), got "
            f"{tuple(value.shape)}"
        )
    if has_concrete_values() and len(value):
        wrong = (value < -batch) | (value >= batch)
        if bool(wrong.any()):
            bad_index = int(value[wrong][0])
            raise ValueError(f"rows: expected indices in [0, {batch}), got {bad_index}")
    return value


def as_row_weights(
    name: str, value: Tensor, batch: int, device: torch.device
) -> Tensor:
    """Return ``value`` as real weights ``(batch,)``."""
    value = as_dense(name, value)
    if value.is_complex():
        raise TypeError(f"{name}: expected real numbers, got {value.dtype}")
    require_device(name, value, device)
    require_shape(name, value, (batch,), "(batch,)")
    return value


def as_labels(value: object, reference: Tensor) -> Tensor:
    """Return ``value`` as int64 labels ``(batch, time)`` or ``(batch, k, time)``.

    ``reference`` has the sizes and the device: ``(batch, time, ...)``.
    """
    batch, time = reference.shape[:2]
    value = as_int64("y", value, reference.device)
    sizes = (value.shape[0], value.shape[-1]) if value.dim() in (2, 3) else None
    if sizes != (batch, time):
        raise ValueError(
            f"y: expected (batch, time) = ({batch}, {time}) or (batch, k, time), "
            f"got {tuple(value.shape)}"
        )
    return value


def as_masked_labels(value: object, mask: Tensor, states: int) -> Tensor:
    """Return ``value`` as labels ``(batch, time)`` in range, 0 at masked positions."""
    masked_labels = as_labels(value, mask)
    require_shape("y", masked_labels, tuple(mask.shape), "(batch, time)")
    masked_labels = masked_labels.masked_fill(~mask, 0)
    if has_concrete_values():
        wrong = (masked_labels < 0) | (masked_labels >= states)
        if bool(wrong.any()):
            row, step = wrong.nonzero()[0].tolist()
            raise ValueError(
                label_range_message(states, int(masked_labels[row, step]), row, step)
            )
    # unchecked while traced: out of range, an index would read foreign memory
    return masked_labels.clamp(0, states - 1)


def label_range_message(states: int, label: object, row: int, step: int) -> str:
    """Return the error message for a label that is not a state."""
    return (
        f"y: expected labels in [0, {states}) at every real position, got {label} at "
        f"row {row}, step {step}; mask that position if it has no label"
    )


def as_candidates(value: object, mask: Tensor) -> Tensor:
    """Return ``value`` as int64 indices of real candidates.

    ``(batch,)`` or ``(batch, k)``; rows without a real candidate take any index.
    """
    B, M = mask.shape
    value = as_int64("y", value, mask.device)
    if value.dim() not in (1, 2) or value.shape[0] != B:
        raise ValueError(
            f"y: expected (batch,) = ({B},) or (batch, k), got {tuple(value.shape)}"
        )
    if not has_concrete_values() or value.numel() == 0:
        return value
    columns = value if value.dim() == 2 else value[:, None]
    inside = (columns >= 0) & (columns < M)
    real = inside & mask.gather(1, columns.clamp(0, M - 1))
    is_invalid = ~real & mask.any(1, keepdim=True)
    if bool(is_invalid.any()):
        row, column = is_invalid.nonzero()[0].tolist()
        raise ValueError(
            f"y: expected a real candidate, in [0, {M}) and not masked, got "
            f"{int(columns[row, column])} at row {row}"
        )
    return value


def to_list(x: Tensor) -> Any:
    """Return integers as a list, also from under a transform of ``torch.func``."""
    if not is_transformed():
        return x.tolist()
    # before version 2.9, tensors wrapped by grad or jvp have no storage to read
    while torch._C._functorch.is_gradtrackingtensor(x):
        x = torch._C._functorch.get_unwrapped(x)
    if torch._C._functorch.is_functorch_wrapped_tensor(x):
        return x.tolist()
    with torch._C._DisableFuncTorch():
        return x.tolist()
