"""Losses and gradients of closures, for a batch and averaged over a data set."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor

from smoothsp.optim import _checks, _ranks
from smoothsp.optim._batches import Size, batch_weight

Closure = Callable[..., Any]


def evaluate(optimizer: str, closure: Closure, params: Sequence[Tensor]) -> Any:
    """Call a closure that leaves fresh gradients in ``params``; return its loss."""
    for p in params:
        # Set to None, not to zero: unused parameters are then recognised.
        p.grad = None
    with torch.enable_grad():
        loss = closure()
    for p in params:
        _checks.dense(optimizer, p)
    return loss


def _no_gradient(optimizer: str, params: Sequence[Tensor]) -> RuntimeError:
    return RuntimeError(
        f"{optimizer}: expected a closure that calls backward() on its loss, got one "
        f"that leaves none of {len(params)} parameters a gradient; call loss.backward()"
        " before returning the loss, and zero_grad() only before it"
    )


def require_gradient(optimizer: str, params: Sequence[Tensor], loss: Any) -> None:
    """Raise if no parameter has a gradient but the loss depends on one."""
    if any(p.grad is not None for p in params):
        return
    attached = isinstance(loss, Tensor) and loss.grad_fn is not None
    if not attached or depends_on(loss, params):
        raise _no_gradient(optimizer, params)


def warn_if_different(
    optimizer: str, before: Any, loss: Any, has_snapshot_closure: bool
) -> None:
    """Warn if two losses of one batch at equal parameters differ."""
    values = []
    for value in (before, loss):
        if isinstance(value, Tensor) and value.numel() == 1:
            values.append(float(value.detach()))
        elif isinstance(value, int | float):
            values.append(float(value))
        else:
            return
    first, second = values
    closure_hint = (
        "at_snapshot (in Lightning, loss) may compute another loss, or "
        if has_snapshot_closure
        else ""
    )
    if abs(first - second) > 1e-3 * (abs(first) + abs(second)) + 1e-6:
        warnings.warn(
            f"{optimizer}: expected equal losses at the snapshot, got {first:g} and "
            f"then {second:g} of the same batch at the snapshot; {closure_hint}random "
            "numbers are not replayed, as those of NumPy, of Python and of "
            "generators of your own: draw them before the step, not in its closure",
            stacklevel=2,
        )


def depends_on(loss: Any, params: Sequence[Tensor]) -> bool:
    """Whether the graph of a loss contains one of the parameters."""
    if not isinstance(loss, Tensor) or loss.grad_fn is None:
        return False
    param_ids = {id(p) for p in params}
    pending, visited = [loss.grad_fn], {loss.grad_fn}
    while pending:
        node = pending.pop()
        # AccumulateGrad nodes hold their leaf as ``variable``
        if id(getattr(node, "variable", None)) in param_ids:
            return True
        following = {
            next_node for next_node, _ in node.next_functions if next_node is not None
        }
        pending += following - visited
        visited |= following
    return False


def full_gradient(
    optimizer: str,
    closure: Closure,
    params: Sequence[Tensor],
    batches: Iterable[Any] | None,
    size: Size,
    evaluation_context: Callable[[bool], AbstractContextManager[Any]] = nullcontext,
) -> tuple[float, list[Tensor | None], float, int]:
    """Mean loss and gradient over all examples of all processes.

    Each evaluation runs in ``evaluation_context(is_first)``. Returns the loss, the
    gradient of each parameter (None if no batch has one), and the numbers of examples
    and batches of this process.
    """
    device = params[0].device
    sums: list[Tensor | None] = [None] * len(params)
    # float64: sums of many losses lose digits in float32.
    loss = torch.zeros((), dtype=torch.float64, device=device)
    examples, terms = 0.0, 0
    for call, weight in _iterate_weighted_terms(closure, batches, size):
        with evaluation_context(not terms):
            value = evaluate(optimizer, call, params)
        loss += weight * loss_as_float64(optimizer, value).to(device)
        if all(p.grad is None for p in params) and depends_on(value, params):
            raise _no_gradient(optimizer, params)
        examples, terms = examples + weight, terms + 1
        for index, p in enumerate(params):
            if p.grad is None:
                continue
            gradient_sum = sums[index]
            if gradient_sum is None:
                # Sums of float16 or bfloat16 need a wider dtype.
                sum_dtype = torch.promote_types(p.dtype, torch.float32)
                sums[index] = p.grad.to(sum_dtype) * weight
            else:
                gradient_sum.add_(p.grad, alpha=weight)
    for p in params:
        p.grad = None
    total = _sum_examples(optimizer, examples, device)
    _ranks.sum_over_ranks(loss)
    has_gradient = [gradient_sum is not None for gradient_sum in sums]
    has_gradient_anywhere = _ranks.any_rank_has(has_gradient, device)
    if not any(has_gradient_anywhere):
        raise _no_gradient(optimizer, params)
    means: list[Tensor | None] = []
    for p, gradient_sum, is_present in zip(
        params, sums, has_gradient_anywhere, strict=True
    ):
        if is_present and gradient_sum is None:
            sum_dtype = torch.promote_types(p.dtype, torch.float32)
            gradient_sum = torch.zeros_like(p, dtype=sum_dtype)
        if gradient_sum is not None:
            _ranks.sum_over_ranks(gradient_sum)
            gradient_sum = (gradient_sum / total).to(p.dtype)
        means.append(gradient_sum)
    return float(loss) / total, means, examples, terms


def full_loss(
    optimizer: str,
    closure: Closure,
    batches: Iterable[Any],
    size: Size,
    device: torch.device,
) -> tuple[float, float, int]:
    """Mean loss over all processes; numbers of examples and batches of this one."""
    loss = torch.zeros((), dtype=torch.float64, device=device)
    examples, terms = 0.0, 0
    for call, weight in _iterate_weighted_terms(closure, batches, size):
        with torch.enable_grad():
            value = call()
        loss += weight * loss_as_float64(optimizer, value).to(device)
        examples, terms = examples + weight, terms + 1
    _ranks.sum_over_ranks(loss)
    return float(loss) / _sum_examples(optimizer, examples, device), examples, terms


def _iterate_weighted_terms(
    closure: Closure, batches: Iterable[Any] | None, size: Size
) -> Iterator[tuple[Closure, float]]:
    _checks.function("closure", closure)
    _checks.function("size", size)
    if batches is None:
        yield closure, 1.0
        return
    if not hasattr(batches, "__iter__"):
        raise TypeError(
            f"batches: expected a list or a DataLoader, got {type(batches).__name__}"
        )
    for batch in batches:
        yield partial(closure, batch), batch_weight(batch, size)


def loss_as_float64(optimizer: str, value: Any) -> Tensor:
    """Convert the loss of a closure to a float64 tensor."""
    if isinstance(value, Tensor) and value.numel() == 1:
        return value.detach().double().reshape(())
    if isinstance(value, int | float):
        return torch.tensor(float(value), dtype=torch.float64)
    description = (
        f"a tensor of shape {tuple(value.shape)}"
        if isinstance(value, Tensor)
        else type(value).__name__
    )
    raise TypeError(
        f"{optimizer}: expected the closure to return the mean loss of its examples, "
        f"got {description}"
    )


def _sum_examples(optimizer: str, examples: float, device: torch.device) -> float:
    total = torch.tensor(examples, dtype=torch.float64, device=device)
    _ranks.sum_over_ranks(total)
    if not total > 0:
        raise ValueError(f"batches: {optimizer} expected at least one example, got 0")
    return float(total)


class RandomState:
    """State of torch's generators, to repeat the random numbers of a closure."""

    def __init__(self, params: Sequence[Tensor]) -> None:
        self.cpu = torch.get_rng_state()
        devices = {p.device for p in params if p.device.type == "cuda"}
        self.cuda = {device: torch.cuda.get_rng_state(device) for device in devices}

    def restore(self) -> None:
        """Restore the saved state."""
        torch.set_rng_state(self.cpu)
        for device, state in self.cuda.items():
            torch.cuda.set_rng_state(state, device)


def joint_norm(tensors: Sequence[Tensor]) -> float:
    """Euclidean norm of the concatenation of tensors."""
    if not tensors:
        return 0.0
    device = tensors[0].device
    # Norms in float64: squares of float32 or float16 may overflow.
    norms = [
        tensor_norm.double().to(device)
        for tensor_norm in torch._foreach_norm(list(tensors))
    ]
    return float(torch.stack(norms).norm())
