"""Questions to a small batch of chains, answered in one compiled call.

The way from Python to kernels, array by array, costs more than the inference of a small
batch; so these hand over addresses. Each answers None where the ops have to: tensors
that are traced or not contiguous, transitions for each step, few rows, work for several
threads, a row that its dtype is too narrow for.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smoothsp._kernels import chain_calls_cpu
from smoothsp._kernels.threads import deserves_threads
from smoothsp.oracles._chain_arrays import ROWS_FOR_LANES, inner_steps
from smoothsp.oracles._checks import label_out_of_range
from smoothsp.oracles._positions import Positions
from smoothsp.oracles._question import is_plain

# One vector of the dtype to compute in, which tells compiled code the dtype.
VECTORS = {
    torch.float32: np.zeros(16, np.float32),
    torch.float64: np.zeros(8, np.float64),
}
Potentials = tuple[Tensor, Tensor, Tensor, Tensor]


def is_sound(potentials: Potentials, positions: Positions) -> bool:
    """Whether no value is amiss; False too where this cannot tell."""
    chain = _memory(potentials, positions)
    return chain is not None and bool(chain_calls_cpu.is_sound(*chain))


def _memory(potentials: Potentials, positions: Positions) -> tuple[Any, ...] | None:
    """Sizes and addresses, as ``chain_calls_cpu`` takes them."""
    emissions, transitions, start, end = potentials
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


def _small_memory(
    potentials: Potentials, positions: Positions
) -> tuple[Any, ...] | None:
    emissions = potentials[0]
    if positions.batch < ROWS_FOR_LANES or deserves_threads(2 * inner_steps(emissions)):
        return None
    return _memory(potentials, positions)


def decode(
    potentials: Potentials, positions: Positions
) -> tuple[Tensor, Tensor] | None:
    """Maximisers ``[B, T]`` and their scores ``[B]``, without a gradient."""
    chain = _small_memory(potentials, positions)
    if chain is None:
        return None
    B, T = positions.batch, positions.time
    labels = torch.empty((B, T), dtype=torch.int64)
    value = torch.empty(B, dtype=potentials[0].dtype)
    chain_calls_cpu.decode(*chain, labels.data_ptr(), value.data_ptr())
    return labels, value


def log_likelihood(
    potentials: Potentials,
    positions: Positions,
    y: Tensor,
    weight: Tensor | float,
    again: Callable[[], Tensor],
) -> Tensor | None:
    """Weighted sum of the log-probabilities of ``y`` ``[B, T]``.

    ``again`` answers too, by ops: for second derivatives.
    """
    chain = _small_memory(potentials, positions)
    if chain is None or not y.is_contiguous():
        return None
    emissions = potentials[0]
    scalar, weights = 0.0, None
    if not isinstance(weight, Tensor):
        scalar = float(weight)
    elif weight.requires_grad or weight.dim() != 1:
        return None
    else:
        weights = weight.contiguous()
    total = torch.empty((), dtype=emissions.dtype)
    total = emissions.new_empty(())
    gradients = [torch.empty_like(x, requires_grad=False) for x in potentials]
    code = chain_calls_cpu.log_likelihood(
        *chain,
        y.data_ptr(),
        scalar,
        0 if weights is None else weights.data_ptr(),
        *(x.data_ptr() for x in gradients),
        total.data_ptr(),
    )
    if code == chain_calls_cpu.UNSAFE:
        return None
    if code != chain_calls_cpu.DONE:
        row, step = divmod(code, positions.time)
        found = int(y[row, step])
        raise ValueError(label_out_of_range(emissions.shape[2], found, row, step))
    return _with_gradients(total, gradients, again, potentials)


def _with_gradients(
    value: Tensor,
    gradients: list[Tensor],
    again: Callable[[], Tensor],
    potentials: Potentials,
) -> Tensor:
    """The scalar ``value`` as a function of the potentials, whose gradients are known.

    ``again`` computes it by differentiable ops, for higher derivatives.
    """
    if not torch.is_grad_enabled():
        return value
    known: Tensor = _Known.apply((value, gradients), again, *potentials)
    return known


class _Known(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        answer: tuple[Tensor, list[Tensor]],
        again: Callable[[], Tensor],
        *potentials: Tensor,
    ) -> Tensor:
        value, gradients = answer
        ctx.again = again
        ctx.save_for_backward(*potentials, *gradients)
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        wanted = ctx.needs_input_grad[2:]
        if not torch.is_grad_enabled():
            return (
                None,
                None,
                *(
                    grad * x if want else None
                    for x, want in zip(saved[4:], wanted, strict=True)
                ),
            )
        inputs = [x for x, want in zip(saved, wanted, strict=False) if want]
        found = iter(torch.autograd.grad(ctx.again(), inputs, grad, create_graph=True))
        return None, None, *(next(found) if want else None for want in wanted)
