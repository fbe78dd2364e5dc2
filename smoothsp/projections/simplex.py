r"""Projections onto the simplex, and Weston-Watkins blocks.

Both functions find one threshold t per row, of ``max(v - t, 0)`` or of
``clip(v - t, 0, upper)``. Compiled code finds it on the CPU. Other devices and traced
code sort instead. Derivatives are those of the linear piece that contains the point.
"""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from smoothsp._kernels.svm import projections
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp.oracles._inference.to_numpy import to_numpy
from smoothsp.oracles._inference.tracing import is_eager_tensor
from smoothsp.projections._arguments import as_vectors, broadcast_argument, require_all


def project_simplex(
    v: Float[Tensor, "*batch m"], total: Tensor | float = 1.0
) -> Float[Tensor, "*batch m"]:
    r"""Project v onto the simplex: the Crammer-Singer block.

    .. math:: \arg\min_b \tfrac12 \|b - v\|^2, \quad b \ge 0, \; \sum_j b_j = t

    Parameters
    ----------
    v
        ``(*batch, m)``, float32 or float64. An entry of ``-inf`` becomes 0.
    total
        Sum t > 0 of the entries: a number, or ``(*batch)``. It receives gradients.

    Returns
    -------
    Tensor
        ``(*batch, m)``. Entries that are 0 are exactly 0.

    Raises
    ------
    TypeError
        For a dtype other than float32 and float64.
    ValueError
        For NaN or +inf, a row of only -inf, and a total that is not positive.

    Notes
    -----
    O(m log m) per row.

    Source: Duchi et al., "Efficient Projections onto the l1-Ball for Learning in High
    Dimensions", section 3.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.projections import project_simplex
    >>> project_simplex(torch.tensor([1.0, 0.5, -2.0])).tolist()
    [0.75, 0.25, 0.0]
    """
    v = as_vectors(v)
    total = broadcast_argument("total", total, v, v.shape[:-1])
    require_all(torch.isfinite(total) & (total > 0), "total", total, "positive numbers")
    require_all(v < torch.inf, "v", v, "no NaN and no +inf")
    require_all((v > -torch.inf).any(-1), "v", v.amax(-1), "a finite entry in each row")
    # a shift of v does not change the point, and a small total keeps its digits
    v = v - v.detach().amax(-1, keepdim=True)
    with torch.no_grad():
        if is_eager_tensor(v) and is_eager_tensor(total):
            b = _run_rows(projections.project_simplex, v, total.reshape(-1))
        else:
            b = (v - _simplex_threshold(v, total).unsqueeze(-1)).clamp(min=0)
    if not (torch.is_grad_enabled() and (v.requires_grad or total.requires_grad)):
        return b
    # on the support the point is linear in v and total: autograd differentiates that
    free = b > 0
    mass = v.masked_fill(~free, 0).sum(-1) - total
    threshold = mass / free.sum(-1)
    return (v - threshold.unsqueeze(-1)).masked_fill(~free, 0)


