"""Predicates: whether anything traces, and whether kernels may read a tensor."""

import torch
from torch import Tensor
from torch.autograd import forward_ad

TENSOR_TYPES = (Tensor, torch.nn.Parameter)
is_compiling = torch.compiler.is_compiling
# is_in_torch_dispatch_mode is also true inside ops that a mode has called
num_dispatch_modes = torch._C._len_torch_dispatch_stack
_functorch_is_active = torch._C._are_functorch_transforms_active
_keys = torch._C._dispatch_keys  # no public function returns all dispatch keys
with torch.inference_mode():
    _INFERENCE = _keys(torch.empty(0, device="cpu")).raw_repr()
# Dense tensors on the CPU that nothing wraps, without a negative bit.
DENSE_CPU_KEYS = (_keys(torch.empty(0, device="cpu")).raw_repr(), _INFERENCE)


def is_eager() -> bool:
    """Whether calls compute values: no compiler, mode, transform or dual level."""
    # every op checks this several times, so the function is flat
    return not (
        is_compiling()
        or num_dispatch_modes()
        or _functorch_is_active()
        or forward_ad._current_level >= 0
    )


def is_transformed() -> bool:
    """Whether a transform of ``torch.func`` or forward differentiation is active."""
    return (
        # the level has no public accessor
        _functorch_is_active() or forward_ad._current_level >= 0
    )


def is_eager_tensor(tensor: Tensor, device: str = "cpu") -> bool:
    """Whether this is an unwrapped tensor on the device type, and nothing traces."""
    # inlines is_eager() and is_dense_cpu(), which saves two calls
    if (
        type(tensor) not in TENSOR_TYPES
        or is_compiling()
        or num_dispatch_modes()
        or _functorch_is_active()
        or forward_ad._current_level >= 0
    ):
        return False
    if device == "cpu":
        return _keys(tensor).raw_repr() in DENSE_CPU_KEYS
    return (
        tensor.device.type == device
        # torch.autograd.grad(is_grads_batched=True) passes wrapped gradients
        and not torch._C._functorch.is_legacy_batchedtensor(tensor)
    )


def are_dense_cpu(first: object, second: object) -> bool:
    """Whether ``is_dense_cpu`` holds for both, in one call."""
    return (
        type(first) in TENSOR_TYPES
        and type(second) in TENSOR_TYPES
        and _keys(first).raw_repr() in DENSE_CPU_KEYS  # type: ignore[arg-type]
        and _keys(second).raw_repr() in DENSE_CPU_KEYS  # type: ignore[arg-type]
    )


def is_dense_cpu(tensor: object) -> bool:
    """Whether this is an unwrapped dense CPU tensor, whose memory holds its values.

    Not for use while ``torch.compile`` traces.
    """
    return (
        type(tensor) in TENSOR_TYPES and _keys(tensor).raw_repr() in DENSE_CPU_KEYS  # type: ignore[arg-type]
    )
