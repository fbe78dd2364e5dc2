"""Projection onto the pairwise marginals of chains."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from smoothsp.oracles._inference import checks
from smoothsp.projections._arguments import require_all
from smoothsp.projections.simplex import project_simplex

# Largest difference of marginals at which a coarse unit is replaced by the next.
_SCALE_TOLERANCE = 0.01


@torch.no_grad()
def project_chain_marginals(
    v: Float[Tensor, "*batch pairs states states"],
    *,
    tol: float = 1e-8,
    max_iterations: int = 10_000,
) -> Float[Tensor, "*batch pairs states states"]:
    r"""Project tables of neighbouring labels onto the marginals of a chain.

    .. math:: \arg\min_b \tfrac12 \sum_t \|b_t - v_t\|^2, \quad
        b_t \ge 0, \; \sum_{ij} b_t(i, j) = 1, \;
        \sum_i b_t(i, j) = \sum_k b_{t+1}(j, k)

    On a chain, consistent tables are the marginals of a distribution over sequences.
    The dual variables of a chain's max-margin Markov network lie in this set.

    Parameters
    ----------
    v
        ``(*batch, T - 1, S, S)``, float32 or float64, finite: one table per pair of
        neighbours, with the first label along rows.
    tol
        Largest difference between marginals of neighbouring tables, but at least a few
        roundings of the largest entry.
    max_iterations
        Maximum number of iterations.

    Returns
    -------
    Tensor
        Of the shape of v, without gradients. Each table sums to 1 exactly.

    Raises
    ------
    TypeError
        For a dtype other than float32 and float64.
    ValueError
        For other shapes, and numbers that are not finite.
    RuntimeError
        If tables still differ by more than ``tol`` after ``max_iterations``.

    Notes
    -----
    Each label between two tables has a multiplier. Given the multipliers, tables are
    projections onto simplices, and the dual is smooth. It is maximised by accelerated
    gradients with restarts, in float64, O(T S^2 log S) per iteration. All rows run
    together until the slowest converges. Entries are first divided by their spread,
    then by a tenth of it, and so on, with warm starts. Entropic smoothing,
    ``Chain.edge_marginals()``, costs as much as one iteration.

    Source: Saha, Zhang and Vishwanathan, "Lower Bounds for BMRM and Faster Rates for
    Training SVMs", appendix E.3, (37) and (38), with corrected signs of the gradients.
    The paper's algorithm 3 alternates two blocks of multipliers, which takes thousands
    of sweeps. The smooth dual is not in the paper.

    Examples
    --------
    Two tables that disagree on the label in the middle:

    >>> import torch
    >>> from smoothsp.projections import project_chain_marginals
    >>> v = torch.tensor([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]]])
    >>> project_chain_marginals(v).sum(-2)[0].round(decimals=4).tolist()
    [0.5, 0.5]
    """
    v = checks.as_dense("v", v)
    if v.dtype not in checks.FLOATS:
        raise TypeError(f"v: expected float32 or float64, got {v.dtype}")
    if v.dim() < 3 or v.shape[-1] != v.shape[-2] or not v.shape[-1]:
        raise ValueError(f"v: expected (..., pairs, S, S), got {tuple(v.shape)}")
    tol = _as_positive_float("tol", tol)
    if not tol >= 0:
        raise ValueError(f"tol: expected at least 0, got {tol}")
    max_iterations = checks.as_positive_int("max_iterations", max_iterations)
    require_all(torch.isfinite(v), "v", v, "finite numbers")
    float64_v = v.double()
    if v.shape[-3] == 0 or v.numel() == 0:
        return v.clone()
    # continuation: multipliers for entries divided by a large unit are a warm start
    # for the next, smaller unit
    spread = float64_v.amax((-1, -2, -3)) - float64_v.amin((-1, -2, -3))
    require_all(
        torch.isfinite(spread), "v", spread, "entries whose differences are finite"
    )
    rounding = 8 * torch.finfo(float64_v.dtype).eps * float(float64_v.abs().max())
    multipliers = lookahead = float64_v.new_zeros(
        (*v.shape[:-3], v.shape[-3] - 1, v.shape[-1])
    )
    ones = momentum = float64_v.new_ones((*v.shape[:-3], 1, 1))
    scale = spread.clamp(min=1)[..., None, None] if multipliers.numel() else ones
    for _ in range(max_iterations):
        tables = _project_tables(float64_v, lookahead, scale)
        residual = tables[..., :-1, :, :].sum(-2) - tables[..., 1:, :, :].sum(-1)
        disagreement = float(residual.abs().max()) if residual.numel() else 0.0
        last = bool((scale == 1).all())
        if last and disagreement <= max(tol, rounding):
            return tables.to(v.dtype)
        if not last and disagreement <= _SCALE_TOLERANCE:
            scale, multipliers, momentum = (scale / 10).clamp(min=1), lookahead, ones
            continue
        # step 1 / L: a multiplier shifts S entries of both tables, so L <= 4 S / scale
        next_multipliers = lookahead - scale / (4 * v.shape[-1]) * residual
        step = next_multipliers - multipliers
        # restart the momentum of rows whose step points uphill (O'Donoghue and Candes,
        # "Adaptive Restart for Accelerated Gradient Schemes", gradient scheme)
        overshoots = (residual * step).sum((-1, -2), keepdim=True) > 0
        momentum = torch.where(overshoots, 1.0, momentum)
        next_momentum = (1 + (1 + 4 * momentum.square()).sqrt()) / 2
        lookahead = next_multipliers + (momentum - 1) / next_momentum * step
        multipliers, momentum = next_multipliers, next_momentum
    raise RuntimeError(
        f"max_iterations: expected tables that agree to {max(tol, rounding):.3g} "
        f"within {max_iterations} iterations, got a difference of {disagreement:.3g} "
        f"at entries divided by {float(scale.max()):.3g}; raise max_iterations"
    )


def _as_positive_float(name: str, value: Any) -> float:
    checks.require_number(name, value)
    try:
        return float(value)
    except (OverflowError, RuntimeError, TypeError, ValueError):
        number = type(value).__name__
        raise TypeError(f"{name}: expected one number, got {number}") from None


def _project_tables(v: Tensor, multipliers: Tensor, scale: Tensor) -> Tensor:
    """Return the tables for given multipliers: projections of shifted tables."""
    shifted = v.clone()
    shifted[..., :-1, :, :] += multipliers.unsqueeze(-2)
    shifted[..., 1:, :, :] -= multipliers.unsqueeze(-1)
    return project_simplex((shifted / scale[..., None]).flatten(-2)).reshape(v.shape)
