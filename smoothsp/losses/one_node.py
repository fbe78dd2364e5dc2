"""Fused losses: a single autograd node for each loss of a structure.

In eager mode on the CPU, an engine computes the value of a loss without a graph:

    hinge       max_u <u, s> - mu / 2 (|u|^2 - 1) - s(y), with s the k best scores
    likelihood  mu (log sum_{y'} exp((s(y') + c(y')) / mu) - s(y) / mu)

and its gradient in the potentials, with phi(y) the part counts of an output:

    hinge       sum_k u_k phi(y_k) - phi(y)
    likelihood  P(part) - phi(y), P for the potentials (s + c) / mu

All other cases, and second derivatives, use the differentiable operations of
``functional``.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from smoothsp.losses.smoothing import L2, Smoothing
from smoothsp.oracles import Chain
from smoothsp.oracles._inference import checks
from smoothsp.oracles._inference.op import (
    PrecomputedNode,
    Recomputation,
    any_requires_grad,
)
from smoothsp.oracles._inference.parts import has_large_scores
from smoothsp.oracles._inference.row_losses import (
    RowLosses,
    hinges,
    negative_log_likelihoods,
)
from smoothsp.oracles._inference.tracing import is_dense_cpu, is_eager

# Divided by a smaller mu, scores up to 64 or costs might leave the range of scores.
SMALLEST_MU = 2.0**-20
# A subclass that overrides one of these is not fused, so that its method is called.
_METHODS = {
    *("decode", "decode_topk", "score", "log_prob", "log_partition"),
    *("augment", "scale"),
}


def is_supported(structure: Any, *tensor: object) -> bool:
    """Return whether an engine may compute the loss, and no tensor needs a gradient."""
    if not (is_eager() and getattr(structure, "_decoding_engine", None) is not None):
        return False
    for x in (*structure._potentials().values(), *tensor):
        if isinstance(x, Tensor) and not is_dense_cpu(x):
            return False
    for x in tensor:
        if isinstance(x, Tensor) and x.requires_grad:
            return False
    # classes up to the first of this package are the user's
    for kind in type(structure).__mro__:
        if kind.__module__.startswith("smoothsp."):
            return True
        if not _METHODS.isdisjoint(vars(kind)):
            return False
    return False


def of_chain(
    structure: Any,
    y: Tensor,
    smoothing: Smoothing,
    cost_scale: float,
    weight: Tensor | float,
    recomputation: Recomputation,
) -> tuple[Tensor, Tensor | None] | None:
    """Return the weighted sum of smoothed hinges of a chain, and exact rows.

    One call of a kernel. None for other structures, and if scores or costs are large.
    """
    if smoothing is None or not isinstance(structure, Chain):
        return None
    # the kernel adds the Hamming cost of Chain itself
    if type(structure).hamming is not Chain.hamming:
        return None
    mu, k = smoothing.mu, 0
    if not (SMALLEST_MU < mu < 1 / SMALLEST_MU and cost_scale < 1 / SMALLEST_MU):
        return None
    if isinstance(smoothing, L2):
        if smoothing.k == "exact":
            return None
        k = smoothing.k
        checks.as_output_count("k", k + 1, structure.emissions.shape[:2].numel())
    elif has_large_scores(structure):
        return None
    return structure._smoothed_violation(y, weight, cost_scale, mu, k, recomputation)


def hinge(
    structure: Any,
    float64_structure: Any,
    augmented: Any,
    used: Tensor,
    smoothing: L2 | None,
    never_negative: bool,
    weight: Tensor | float | None,
    recomputation: Recomputation,
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    """Return hinges ``[B]`` or their weighted sum, exact rows, and scores.

    The scores are the highest scores and those of y, ``[B]`` each in float64.

    Parameters
    ----------
    structure
        Its potentials receive the gradient.
    float64_structure, augmented
        The structure, in float64 if scores are large, and this with costs.
    used
        Entries of the potentials that gold outputs use, ``[B, 1, U]``.
    never_negative
        Whether losses are >= 0 by their formula; rounding below 0 is clipped.
    weight
        Weight of each row; None returns the losses of the rows.
    recomputation
        Computes the same value by differentiable operations.
    """
    engine, weight = float64_structure._decoding_engine, _as_float64_weight(weight)
    k, mu = (0, 0.0) if smoothing is None else (int(smoothing.k), smoothing.mu)
    args = augmented._decoding_engine, engine, used, mu, k, never_negative
    losses = hinges(*args, 1.0 if weight is None else weight)
    row_losses = _make_fused_node(
        structure, float64_structure, losses, weight, recomputation
    )
    return row_losses, losses.exact, losses.highest


def negative_log_likelihood(
    structure: Any,
    low: Any,
    high: Any,
    used: Tensor,
    mu: float,
    weight: Tensor | float | None,
    recomputation: Recomputation,
    never_negative: bool = True,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Return ``mu (log_partition(high) - score(low, y))`` ``[B]``, or its weighted sum.

    Also returns log-partition and score, ``[B]`` each in float64. ``low`` and ``high``
    are the structure divided by mu, without and with costs. Arguments as for ``hinge``.
    """
    needs_grad = [
        any_requires_grad([x]) for x in structure._named_potentials().values()
    ]
    engine, weight = high._engine, _as_float64_weight(weight)
    if _computes_leaves(low):
        needs_grad = [any(needs_grad)] * len(engine.potentials)
    factor = mu if weight is None else weight * mu
    losses = negative_log_likelihoods(
        engine, low._decoding_engine, used, needs_grad, never_negative, factor
    )
    # the kernels return the loss in units of mu; the factor of gradients has it
    if mu != 1:
        losses.value.mul_(mu)
    return _make_fused_node(
        structure, low, losses, weight, recomputation
    ), losses.highest


