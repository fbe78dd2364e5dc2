"""Log-probability of given outputs of a chain: a score and a log-partition at once.

The arguments of a chain are those of ``_chain.record``.
"""

from typing import Any

import torch
from torch import Tensor

from smoothsp.oracles._chain import on_device
from smoothsp.oracles._chain.given_outputs import counted, score_along, score_of
from smoothsp.oracles._chain.record import Record, chain_question
from smoothsp.oracles._chain.sums import (
    Sums,
    fake_sums,
    gradient_of_sums,
    sums_of,
    tangent_of_sums,
)
from smoothsp.oracles._chain.weights import weigh_residual
from smoothsp.oracles._questions.arrays import array
from smoothsp.oracles._questions.positions import Positions
from smoothsp.oracles._questions.registration import is_plain


def _log_prob_of(chain: Record, labels: Tensor) -> Sums:
    """Log-probability ``[B]`` of ``labels`` ``[B, T]``, at most 0, and the marginals.

    These in the shapes of those of ``log_partition``.
    """
    value = score_of(chain, labels[:, None]).squeeze(1)
    log_z, nodes, edges, heads, tails = sums_of(chain, True)
    # rounding may give a log-probability above 0
    value = (value - log_z).clamp_(max=0).to(nodes.dtype)
    return value, nodes, edges, heads, tails


def _fake_log_prob(*inputs: Any) -> Sums:
    return fake_sums(*inputs[:6], False)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Sums) -> None:
    ctx.save_for_backward(*inputs, *output[1:])
    ctx.set_materialize_grads(False)


def _gradient(
    ctx: Any, grad: Tensor | None, *marginal_grads: Tensor | None
) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    chain, labels, marginals = saved[:6], saved[6], saved[7:]
    steps, lengths = chain[4:]
    shared, S = chain[1].dim() == 2, chain[0].shape[2]
    if grad is None:
        return *gradient_of_sums(chain, marginals, None, marginal_grads), *(None,) * 3
    known = all(g is None for g in marginal_grads)
    if known and not torch.is_grad_enabled():
        if is_plain(marginals[0]) and is_plain(grad):
            if lengths is None:
                B, T, _ = marginals[0].shape
                positions = Positions(B, T, grad.device)
                steps, lengths = positions.steps, positions.lengths
            paths = (array(x) for x in (labels, steps, lengths))
            return *weigh_residual(grad, marginals, shared, *paths), *(None,) * 3
        if is_plain(marginals[0], "cuda") and is_plain(grad, "cuda"):
            places = (labels, steps, lengths)
            found = on_device.weigh_residual(grad, marginals, shared, *places)
            return *found, *(None,) * 3
    used = counted(grad[:, None], labels[:, None], steps, lengths, S, shared)
    mean = gradient_of_sums(chain, marginals, -grad, marginal_grads)
    pairs = zip(used, mean, strict=True)
    return *(a if b is None else a + b for a, b in pairs), *(None,) * 3


def _tangent(ctx: Any, *tangents: Tensor | None) -> tuple[Tensor, ...]:
    saved = ctx.saved_tensors
    chain, labels, marginals = saved[:6], saved[6], saved[7:]
    shared, S = chain[1].dim() == 2, chain[0].shape[2]
    steps, lengths = chain[4:]
    moved = score_along(tangents, labels[:, None], steps, lengths, S, shared).squeeze(1)
    mean, *parts = tangent_of_sums(chain, marginals, tangents)
    return (moved - mean).to(marginals[0].dtype), *parts


log_prob = chain_question(
    "log_prob",
    "Tensor labels",
    "(Tensor, Tensor, Tensor, Tensor, Tensor)",
    of_record=_log_prob_of,
    cuda=on_device.log_prob,
    fake=_fake_log_prob,
    save=_save,
    gradient=_gradient,
    tangent=_tangent,
    rest_by_row=(True,),
)
