"""Questions to a small batch of chains, answered in one compiled call.

The way from Python to kernels, array by array, costs more than the inference of a small
batch; so these hand over addresses. Not where ops have to answer: tensors that are
traced or not contiguous, transitions for each step, work for several threads, a row
that its dtype is too narrow for.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smoothsp._kernels import chain_calls_cpu
from smoothsp.oracles import _checks
from smoothsp.oracles._chain_arrays import inner_steps
from smoothsp.oracles._positions import Positions
from smoothsp.oracles._question import is_plain

# One vector of the dtype to compute in, which tells compiled code the dtype.
VECTORS = {
    torch.float32: np.zeros(16, np.float32),
    torch.float64: np.zeros(8, np.float64),
}
# Inner steps from which a second thread gains more than one call does.
ONE_CALL = 20_000_000
Potentials = tuple[Tensor, Tensor, Tensor, Tensor]
Parts = tuple[Potentials, Positions]


def is_sound(chain: Parts) -> bool:
    """Whether no value is amiss; False too where this cannot tell."""
    memory = _memory(chain)
    return memory is not None and bool(chain_calls_cpu.is_sound(*memory))


def decode(chain: Parts) -> tuple[Tensor, Tensor] | None:
    """Maximisers ``[B, T]`` and their scores ``[B]``, without a gradient."""
    memory = _small_memory(chain)
    if memory is None:
        return None
    (emissions, *_), positions = chain
    labels = torch.empty((positions.batch, positions.time), dtype=torch.int64)
    value = torch.empty(positions.batch, dtype=emissions.dtype)
    chain_calls_cpu.decode(*memory, labels.data_ptr(), value.data_ptr())
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
    return _weighted_sum(chain_calls_cpu.log_likelihood, chain, y, weight, by_rows)


def violation(
    chain: Parts,
    y: Tensor,
    weight: Tensor | float,
    by_rows: Callable[[Tensor], Tensor],
    cost_scale: float,
) -> Tensor:
    """Weighted sum of the margin violations of ``y`` ``[B, T]``; Hamming's cost."""
    call = chain_calls_cpu.violation
    # ops take several times as long: no second thread makes that good
    return _weighted_sum(call, chain, y, weight, by_rows, cost_scale, small=False)


def _memory(chain: Parts) -> tuple[Any, ...] | None:
    """Sizes and addresses, as ``chain_calls_cpu`` takes them."""
    (emissions, transitions, start, end), positions = chain
    plain = (
        transitions.dim() == 2
        and is_plain(emissions)
        and emissions.is_contiguous()
        and transitions.is_contiguous()
        and start.is_contiguous()
        and end.is_contiguous()
    )
    if not plain:
        return None
    return (
        *emissions.shape,
        emissions.data_ptr(),
        transitions.data_ptr(),
        start.data_ptr(),
        end.data_ptr(),
        *positions.addresses(),
        VECTORS[emissions.dtype],
    )


def _small_memory(chain: Parts) -> tuple[Any, ...] | None:
    emissions = chain[0][0]
    if inner_steps(emissions) > ONE_CALL and torch.get_num_threads() > 1:
        return None
    return _memory(chain)


def _weighted_sum(
    call: Callable[..., int],
    chain: Parts,
    y: Tensor,
    weight: Tensor | float,
    by_rows: Callable[[Tensor], Tensor],
    *options: float,
    small: bool = True,
) -> Tensor:
    """What ``call`` sums over rows, a function of the potentials."""
    potentials = chain[0]
    emissions = potentials[0]
    B, T, S = emissions.shape
    y = _checks.labels(y, emissions)
    _checks.shape("y", y, (B, T), "(batch, time)")
    scalar, weights = 0.0, None
    if isinstance(weight, Tensor):
        weights = weight = weight.to(emissions.dtype)
    else:
        scalar = float(weight)

    def by_ops() -> Tensor:
        return (by_rows(y) * weight).sum()

    memory = _small_memory(chain) if small else _memory(chain)
    if memory is None or not y.is_contiguous():
        return by_ops()
    if weights is not None:
        if weights.requires_grad or weights.dim() != 1:
            return by_ops()
        weights = weights.contiguous()
    total = emissions.new_empty(())
    gradients = [torch.empty_like(x, requires_grad=False) for x in potentials]
    code = call(
        *memory,
        y.data_ptr(),
        scalar,
        0 if weights is None else weights.data_ptr(),
        *options,
        *(x.data_ptr() for x in gradients),
        total.data_ptr(),
    )
    if code == chain_calls_cpu.UNSAFE:
        return by_ops()
    if code != chain_calls_cpu.DONE:
        row, step = divmod(code, T)
        message = _checks.label_out_of_range(S, int(y[row, step]), row, step)
        raise ValueError(message)
    if not torch.is_grad_enabled():
        return total
    known: Tensor = _Known.apply((total, gradients), by_ops, *potentials)
    return known


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