def _as_float64_weight(weight: Tensor | float | None) -> Tensor | float | None:
    """Return weights in float64, so that their products are not rounded to float32."""
    return weight.double() if isinstance(weight, Tensor) else weight


def summing(structure: Any) -> Any:
    """Return the structure whose engine computes likelihoods, or None."""
    return getattr(structure, "_likelihood_structure", None)


def _make_fused_node(
    structure: Any,
    float64_structure: Any,
    losses: RowLosses,
    weight: Tensor | float | None,
    recomputation: Recomputation,
) -> Tensor:
    """Return losses or their sum as one autograd node of the potentials."""

    def gradients(grad: Tensor, needs_grad: Sequence[bool]) -> Sequence[Tensor | None]:
        # losses of rows have a gradient each, their sum has one number
        factors = grad if weight is None else grad.item() * weight
        return _grads_of_potentials(
            structure,
            float64_structure,
            needs_grad,
            lambda engine_needs_grad: losses.gradient(factors, engine_needs_grad),
        )

    value = losses.value if weight is None else losses.total
    if value.dtype != structure._first_potentials.dtype:
        value = value.to(structure._first_potentials.dtype)
    return PrecomputedNode(value, gradients, recomputation).attach(
        tuple(structure._named_potentials().values())
    )


def _computes_leaves(structure: Any) -> bool:
    """Return whether the engine's potentials are computed from the structure's."""
    return bool(getattr(structure, "_leaves_are_computed", False))


def _grads_of_potentials(
    structure: Any,
    float64_structure: Any,
    needs_grad: Sequence[bool],
    gradients: Callable[[Sequence[bool]], list[Tensor | None]],
) -> Sequence[Tensor | None]:
    """Return gradients in the potentials of a structure from those of its engine."""
    potentials = tuple(structure._named_potentials().values())
    if _computes_leaves(float64_structure):
        with torch.enable_grad():
            # the engine's potentials once more, with a graph for the chain rule
            named = {
                name: x.detach()
                for name, x in float64_structure._named_potentials().items()
            }
            differentiable = [
                x.requires_grad_(want)
                for x, want in zip(named.values(), needs_grad, strict=True)
                if want
            ]
            row_potentials = {
                name: named[name] for name in float64_structure._row_potentials
            }
            shared_potentials = {
                name: named[name] for name in float64_structure._shared_potentials
            }
            leaves = (
                float64_structure._with_potentials(row_potentials, shared_potentials)
                ._leaves()
                .arrays
            )
        grads = gradients([True] * len(leaves))
        pairs = [(x, g) for x, g in zip(leaves, grads, strict=True) if x.requires_grad]
        leaf_grads = iter(
            torch.autograd.grad(
                [x for x, _ in pairs],
                differentiable,
                [g for _, g in pairs],
                allow_unused=True,
            )
            if pairs
            else [None] * len(differentiable)
        )
        grads = [next(leaf_grads) if want else None for want in needs_grad]
    else:
        grads = gradients(needs_grad)
    return [
        None if g is None else g if g.dtype == x.dtype else g.to(x.dtype)
        for g, x in zip(grads, potentials, strict=True)
    ]
