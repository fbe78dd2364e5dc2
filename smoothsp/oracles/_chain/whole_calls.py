"""Questions to a batch of chains, answered in one compiled call or in one a piece.

The way from Python to kernels, array by array, costs more than the inference of a small
batch; so these hand over addresses. A large batch is handed over in pieces, which fit
into a core's cache and are shared by threads. Ops answer where ``addresses`` finds no
plain memory, and for a row whose numbers leave the range of its dtype.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from smoothsp._kernels.chain.cpu import whole_calls
from smoothsp._kernels.threads.ranges import run_all
from smoothsp.oracles._chain.addresses import Parts, memory, piece, rows_of_piece
from smoothsp.oracles._questions import checks

Call = Callable[..., int]


def is_sound(chain: Parts) -> bool:
    """Whether no value is amiss; False too where this cannot tell."""
    where = memory(chain)
    return where is not None and bool(whole_calls.is_sound(*where))


def decode(chain: Parts) -> tuple[Tensor, Tensor] | None:
    """Maximisers ``[B, T]`` and their scores ``[B]``, without a gradient."""
    where = memory(chain)
    if where is None:
        return None
    emissions = chain[0][0]
    B, T, S = emissions.shape
    labels = emissions.new_empty((B, T), dtype=torch.int64)
    value = emissions.new_empty(B)
    rows = rows_of_piece(B, T, S)
    if rows >= B:
        whole_calls.decode(*where, labels.data_ptr(), value.data_ptr())
        return labels, value
    run_all(
        [
            partial(
                whole_calls.decode,
                *piece(where, b, rows),
                labels[b:].data_ptr(),
                value[b:].data_ptr(),
            )
            for b in range(0, B, rows)
        ]
    )
    return labels, value


def log_likelihood(
    chain: Parts,
    y: Tensor,
    weight: Tensor | float,
    by_rows: Callable[[Tensor], Tensor],
) -> Tensor:
    """Weighted sum of the log-probabilities of ``y`` ``[B, T]``.

    ``by_rows`` answers too, row by row and by ops: for second derivatives, and where
    one call cannot.
    """
    return _weighted_sum(whole_calls.log_likelihood, chain, y, weight, by_rows)


def violation(
    chain: Parts,
    y: Tensor,
    weight: Tensor | float,
    by_rows: Callable[[Tensor], Tensor],
    cost_scale: float,
) -> Tensor:
    """Weighted sum of the margin violations of ``y`` ``[B, T]``; Hamming's cost."""
    call = whole_calls.violation
    return _weighted_sum(call, chain, y, weight, by_rows, cost_scale)


def _weighted_sum(
    call: Call,
    chain: Parts,
    y: Tensor,
    weight: Tensor | float,
    by_rows: Callable[[Tensor], Tensor],
    *options: float,
) -> Tensor:
    """What ``call`` sums over rows, a function of the potentials."""
    potentials = chain[0]
    emissions = potentials[0]
    B, T, S = emissions.shape
    y = checks.labels(y, emissions)
    checks.shape("y", y, (B, T), "(batch, time)")
    scalar, weights = 0.0, None
    if isinstance(weight, Tensor):
        if weight.dim():
            weight = checks.row_weights("weight", weight, B, emissions.device)
        weights = weight = weight.to(emissions.dtype)
    else:
        scalar = float(weight)

    def by_ops() -> Tensor:
        return (by_rows(y) * weight).sum()

    where = memory(chain)
    if where is None or not y.is_contiguous():
        return by_ops()
    if weights is not None:
        if weights.requires_grad or weights.dim() != 1:
            return by_ops()
        weights = weights.contiguous()
    rows = rows_of_piece(B, T, S)
    ask = _ask_by_pieces if rows < B else _ask
    code, total, gradients = ask(call, potentials, where, y, scalar, weights, options)
    if code == whole_calls.UNSAFE:
        return by_ops()
    if code != whole_calls.DONE:
        row, step = divmod(code, T)
        message = checks.label_out_of_range(S, int(y[row, step]), row, step)
        raise ValueError(message)
    if not torch.is_grad_enabled():
        return total
    known: Tensor = _Known.apply((total, gradients), by_ops, *potentials)
    return known


