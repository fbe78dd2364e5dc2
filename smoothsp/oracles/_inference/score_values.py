"""Valid values of potentials: one rule for structures, dtypes and devices.

A number of magnitude below 2^40 is a score. A number at or below -2^40 forbids its part
like -inf, and becomes -inf before any kernel reads it. Numbers at or above 2^40, +inf
and NaN raise an error. Values are not checked while traced.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from smoothsp._kernels.vectors.range_check import (
    COARSE,
    INVALID,
    LIMIT,
    LOW,
    MAX_FINE,
    NEG_INF_OR_LOW,
    copy_with_low_as_neg_inf,
    first_neg_inf_row,
    range_codes,
)
from smoothsp.oracles._inference.tracing import is_dense_cpu

__all__ = [
    "COARSE",
    "INVALID",
    "LIMIT",
    "LOW",
    "NEG_INF_OR_LOW",
    "VECTORS",
    "first_forbidden_row",
    "invalid_value_message",
    "is_invalid",
    "mask_low_scores",
    "value_flags",
    "value_flags_of",
]

# Number of elements from which PyTorch may use threads.
THREADED_SIZE = 2**15
# One vector of a dtype: its type selects the compiled specialisation of a kernel.
VECTORS = {
    dtype: torch.zeros(64 // dtype.itemsize, dtype=dtype, device="cpu").numpy()
    for dtype in (torch.float32, torch.float64)
}


def value_flags(x: Tensor) -> int:
    """Kinds of numbers in a float32 or float64 tensor, as a sum of codes.

    ``NEG_INF_OR_LOW``: -inf or at most -2^40; ``LOW``: finite and at most -2^40, which
    needs ``mask_low_scores``; ``INVALID``: NaN, +inf or at least 2^40; ``COARSE``: a
    score of magnitude above 64.
    """
    if is_dense_cpu(x):
        x = x if x.is_contiguous() else x.contiguous()
        codes: int = range_codes(x.data_ptr(), x.numel(), VECTORS[x.dtype])
        return codes
    return value_flags_of((x,))[0]


def value_flags_of(tensors: Sequence[Tensor]) -> list[int]:
    """Return the ``value_flags`` of several tensors on one device.

    All flags are copied to the host at once, which synchronises the device once.
    """
    flags = []
    for x in tensors:
        x = x.detach()
        is_forbidden = x <= -LIMIT
        flags += [
            is_forbidden.any(),
            (is_forbidden & (x > -torch.inf)).any(),
            ~(x < LIMIT).all(),
        ]
        flags.append(((x.abs() > MAX_FINE) & ~is_forbidden).any())
    values: list[int] = torch.stack(flags).int().tolist()
    codes = NEG_INF_OR_LOW, LOW, INVALID, COARSE
    return [
        sum(code * flag for code, flag in zip(codes, values[i : i + 4], strict=True))
        for i in range(0, len(values), 4)
    ]


def first_forbidden_row(x: Tensor) -> int:
    """Index of the first row of ``[rows, size]`` with only -inf, or -1."""
    x = x.detach().cpu().contiguous()
    rows, size = x.shape
    return int(first_neg_inf_row(x.data_ptr(), rows, size, VECTORS[x.dtype]))


def mask_low_scores(x: Tensor) -> Tensor:
    """Replace numbers at or below -2^40 by -inf.

    Gradients pass unchanged: no output uses a forbidden part, so they are exactly 0.
    """
    # PyTorch's threads would deadlock a forked child: small tensors start none
    small = x.numel() < THREADED_SIZE and not x.requires_grad
    if small or not is_dense_cpu(x):
        return torch.threshold(x, -LIMIT, -torch.inf)
    if x.requires_grad or not x.is_contiguous():
        source = result = x.clone(memory_format=torch.contiguous_format)
    else:
        source, result = x, x.new_empty(x.shape)
    copy_with_low_as_neg_inf(
        source.data_ptr(), x.numel(), VECTORS[x.dtype], result.data_ptr()
    )
    return result


def is_invalid(x: Tensor) -> Tensor:
    """Return True for invalid numbers: NaN, +inf and values of at least 2^40."""
    return ~(x.detach() < LIMIT)


def invalid_value_message(name: str, value: float, where: str) -> str:
    """Return the error message for an invalid number."""
    return (
        f"{name}: expected numbers below 2^40 (1.1e12), got {value} at {where}; scale "
        "the scores down, or forbid with -inf"
    )
