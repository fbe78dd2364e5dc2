"""Reductions over the processes of ``torch.distributed``; none for one process."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor


def is_distributed() -> bool:
    """Whether more than one process takes part."""
    return bool(
        dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
    )


def sum_over_ranks(*tensors: Tensor) -> None:
    """Replace each tensor by its sum over the processes."""
    if is_distributed():
        for tensor in tensors:
            dist.all_reduce(tensor)


def mean_over_ranks(value: Tensor) -> float:
    """The mean of a number over the processes."""
    if not is_distributed():
        return float(value)
    sum_over_ranks(value)
    return float(value) / dist.get_world_size()


def any_rank_has(present: Sequence[bool], device: torch.device) -> list[bool]:
    """Return True for parameters with a gradient on some process."""
    if not is_distributed():
        return list(present)
    counts = torch.tensor(present, dtype=torch.int64, device=device)
    sum_over_ranks(counts)
    return [bool(count) for count in counts.tolist()]


def average_gradients(params: Sequence[Tensor]) -> None:
    """Replace each gradient by its mean over the processes, as DDP does."""
    if is_distributed():
        has_gradient = [p.grad is not None for p in params]
        for p, is_present in zip(
            params, any_rank_has(has_gradient, params[0].device), strict=True
        ):
            if is_present:
                # A parameter without gradient on one process still takes part in the
                # collective.
                if p.grad is None:
                    p.grad = torch.zeros_like(p)
                dist.all_reduce(p.grad)
                p.grad /= dist.get_world_size()


def require_equal(optimizer: str, params: Sequence[Tensor]) -> None:
    """Raise if parameters differ between processes."""
    if not is_distributed():
        return
    # Norms instead of parameters: one number per tensor is communicated.
    norms = torch.stack([p.detach().norm().double() for p in params])
    largest, smallest = norms.clone(), norms.clone()
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    dist.all_reduce(smallest, dist.ReduceOp.MIN)
    # Synchronised processes differ by rounding at most.
    if not torch.allclose(largest, smallest, rtol=1e-5, atol=1e-12):
        raise RuntimeError(
            f"{optimizer}: expected the same parameters on every process, got different"
            " ones; wrap the model in DistributedDataParallel, so that the gradients of"
            " the steps are averaged, and start from the same parameters"
        )