def project_weston_watkins(
    v: Float[Tensor, "*batch m"], upper: Tensor | float
) -> Float[Tensor, "*batch m"]:
    r"""Minimise a Weston-Watkins block, ``b = clip(v - sum(b), 0, c)``.

    .. math:: \arg\min_b \tfrac12 b^\top (I + 1 1^\top) b - v^\top b,
        \quad 0 \le b \le c

    This is a projection onto the box in the metric of ``I + 1 1'``, and thus
    nonexpansive in that metric.

    Parameters
    ----------
    v
        ``(*batch, m)``, float32 or float64. An entry of ``-inf`` becomes 0.
    upper
        The bounds c, >= 0: a number, or a tensor that can be broadcast to
        ``(*batch, m)``. It receives gradients.

    Returns
    -------
    Tensor
        ``(*batch, m)``. Entries at a bound are exactly there.

    Raises
    ------
    TypeError
        For a dtype other than float32 and float64.
    ValueError
        For NaN or +inf, and negative bounds.

    Notes
    -----
    O(m log m) per row. With M the indicator of the entries strictly between their
    bounds and n their number, ``db/dv = diag(M) - M M' / (1 + n)``.

    Source: Wang and Scott, "An Exact Solver for the Weston-Watkins SVM Subproblem", eq.
    (4) and algorithm 2; the derivative and unequal bounds are not in the paper.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.projections import project_weston_watkins
    >>> project_weston_watkins(torch.tensor([2.0, 1.0]), 1.0).tolist()
    [1.0, 0.0]
    """
    v = as_vectors(v)
    upper = broadcast_argument("upper", upper, v, v.shape)
    require_all(torch.isfinite(upper) & (upper >= 0), "upper", upper, "numbers >= 0")
    require_all(v < torch.inf, "v", v, "no NaN and no +inf")
    with torch.no_grad():
        if is_eager_tensor(v) and is_eager_tensor(upper):
            rows = upper.reshape(-1, v.shape[-1])
            b = _run_rows(projections.project_weston_watkins, v, rows)
        else:
            b = _weston_watkins_by_sorting(v, upper)
    if not (torch.is_grad_enabled() and (v.requires_grad or upper.requires_grad)):
        return b
    full = (b >= upper) & (b > 0)
    free = (b > 0) & ~full
    mass = upper.masked_fill(~full, 0).sum(-1) + v.masked_fill(~free, 0).sum(-1)
    threshold = mass / (1 + free.sum(-1))
    inside = (v - threshold.unsqueeze(-1)).masked_fill(~free, 0)
    return torch.where(full, upper, inside)


def _run_rows(kernel: Callable[..., None], v: Tensor, limit: Tensor) -> Tensor:
    rows = v.detach().reshape(-1, v.shape[-1]).contiguous()
    out = torch.empty_like(rows)
    args = to_numpy(rows), to_numpy(limit)
    # a vector of zeros gives the kernel dtype and lanes
    lanes = np.zeros(64 // rows.itemsize, args[0].dtype)
    run_rows(kernel, len(rows), 8 * rows.numel(), *args, lanes, out.numpy())
    return out.reshape(v.shape)


def _simplex_threshold(v: Tensor, total: Tensor) -> Tensor:
    """Return the threshold of each row, for rows with maximum 0."""
    ranked = v.sort(dim=-1, descending=True).values
    size = torch.arange(1, v.shape[-1] + 1, dtype=v.dtype, device=v.device)
    finite = ranked.masked_fill(ranked == -torch.inf, 0)
    sums = finite.cumsum(-1)
    # j is in the support while sum_{i <= j} (v_i - v_j) < total
    inside = (ranked > -torch.inf) & (sums - size * finite < total.unsqueeze(-1))
    count = inside.sum(-1, keepdim=True)
    mass = sums.gather(-1, count - 1).squeeze(-1) - total
    return mass / count.squeeze(-1)


def _weston_watkins_by_sorting(v: Tensor, upper: Tensor) -> Tensor:
    """Return the block by sorting all breakpoints; the root is on one linear piece."""
    # the root is at most the sum of bounds, so larger entries are full anyway
    v = torch.minimum(v.clamp(min=0), upper.sum(-1, keepdim=True) + upper)
    enter, fill = torch.ones_like(v), -torch.ones_like(v)
    points, order = torch.cat([v, v - upper], -1).sort(
        dim=-1, descending=True, stable=True
    )
    # below v an entry is free, below v - upper it is full
    free = torch.cat([enter, fill], -1).gather(-1, order).cumsum(-1)
    inside = torch.cat([v, -v], -1).gather(-1, order).cumsum(-1)
    full = torch.cat([0 * upper, upper], -1).gather(-1, order).cumsum(-1)
    next_point = torch.nn.functional.pad(points[..., 1:], (0, 1)).clamp(min=0)
    holds_root = (full + inside >= (free + 1) * next_point) | (next_point == 0)
    first = holds_root.to(torch.int8).argmax(-1, keepdim=True)
    mass = (full + inside).gather(-1, first)
    threshold = mass / (free.gather(-1, first) + 1)
    # a Newton step removes the rounding error of the running sums
    b = torch.minimum((v - threshold).clamp(min=0), upper)
    slope = 1 + ((b > 0) & (b < upper)).sum(-1, keepdim=True)
    threshold = threshold + (b.sum(-1, keepdim=True) - threshold) / slope
    return torch.minimum((v - threshold).clamp(min=0), upper)
