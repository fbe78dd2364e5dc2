"""Whether something traces, and whether kernels may read a tensor."""

import torch
from torch import Tensor
from torch.autograd import forward_ad

TENSOR_TYPES = (Tensor, torch.nn.Parameter)
is_compiling = torch.compiler.is_compiling
# not is_in_torch_dispatch_mode, which is true of ops that a mode has called, too
num_dispatch_modes = torch._C._len_torch_dispatch_stack
_functorch_is_active = torch._C._are_functorch_transforms_active
_keys = torch._C._dispatch_keys  # no public way tells as much
with torch.inference_mode():
    _INFERENCE = _keys(torch.empty(0, device="cpu")).raw_repr()
# Dense tensors on the CPU that nothing wraps, without a negative bit.
DENSE_CPU_KEYS = (_keys(torch.empty(0, device="cpu")).raw_repr(), _INFERENCE)


def is_eager() -> bool:
    """Whether functions are called for their answers, and no graph is made of them."""
    # every question asks this several times: one flat function
    return not (
        is_compiling()
        or num_dispatch_modes()
        or _functorch_is_active()
        or forward_ad._current_level >= 0
    )


def is_transformed() -> bool:
    """Whether a transform of ``torch.func`` or forward differentiation is under way."""
    return (
        _functorch_is_active() or forward_ad._current_level >= 0  # no public way asks
    )


def is_eager_tensor(tensor: Tensor, device: str = "cpu") -> bool:
    """Whether this is an ordinary tensor on such a device, that nothing traces."""
    # is_eager() and is_dense_cpu() in one function
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
        # what torch.autograd.grad(is_grads_batched=True) hands on
        and not torch._C._functorch.is_legacy_batchedtensor(tensor)
    )


def are_dense_cpu(first: object, second: object) -> bool:
    """``is_dense_cpu`` of both."""
    return (
        type(first) in TENSOR_TYPES
        and type(second) in TENSOR_TYPES
        and _keys(first).raw_repr() in DENSE_CPU_KEYS  # type: ignore[arg-type]
        and _keys(second).raw_repr() in DENSE_CPU_KEYS  # type: ignore[arg-type]
    )


def is_dense_cpu(tensor: object) -> bool:
    """Whether this is a dense CPU tensor that nothing wraps: its memory is its values.

    Not for use while ``torch.compile`` traces.
    """
    return (
        type(tensor) in TENSOR_TYPES and _keys(tensor).raw_repr() in DENSE_CPU_KEYS  # type: ignore[arg-type]
    )
