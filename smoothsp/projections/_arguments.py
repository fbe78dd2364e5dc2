"""Arguments of projections: vectors, bounds and error messages."""

import torch
from torch import Tensor

from smoothsp.oracles._inference import checks
from smoothsp.oracles._inference.tracing import is_eager_tensor


def as_vectors(v: object, name: str = "v") -> Tensor:
    """Return ``v`` as a dense float tensor ``(..., m)``, or raise."""
    v = checks.as_dense(name, v)
    if v.dtype not in checks.FLOATS:
        raise TypeError(f"{name}: expected float32 or float64, got {v.dtype}")
    if v.dim() == 0 or v.shape[-1] == 0:
        raise ValueError(
            f"{name}: expected (..., m) with at least one entry, got {tuple(v.shape)}"
        )
    return v


def broadcast_argument(
    name: str, value: Tensor | float, v: Tensor, shape: torch.Size
) -> Tensor:
    """Return a number or tensor in the dtype of v, broadcast to ``shape``."""
    if isinstance(value, Tensor):
        value = checks.as_dense(name, value)
        checks.require_same_dtype(name, value, "v", v)
    else:
        checks.require_number(name, value)
        try:
            value = v.new_tensor(value)
        except OverflowError:
            raise ValueError(
                f"{name}: expected a number that fits {v.dtype}, got an int of "
                f"{int(value).bit_length()} bits"
            ) from None
    try:
        return value.broadcast_to(shape)
    except RuntimeError:
        raise ValueError(
            f"{name}: expected a number or a tensor that can be broadcast to "
            f"{tuple(shape)}, got {tuple(value.shape)}"
        ) from None


def require_all(condition: Tensor, name: str, value: Tensor, description: str) -> None:
    """Raise with the first value that violates the condition."""
    # tensors have no values while a graph is traced
    if not is_eager_tensor(condition) or bool(condition.all()):
        return
    wrong = value[~condition].flatten()[0].item()
    raise ValueError(f"{name}: expected {description}, got {wrong}")