def _ask(
    call: Call,
    potentials: tuple[Tensor, ...],
    where: tuple[Any, ...],
    y: Tensor,
    scalar: float,
    weights: Tensor | None,
    options: tuple[float, ...],
) -> tuple[int, Tensor, list[Tensor]]:
    """The code that ``call`` returns, the sum, and its gradients."""
    total = potentials[0].new_empty(())
    gradients = [torch.empty_like(x, requires_grad=False) for x in potentials]
    code = call(
        *where,
        y.data_ptr(),
        scalar,
        0 if weights is None else weights.data_ptr(),
        *options,
        *(x.data_ptr() for x in gradients),
        total.data_ptr(),
    )
    return code, total, gradients


def _ask_by_pieces(
    call: Call,
    potentials: tuple[Tensor, ...],
    where: tuple[Any, ...],
    y: Tensor,
    scalar: float,
    weights: Tensor | None,
    options: tuple[float, ...],
) -> tuple[int, Tensor, list[Tensor]]:
    """As ``_ask``; the pieces' sums are added up in float64, in order."""
    emissions, *others = potentials
    B, T, S = emissions.shape
    rows = rows_of_piece(B, T, S)
    firsts = range(0, B, rows)
    slopes = torch.empty_like(emissions, requires_grad=False)
    shared = [x.new_empty((len(firsts), *x.shape)) for x in others]
    totals = emissions.new_empty(len(firsts))
    codes = run_all(
        [
            partial(
                call,
                *piece(where, b, rows),
                y[b:].data_ptr(),
                scalar,
                0 if weights is None else weights[b:].data_ptr(),
                *options,
                slopes[b:].data_ptr(),
                *(x[i:].data_ptr() for x in shared),
                totals[i:].data_ptr(),
            )
            for i, b in enumerate(firsts)
        ]
    )
    dtype = emissions.dtype
    gradients = [x.sum(0, dtype=torch.float64).to(dtype) for x in shared]
    total = totals.sum(dtype=torch.float64).to(dtype)
    for b, code in zip(firsts, codes, strict=True):
        if code != whole_calls.DONE:
            return code if code < 0 else code + b * T, total, [slopes, *gradients]
    return whole_calls.DONE, total, [slopes, *gradients]


class _Known(torch.autograd.Function):
    """A scalar function of the potentials, whose gradients are known.

    The first backward pass gives them away. ``again`` computes the function by
    differentiable ops: for another pass, and for higher derivatives.
    """

    @staticmethod
    def forward(
        ctx: Any,
        answer: tuple[Tensor, list[Tensor]],
        again: Callable[[], Tensor],
        *potentials: Tensor,
    ) -> Tensor:
        value, ctx.gradients = answer
        ctx.again = again
        ctx.save_for_backward(*potentials)
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        wanted = ctx.needs_input_grad[2:]
        higher = torch.is_grad_enabled()
        if ctx.gradients is not None and not higher:
            gradients, ctx.gradients = ctx.gradients, None
            if grad.item() != 1:
                for x in gradients:
                    x.mul_(grad)
            chosen = (x if y else None for x, y in zip(gradients, wanted, strict=True))
            return None, None, *chosen
        # asked for here, they must not have been changed in the meantime
        potentials = ctx.saved_tensors
        inputs = [x for x, want in zip(potentials, wanted, strict=True) if want]
        with torch.enable_grad():
            value = ctx.again()
        found = iter(torch.autograd.grad(value, inputs, grad, create_graph=higher))
        return None, None, *(next(found) if want else None for want in wanted)
