"""Losses of a batch of chains summed over its rows, with their gradients at once.

Most calls in training are these. A small batch takes one compiled call, a large one a
call for each piece, on several threads.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from smoothsp._kernels.chain.cpu import fused
from smoothsp._kernels.threads.ranges import run_all
from smoothsp.oracles._chain.buffers import EMPTY, ChainBuffers
from smoothsp.oracles._chain.chunks import rows_per_chunk, simd_layout, slice_rows
from smoothsp.oracles._inference import checks
from smoothsp.oracles._inference.op import FusedNode, Recomputation
from smoothsp.oracles._inference.tracing import is_dense_cpu, is_eager

# A sum and its gradients.
Filled = tuple[Tensor, list[Tensor]]


def summed_loss(
    kernel: Callable[..., int],
    options: tuple[Any, ...],
    chain: ChainBuffers,
    y: Tensor,
    weight: Tensor | float,
    again: Recomputation,
) -> Tensor | None:
    """A weighted sum over the rows of ``y`` ``[B, T]``; gradients reach the potentials.

    None where one call cannot.

    Parameters
    ----------
    kernel
        Of ``fused``: fills the sum and its gradients.
    options
        Its further arguments. Of a tensor it gets the address, row by row.
    weight
        ``[B]``, or a number for all rows.
    again
        Of the sum.
    """
    potentials = chain.potentials
    emissions = potentials[0]
    plain = chain.kernel_ready and chain.shared_transitions and is_eager()
    B, T, _ = chain.sizes if plain else emissions.shape
    fits = plain and is_dense_cpu(y) and y.dtype == torch.int64
    if not (fits and y.shape == (B, T)):
        y = checks.as_labels(y, emissions)
        checks.require_shape("y", y, (B, T), "(batch, time)")
    if isinstance(weight, Tensor):
        if weight.dim():
            weight = checks.as_row_weights("weight", weight, B, emissions.device)
        weight = weight.to(emissions.dtype)
        plain = plain and weight.dim() == 1 and not weight.requires_grad
    found = _fill(kernel, options, chain, y, weight) if plain else None
    if found is None:
        return None
    value, first = found
    kept = [first]

    def gradients(grad: Tensor, wanted: Sequence[bool]) -> Sequence[Tensor | None]:
        try:
            # one step, so that no other thread gets them too
            found = kept.pop()
        except IndexError:
            filled = _fill(kernel, options, chain, y, weight)
            found = cast(Filled, filled)[1]
        return _weighed(found, grad, wanted)

    return FusedNode(value, gradients, again).attach(potentials)


def _weighed(
    gradients: Sequence[Tensor], grad: Tensor, wanted: Sequence[bool]
) -> list[Tensor | None]:
    """Gradients times a number, in place."""
    if grad.item() != 1:
        for x in gradients:
            x.mul_(grad)
    return [x if want else None for x, want in zip(gradients, wanted, strict=True)]


def _fill(
    kernel: Callable[..., int],
    options: tuple[Any, ...],
    chain: ChainBuffers,
    y: Tensor,
    weight: Tensor | float,
) -> Filled | None:
    """The sum and its gradients; None if a row is not safe in float64 either."""
    B, T, S = chain.sizes
    y = y.contiguous()
    if isinstance(weight, Tensor):
        weights, number = weight.contiguous(), 0.0
    else:
        weights, number = None, float(weight)
    ask = _by_pieces if rows_per_chunk(B, T, S) < B else _whole
    code, value, gradients = ask(kernel, chain, y, number, weights, options)
    if code == fused.UNSAFE:
        if chain.dtype == torch.float64:
            return None
        wide = weight.double() if isinstance(weight, Tensor) else weight
        found = _fill(kernel, options, chain.as_float64, y, wide)
        return found and (found[0].float(), [x.float() for x in found[1]])
    if code != fused.DONE:
        row, step = divmod(code, T)
        message = checks.label_range_message(S, int(y[row, step]), row, step)
        raise ValueError(message)
    return value, gradients


def _from(options: tuple[Any, ...], row: int) -> tuple[Any, ...]:
    """Options as kernels take them: addresses of tensors, from a row on."""
    return tuple(x[row:].data_ptr() if isinstance(x, Tensor) else x for x in options)


def _whole(
    call: Callable[..., int],
    chain: ChainBuffers,
    y: Tensor,
    number: float,
    weights: Tensor | None,
    options: tuple[Any, ...],
) -> tuple[int, Tensor, list[Tensor]]:
    """The code that ``call`` returns, the sum, and its gradients."""
    (B, T, S), new = chain.sizes, EMPTY[chain.dtype].new_empty
    summed_loss, slopes, moves = new(()), new(B, T, S), new(S, S)
    start, end = new(S), new(S)
    code = call(
        chain.addresses,
        y.data_ptr(),
        number,
        0 if weights is None else weights.data_ptr(),
        *_from(options, 0),
        (slopes.data_ptr(), moves.data_ptr(), start.data_ptr(), end.data_ptr()),
        summed_loss.data_ptr(),
    )
    return code, summed_loss, [slopes, moves, start, end]


def _by_pieces(
    call: Callable[..., int],
    chain: ChainBuffers,
    y: Tensor,
    number: float,
    weights: Tensor | None,
    options: tuple[Any, ...],
) -> tuple[int, Tensor, list[Tensor]]:
    """Compute ``_whole`` by pieces, summed in float64 in order."""
    B, T, S = chain.sizes
    rows = rows_per_chunk(B, T, S)
    firsts = range(0, B, rows)
    slopes = chain.empty(B, T, S)
    shared = [chain.empty(len(firsts), *shape) for shape in chain.shapes[1:]]
    totals = chain.empty(len(firsts))
    codes = run_all(
        [
            partial(
                call,
                slice_rows(chain.addresses, b, rows),
                y[b:].data_ptr(),
                number,
                0 if weights is None else weights[b:].data_ptr(),
                *_from(options, b),
                (slopes[b:].data_ptr(), *(x[i:].data_ptr() for x in shared)),
                totals[i:].data_ptr(),
            )
            for i, b in enumerate(firsts)
        ]
    )
    dtype = chain.dtype
    gradients = [x.sum(0, dtype=torch.float64).to(dtype) for x in shared]
    summed_loss = totals.sum(dtype=torch.float64).to(dtype)
    for b, code in zip(firsts, codes, strict=True):
        if code != fused.DONE:
            return code if code < 0 else code + b * T, summed_loss, [slopes, *gradients]
    return fused.DONE, summed_loss, [slopes, *gradients]


def _log_likelihood(where: tuple[Any, ...], *given: Any) -> int:
    code: int = fused.log_likelihood(where, *given, *simd_layout(where))
    return code


def log_likelihood(
    chain: ChainBuffers,
    y: Tensor,
    weight: Tensor | float,
    again: Recomputation,
    cost: float = 0.0,
    mu: float = 1.0,
) -> Tensor | None:
    """Sum of weighted log-probabilities, as ``fused.log_likelihood`` has them."""
    return summed_loss(_log_likelihood, (cost, mu), chain, y, weight, again)


def violation(
    chain: ChainBuffers,
    y: Tensor,
    weight: Tensor | float,
    again: Recomputation,
    cost: float,
) -> Tensor | None:
    """Sum of weighted violations of the margin, as ``fused.violation`` has them."""
    return summed_loss(fused.violation, (cost,), chain, y, weight, again)


def smoothed_violation(
    chain: ChainBuffers,
    y: Tensor,
    weight: Tensor | float,
    again: Recomputation,
    cost: float,
    mu: float,
    k: int,
) -> tuple[Tensor, Tensor] | None:
    """Sum of violations smoothed over the k best, and which rows are exact."""
    exact = EMPTY[torch.bool].new_empty(len(chain.potentials[0]))
    options = exact, cost, mu, k
    found = summed_loss(fused.smoothed_violation, options, chain, y, weight, again)
    return None if found is None else (found, exact)
