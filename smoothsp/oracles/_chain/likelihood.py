"""Log-probability of given outputs of a chain: a score and a log-partition at once.

The arguments of a chain are those of ``_chain.arrays``.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from smoothsp._kernels.chain.cpu import given_outputs, weigh
from smoothsp.oracles._chain import on_device
from smoothsp.oracles._chain.arrays import array, kernel_arrays, prove_positions
from smoothsp.oracles._chain.given_outputs import fill_score, score
from smoothsp.oracles._chain.sums import (
    empty_marginals,
    fake_log_partition,
    fill_marginals,
    log_partition,
    log_partition_gradient,
    save_log_partition,
)
from smoothsp.oracles._chain.weights import run_pieces
from smoothsp.oracles._questions.registration import question


def _fill(chain: tuple[Any, ...], labels: Any) -> list[Any]:
    """Log-probability ``[B]``, at most 0, and the marginals."""
    value = fill_score(chain, labels[:, None])[:, 0]
    out = empty_marginals(chain)
    fill_marginals(chain, out)
    # where the labels are nearly sure, rounding may lift it above its bound
    value = np.minimum(value - out[0], 0)
    out[0] = value.astype(chain[0].dtype)
    return out


def _log_prob(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    steps: Tensor,
    lengths: Tensor,
    labels: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Log-probability ``[B]`` of ``labels`` ``[B, T]``, and its gradient.

    At most 0. The gradient, one per row, is the parts that the labels use less the
    marginals, in the shapes of the marginals of ``log_partition``.
    """
    chain = kernel_arrays(emissions, transitions, start, end, steps, lengths)
    paths = array(labels)
    arrays = _fill(chain, paths)
    steps, lengths, shared = chain[4:]
    B = len(lengths)
    given_outputs.residual(0, B, paths, steps, lengths, shared, *arrays[1:])
    out = [torch.from_numpy(x) for x in arrays]
    return out[0], out[1], out[2], out[3], out[4]


def _fake_log_prob(
    *inputs: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    value, *parts = fake_log_partition(*inputs[:6])
    nodes, edges, heads, tails = parts
    return value.to(nodes.dtype), nodes, edges, heads, tails


def _save(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
    save_log_partition(ctx, inputs[:6], output)
    ctx.sign = -1


def _gradient(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    return (*log_partition_gradient(ctx, *grads), None)


class Eager(torch.autograd.Function):
    """The same for plain CPU tensors."""

    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> Tensor:
        """Log-probability; keeps the marginals."""
        chain = kernel_arrays(*inputs[:6])
        value, *parts = (torch.from_numpy(x) for x in _fill(chain, array(inputs[6])))
        ctx.save_for_backward(*inputs, *parts)
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Weigh what was kept; ask again where a second derivative is wanted."""
        saved = ctx.saved_tensors
        chain, labels, parts = saved[:6], saved[6], saved[7:]
        grads: tuple[Tensor | None, ...]
        if torch.is_grad_enabled():
            value = score(*chain, labels[:, None]).squeeze(1) - log_partition(*chain)[0]
            wanted = [x for x in chain[:4] if x.requires_grad]
            found = iter(
                torch.autograd.grad(
                    value, wanted, grad.to(value.dtype), create_graph=True
                )
            )
            grads = tuple(next(found) if x.requires_grad else None for x in chain[:4])
        else:
            _, _, _, _, steps, lengths = chain
            given = [
                array(x) for x in (grad.to(parts[0].dtype), labels, steps, lengths)
            ]
            kernel = weigh.weigh_residual
            shared = chain[1].dim() == 2
            grads = run_pieces(kernel, [array(x) for x in parts], shared, *given)
        return (*grads, None, None, None)


log_prob = question(
    "chain_log_prob",
    _log_prob,
    on_device.log_prob,
    _fake_log_prob,
    _save,
    _gradient,
    Eager,
    prove=prove_positions,
)
