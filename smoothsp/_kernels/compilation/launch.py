"""How Triton kernels are launched."""

from typing import Any

import torch
from torch import Tensor


def launch(
    kernel: Any, programs: int, near: Tensor, *args: Any, **options: Any
) -> None:
    """Run programs of a kernel on the device of the tensor ``near``.

    All launches pass ``enable_fp_fusion=False``. Lanes that hold copies of one sum add
    its two halves in either order, which is the same sum only if both are rounded.
    """
    with torch.cuda.device_of(near):
        kernel[(programs,)](*args, **options)


def triton_version() -> str:
    """Return the version of Triton, or nothing if it is not installed."""
    try:
        import triton
    except ImportError:
        return ""
    return str(triton.__version__)
