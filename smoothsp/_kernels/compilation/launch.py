"""Launch of Triton kernels."""

from typing import Any

import torch
from torch import Tensor


def launch(
    kernel: Any, num_programs: int, like: Tensor, *args: Any, **options: Any
) -> None:
    """Launch ``num_programs`` programs of a kernel on the device of ``like``.

    Callers pass ``enable_fp_fusion=False``: threads that hold copies of a sum may add
    its two products in either order, and with a fused multiply-add, which rounds only
    one of them, the copies would differ.
    """
    with torch.cuda.device_of(like):
        kernel[(num_programs,)](*args, **options)


def triton_version() -> str:
    """Return the version of Triton, or "" if it is not installed."""
    try:
        import triton
    except ImportError:
        return ""
    return str(triton.__version__)
