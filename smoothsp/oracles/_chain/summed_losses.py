"""Fused losses of chains: weighted sums over rows, computed with their gradients.

The path of most training steps. A small batch takes one compiled call, a large one a
call for each chunk of rows, on several threads.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from smoothsp._kernels.chain.cpu import fused
from smoothsp._kernels.threads.ranges import run_all
from smoothsp.oracles._chain.buffers import EMPTY_TENSORS, ChainBuffers
from smoothsp.oracles._chain.chunks import rows_per_chunk, simd_layout, slice_rows
from smoothsp.oracles._inference import checks
from smoothsp.oracles._inference.op import PrecomputedNode, Recomputation
from smoothsp.oracles._inference.tracing import is_dense_cpu, is_eager

# A loss and its gradients with respect to the potentials.
SumAndGrads = tuple[Tensor, list[Tensor]]


def summed_loss(
    kernel: Callable[..., int],
    options: tuple[Any, ...],
    chain: ChainBuffers,
    y: Tensor,
    weight: Tensor | float,
    recomputation: Recomputation,
) -> Tensor | None:
    """Weighted sum of losses of ``y`` ``[B, T]``, differentiable in the potentials.

    None if no fused kernel supports the arguments.

    Parameters
    ----------
    kernel
        Function of ``fused`` that fills the sum and its gradients.
    options
        Its further arguments; tensors are passed by the address of the first row.
    weight
        ``[B]``, or a number for all rows.
    recomputation
        Recomputes the sum by differentiable ops, for higher derivatives.
    """
    potentials = chain.potentials
    emissions = potentials[0]
    runs_fused = chain.kernel_ready and chain.shared_transitions and is_eager()
    B, T, _ = chain.sizes if runs_fused else emissions.shape
    is_label_tensor = runs_fused and is_dense_cpu(y) and y.dtype == torch.int64
    if not (is_label_tensor and y.shape == (B, T)):
        y = checks.as_labels(y, emissions)
        checks.require_shape("y", y, (B, T), "(batch, time)")
    if isinstance(weight, Tensor):
        if weight.dim():
            weight = checks.as_row_weights("weight", weight, B, emissions.device)
        weight = weight.to(emissions.dtype)
        runs_fused = runs_fused and weight.dim() == 1 and not weight.requires_grad
    sum_and_grads = (
        _run_kernel(kernel, options, chain, y, weight) if runs_fused else None
    )
    if sum_and_grads is None:
        return None
    value, grads = sum_and_grads
    unused_grads = [grads]

    def gradients(grad: Tensor, needs_grad: Sequence[bool]) -> Sequence[Tensor | None]:
        try:
            # pop is atomic: of two threads, only one gets the buffers to scale in place
            grads = unused_grads.pop()
        except IndexError:
            filled = _run_kernel(kernel, options, chain, y, weight)
            grads = cast(SumAndGrads, filled)[1]
        return _scale_grads_inplace(grads, grad, needs_grad)

    return PrecomputedNode(value, gradients, recomputation).attach(potentials)


def _scale_grads_inplace(
    gradients: Sequence[Tensor], grad: Tensor, needs_grad: Sequence[bool]
) -> list[Tensor | None]:
    """Multiply gradients by a number, in place; skipped for 1."""
    if grad.item() != 1:
        for x in gradients:
            x.mul_(grad)
    return [
        x if is_needed else None
        for x, is_needed in zip(gradients, needs_grad, strict=True)
    ]


def _run_kernel(
    kernel: Callable[..., int],
    options: tuple[Any, ...],
    chain: ChainBuffers,
    y: Tensor,
    weight: Tensor | float,
) -> SumAndGrads | None:
    """Compute the loss and its gradients; None if a row is out of range in float64."""
    B, T, S = chain.sizes
    y = y.contiguous()
    if isinstance(weight, Tensor):
        weights, factor = weight.contiguous(), 0.0
    else:
        weights, factor = None, float(weight)
    run = _run_chunks if rows_per_chunk(B, T, S) < B else _run_batch
    code, value, gradients = run(kernel, chain, y, factor, weights, options)
    if code == fused.UNSAFE:
        if chain.dtype == torch.float64:
            return None
        float64_weight = weight.double() if isinstance(weight, Tensor) else weight
        filled = _run_kernel(kernel, options, chain.as_float64, y, float64_weight)
        return filled and (filled[0].float(), [x.float() for x in filled[1]])
    if code != fused.DONE:
        row, step = divmod(code, T)
        message = checks.label_range_message(S, int(y[row, step]), row, step)
        raise ValueError(message)
    return value, gradients


def _kernel_options(options: tuple[Any, ...], row: int) -> tuple[Any, ...]:
    """Replace tensors among the options by their addresses at a row."""
    return tuple(x[row:].data_ptr() if isinstance(x, Tensor) else x for x in options)


def _run_batch(
    call: Callable[..., int],
    chain: ChainBuffers,
    y: Tensor,
    factor: float,
    weights: Tensor | None,
    options: tuple[Any, ...],
) -> tuple[int, Tensor, list[Tensor]]:
    """Run the kernel in one call: status code, loss and gradients."""
    (B, T, S), new = chain.sizes, EMPTY_TENSORS[chain.dtype].new_empty
    total, emission_grads, transitions = new(()), new(B, T, S), new(S, S)
    start, end = new(S), new(S)
    code = call(
        chain.addresses,
        y.data_ptr(),
        factor,
        0 if weights is None else weights.data_ptr(),
        *_kernel_options(options, 0),
        (
            emission_grads.data_ptr(),
            transitions.data_ptr(),
            start.data_ptr(),
            end.data_ptr(),
        ),
        total.data_ptr(),
    )
    return code, total, [emission_grads, transitions, start, end]


def _run_chunks(
    call: Callable[..., int],
    chain: ChainBuffers,
    y: Tensor,
    factor: float,
    weights: Tensor | None,
    options: tuple[Any, ...],
) -> tuple[int, Tensor, list[Tensor]]:
    """Results of ``_run_batch`` by chunks, summed in float64 in order of rows."""
    B, T, S = chain.sizes
    rows = rows_per_chunk(B, T, S)
    first_rows = range(0, B, rows)
    emission_grads = chain.empty(B, T, S)
    shared_grads = [chain.empty(len(first_rows), *shape) for shape in chain.shapes[1:]]
    totals = chain.empty(len(first_rows))
    codes = run_all(
        [
            partial(
                call,
                slice_rows(chain.addresses, b, rows),
                y[b:].data_ptr(),
                factor,
                0 if weights is None else weights[b:].data_ptr(),
                *_kernel_options(options, b),
                (
                    emission_grads[b:].data_ptr(),
                    *(x[i:].data_ptr() for x in shared_grads),
                ),
                totals[i:].data_ptr(),
            )
            for i, b in enumerate(first_rows)
        ]
    )
    dtype = chain.dtype
    gradients = [x.sum(0, dtype=torch.float64).to(dtype) for x in shared_grads]
    summed_loss = totals.sum(dtype=torch.float64).to(dtype)
    for b, code in zip(first_rows, codes, strict=True):
        if code != fused.DONE:
            return (
                code if code < 0 else code + b * T,
                summed_loss,
                [emission_grads, *gradients],
            )
    return fused.DONE, summed_loss, [emission_grads, *gradients]


def _log_likelihood(addresses: tuple[Any, ...], *args: Any) -> int:
    code: int = fused.log_likelihood(addresses, *args, *simd_layout(addresses))
    return code


def log_likelihood(
    chain: ChainBuffers,
    y: Tensor,
    weight: Tensor | float,
    recomputation: Recomputation,
    cost: float = 0.0,
    mu: float = 1.0,
) -> Tensor | None:
    """Weighted sum of log-probabilities, by ``fused.log_likelihood``."""
    return summed_loss(_log_likelihood, (cost, mu), chain, y, weight, recomputation)


def violation(
    chain: ChainBuffers,
    y: Tensor,
    weight: Tensor | float,
    recomputation: Recomputation,
    cost: float,
) -> Tensor | None:
    """Weighted sum of margin violations, by ``fused.violation``."""
    return summed_loss(fused.violation, (cost,), chain, y, weight, recomputation)


def smoothed_violation(
    chain: ChainBuffers,
    y: Tensor,
    weight: Tensor | float,
    recomputation: Recomputation,
    cost: float,
    mu: float,
    k: int,
) -> tuple[Tensor, Tensor] | None:
    """Sum of violations smoothed over the k best, and exactness of rows ``[B]``."""
    exact = EMPTY_TENSORS[torch.bool].new_empty(len(chain.potentials[0]))
    options = exact, cost, mu, k
    result = summed_loss(
        fused.smoothed_violation, options, chain, y, weight, recomputation
    )
    return None if result is None else (result, exact)
