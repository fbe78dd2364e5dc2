"""Marginals of the pairs of a chain that agree where the pairs overlap."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from smoothsp.oracles._questions import checks
from smoothsp.projections._arguments import require
from smoothsp.projections.simplex import project_simplex

# How far tables may differ before they are given their next unit.
_NEAR = 0.01


@torch.no_grad()
def project_chain_marginals(
    v: Float[Tensor, "*batch pairs states states"],
    *,
    tol: float = 1e-8,
    max_iterations: int = 10_000,
) -> Float[Tensor, "*batch pairs states states"]:
    r"""The nearest distributions of neighbouring labels that one law can have.

    .. math:: \arg\min_b \tfrac12 \sum_t \|b_t - v_t\|^2, \quad
        b_t \ge 0, \; \sum_{ij} b_t(i, j) = 1, \;
        \sum_i b_t(i, j) = \sum_k b_{t+1}(j, k)

    On a chain tables that agree are the marginals of a law of whole sequences: the
    dual variables of a chain's max-margin Markov network live in this set.

    Parameters
    ----------
    v
        ``(*batch, T - 1, S, S)``, float32 or float64, finite: of each pair of
        neighbours a table, the first label along rows.
    tol
        By how much marginals of neighbouring tables may differ at most; a few roundings
        of the largest entry if these are more.
    max_iterations
        A budget for the search.

    Returns
    -------
    Tensor
        Of the shape of v, without gradients. Tables are on their simplices exactly.

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
    Agreement gets a multiplier for each label between two tables; given these, tables
    are projections onto simplices, and the dual is smooth. It is maximised by
    accelerated gradients, which begin anew where they point away from the last step:
    O(T S^2 log S) an iteration, all rows in float64 and together, until the slowest is
    there. The entries are first divided by their spread, and then by a tenth of that,
    and so on: multipliers of one stage are near those of the next, so that large
    entries take few iterations more than small ones. Entropic smoothing,
    ``Chain.edge_marginals()``, costs one such iteration.

    Source: Saha, Zhang and Vishwanathan, "Lower Bounds for BMRM and Faster Rates for
    Training SVMs", appendix E.3: (37) and (38), the signs of whose gradients are not
    as printed. The paper's algorithm 3 alternates two blocks of multipliers, which
    takes thousands of sweeps; the smooth dual is not in it.

    Examples
    --------
    Two tables that disagree on the label in the middle:

    >>> import torch
    >>> from smoothsp.projections import project_chain_marginals
    >>> v = torch.tensor([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]]])
    >>> project_chain_marginals(v).sum(-2)[0].round(decimals=4).tolist()
    [0.5, 0.5]
    """
    v = checks.dense("v", v)
    if v.dtype not in checks.FLOATS:
        raise TypeError(f"v: expected float32 or float64, got {v.dtype}")
    if v.dim() < 3 or v.shape[-1] != v.shape[-2] or not v.shape[-1]:
        raise ValueError(f"v: expected (..., pairs, S, S), got {tuple(v.shape)}")
    tol = _number("tol", tol)
    if not tol >= 0:
        raise ValueError(f"tol: expected at least 0, got {tol}")
    max_iterations = checks.positive_int("max_iterations", max_iterations)
    require(torch.isfinite(v), "v", v, "finite numbers")
    given = v.double()
    if v.shape[-3] == 0 or v.numel() == 0:
        return v.clone()
    # multipliers in units of the entries: those of coarse units are near those of 1
    spread = given.amax((-1, -2, -3)) - given.amin((-1, -2, -3))
    require(torch.isfinite(spread), "v", spread, "entries whose differences are finite")
    rounding = 8 * torch.finfo(given.dtype).eps * float(given.abs().max())
    at = ahead = given.new_zeros((*v.shape[:-3], v.shape[-3] - 1, v.shape[-1]))
    begun = momentum = given.new_ones((*v.shape[:-3], 1, 1))
    unit = spread.clamp(min=1)[..., None, None] if at.numel() else begun
    for _ in range(max_iterations):
        tables = _tables(given, ahead, unit)
        slope = tables[..., :-1, :, :].sum(-2) - tables[..., 1:, :, :].sum(-1)
        apart = float(slope.abs().max()) if slope.numel() else 0.0
        last = bool((unit == 1).all())
        if last and apart <= max(tol, rounding):
            return tables.to(v.dtype)
        if not last and apart <= _NEAR:
            unit, at, momentum = (unit / 10).clamp(min=1), ahead, begun
            continue
        # a label between two tables is in S entries of each, and next to two of these
        following = ahead - unit / (4 * v.shape[-1]) * slope
        moved = following - at
        # rows whose step and slope disagree have gone too far
        turned = (slope * moved).sum((-1, -2), keepdim=True) > 0
        momentum = torch.where(turned, 1.0, momentum)
        grown = (1 + (1 + 4 * momentum.square()).sqrt()) / 2
        ahead = following + (momentum - 1) / grown * moved
        at, momentum = following, grown
    raise RuntimeError(
        f"max_iterations: expected tables that agree to {max(tol, rounding):.3g} within"
        f" {max_iterations} iterations, they differ by {apart:.3g} at entries divided"
        f" by {float(unit.max()):.3g}; raise max_iterations"
    )


def _number(name: str, value: Any) -> float:
    checks.number(name, value)
    try:
        return float(value)
    except (OverflowError, RuntimeError, TypeError, ValueError):
        found = type(value).__name__
        raise TypeError(f"{name}: expected one number, got {found}") from None


def _tables(v: Tensor, agreement: Tensor, unit: Tensor) -> Tensor:
    """The tables that multipliers of the labels between them lead to, in such units."""
    shifted = v.clone()
    shifted[..., :-1, :, :] += agreement.unsqueeze(-2)
    shifted[..., 1:, :, :] -= agreement.unsqueeze(-1)
    return project_simplex((shifted / unit[..., None]).flatten(-2)).reshape(v.shape)
