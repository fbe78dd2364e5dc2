"""How Triton kernels are launched."""

from typing import Any

import torch
from torch import Tensor


def launch(
    kernel: Any, programs: int, near: Tensor, *args: Any, **options: Any
) -> None:
    """Run programs of a kernel on the device of the tensor ``near``."""
    with torch.cuda.device_of(near):
        kernel[(programs,)](*args, **options)
