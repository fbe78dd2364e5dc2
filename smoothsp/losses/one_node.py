"""Losses of the structures of this package, each one node of a graph.

Where nothing traces, an engine answers what a loss asks, without a graph:

    hinge       max_u <u, s> - mu / 2 (|u|^2 - 1) - s(y), with s the k best scores
    likelihood  mu (log sum_{y'} exp((s(y') + c(y')) / mu) - s(y) / mu)

Their derivatives by the potentials are known with them, phi(y) what an output uses:

    hinge       sum_k u_k phi(y_k) - phi(y)
    likelihood  P(part) - phi(y), of the chain or circuit with (s + c) / mu

Everything else, and what is differentiated twice, asks questions of ``functional``.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from smoothsp.losses.smoothing import L2, Smoothing
from smoothsp.oracles import Chain
from smoothsp.oracles._inference import checks
from smoothsp.oracles._inference.op import (
    FusedNode,
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

# Over a smaller mu, scores up to 64 and their costs might leave the range of scores.
SMALLEST_MU = 2.0**-20
# A class that overrides one of these has it called.
_METHODS = {
    *("decode", "decode_topk", "score", "log_prob", "log_partition"),
    *("augment", "scale"),
}


def is_supported(structure: Any, *tensor: object) -> bool:
    """Whether an engine may answer, and ``given`` are without a gradient."""
    if not (is_eager() and getattr(structure, "_decoding_engine", None) is not None):
        return False
    for x in (*structure._potentials().values(), *tensor):
        if isinstance(x, Tensor) and not is_dense_cpu(x):
            return False
    for x in tensor:
        if isinstance(x, Tensor) and x.requires_grad:
            return False
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
    """Weighted sum of smoothed hinges of a chain, and exact rows: one compiled call.

    None for other structures, and where scores or costs are large.
    """
    if smoothing is None or not isinstance(structure, Chain):
        return None
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
    """Hinges ``[B]``, or their weighted sum, and which rows are exact.

    Then the highest scores and those of y, ``[B]`` each in float64.

    Parameters
    ----------
    structure
        Gets the gradient.
    wide, augmented
        The structure, in float64 where that is needed, and this with costs.
    used
        Entries of the potentials that gold outputs use, ``[B, 1, U]``.
    never_negative
        Whether no loss is below 0 by its formula.
    weight
        Of the rows; None for all losses.
    again
        Of the same value by differentiable questions.
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
    """``mu (log_partition of high - score of y in low)`` ``[B]``, or its weighted sum.

    Then both of these, ``[B]`` each in float64. ``low`` and ``high`` are the structure
    over mu, without and with costs; arguments as those of ``hinge``.
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
    if mu != 1:
        losses.value.mul_(mu)
    return _make_fused_node(
        structure, low, losses, weight, recomputation
    ), losses.highest


def _as_float64_weight(weight: Tensor | float | None) -> Tensor | float | None:
    """Weights in which products with strengths and gradients lose no digit."""
    return weight.double() if isinstance(weight, Tensor) else weight


def summing(structure: Any) -> Any:
    """The structure whose engines score and sum for a likelihood, None for none."""
    return getattr(structure, "_likelihood_structure", None)


def _make_fused_node(
    structure: Any,
    float64_structure: Any,
    losses: RowLosses,
    weight: Tensor | float | None,
    recomputation: Recomputation,
) -> Tensor:
    """The values of losses, or their sum; gradients reach the structure."""

    def gradients(grad: Tensor, needs_grad: Sequence[bool]) -> Sequence[Tensor | None]:
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
    return FusedNode(value, gradients, recomputation).attach(
        tuple(structure._named_potentials().values())
    )


def _computes_leaves(structure: Any) -> bool:
    """Whether potentials of its engine are computed from its own."""
    return bool(getattr(structure, "_leaves_are_computed", False))


def _grads_of_potentials(
    structure: Any,
    float64_structure: Any,
    needs_grad: Sequence[bool],
    gradients: Callable[[Sequence[bool]], list[Tensor | None]],
) -> Sequence[Tensor | None]:
    """Gradients by the potentials of a structure, from those by its engine's."""
    potentials = tuple(structure._named_potentials().values())
    if _computes_leaves(float64_structure):
        with torch.enable_grad():
            named = {
                name: x.detach()
                for name, x in float64_structure._named_potentials().items()
            }
            leaf_needs_grad = [
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
                leaf_needs_grad,
                [g for _, g in pairs],
                allow_unused=True,
            )
            if pairs
            else [None] * len(leaf_needs_grad)
        )
        grads = [next(leaf_grads) if want else None for want in needs_grad]
    else:
        grads = gradients(needs_grad)
    return [
        None if g is None else g if g.dtype == x.dtype else g.to(x.dtype)
        for g, x in zip(grads, potentials, strict=True)
    ]
