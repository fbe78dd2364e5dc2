"""Proximal operator of the elastic net, and projections onto its ball."""

import torch
from jaxtyping import Float
from torch import Tensor

from smoothsp.projections._arguments import as_vectors, broadcast_argument, require_all
from smoothsp.projections.simplex import project_simplex

# Newton steps from an estimate whose error is a rounding error of 1.
_NEWTON_STEPS = 6


def prox_elastic_net(
    v: Float[Tensor, "*batch n"],
    l1: Tensor | float,
    l2: Tensor | float = 0.0,
    step: Tensor | float = 1.0,
) -> Float[Tensor, "*batch n"]:
    r"""Apply the proximal operator of the elastic net: soft threshold and shrinkage.

    .. math:: \arg\min_w l_1 \|w\|_1 + \tfrac{l_2}{2} \|w\|^2
        + \tfrac{1}{2 s} \|w - v\|^2
        = \frac{\operatorname{sign}(v) \max(|v| - s l_1, 0)}{1 + s l_2}

    Parameters
    ----------
    v
        ``(*batch, n)``, float32 or float64, finite.
    l1, l2, step
        >= 0; step s is positive. Numbers, or tensors that can be broadcast to
        ``(*batch, n)``. All arguments receive gradients.

    Returns
    -------
    Tensor
        ``(*batch, n)``.

    Raises
    ------
    TypeError, ValueError
        For a wrong dtype, and for numbers that are negative or not finite.

    Notes
    -----
    Source: Zhang, Saha and Vishwanathan, "Regularized Risk Minimization by Nesterov's
    Accelerated Gradient Methods", section 5.5.2, the branch of positive v.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.projections import prox_elastic_net
    >>> prox_elastic_net(torch.tensor([3.0, -0.5, -2.0]), 1.0, 1.0).tolist()
    [1.0, -0.0, -0.5]
    """
    v = _as_finite(v)
    l1, l2 = _as_strength("l1", l1, v), _as_strength("l2", l2, v)
    step = broadcast_argument("step", step, v, v.shape)
    require_all(torch.isfinite(step) & (step > 0), "step", step, "positive numbers")
    float64_v, l1, l2, step = (x.double() for x in (v, l1, l2, step))
    size = (float64_v.abs() - step * l1).clamp(min=0) / (1 + step * l2)
    return (float64_v.sign() * size).to(v.dtype)


def project_elastic_net_ball(
    v: Float[Tensor, "*batch n"],
    l1: Tensor | float,
    l2: Tensor | float = 1.0,
    radius: Tensor | float = 1.0,
) -> Float[Tensor, "*batch n"]:
    r"""Project v onto the set of points with elastic-net penalty at most r.

    .. math:: \arg\min_w \tfrac12 \|w - v\|^2, \quad
        l_1 \|w\|_1 + \tfrac{l_2}{2} \|w\|^2 \le r

    Parameters
    ----------
    v
        ``(*batch, n)``, float32 or float64, finite.
    l1, l2
        >= 0, not both 0: numbers, or ``(*batch)``. ``l2=0`` gives the ball of the L1
        norm, ``l1=0`` the Euclidean ball.
    radius
        r, positive: a number, or ``(*batch)``. All arguments receive gradients.

    Returns
    -------
    Tensor
        ``(*batch, n)``; v itself where it is inside.

    Raises
    ------
    TypeError, ValueError
        For a wrong dtype, for numbers that are negative or not finite, and if l1 and l2
        are both 0.

    Notes
    -----
    O(n log n) per row. With multiplier t the point is ``sign(v) max(|v| - t l1, 0) / (1
    + t l2)``. Over its support S, ``t (2 + t l2) (2 r l2 + l1^2 |S|) = sum_S (2 l1 |v|
    + l2 v^2) - 2 r``.

    Source: Zhang, Saha and Vishwanathan, "Regularized Risk Minimization by Nesterov's
    Accelerated Gradient Methods", eqs. (67) to (69), without the superfluous constants
    of the radius. The form without divisions by l2 is not in the paper.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.projections import project_elastic_net_ball
    >>> project_elastic_net_ball(torch.tensor([3.0, 0.5]), 1.0, 0.0, 2.0).tolist()
    [2.0, 0.0]
    """
    v = _as_finite(v)
    shape = v.shape[:-1]
    l1, l2 = _as_strength("l1", l1, v, shape), _as_strength("l2", l2, v, shape)
    require_all(l1 + l2 > 0, "l2", l2, "a positive number where l1 is 0")
    radius = broadcast_argument("radius", radius, v, shape)
    require_all(
        torch.isfinite(radius) & (radius > 0), "radius", radius, "positive numbers"
    )
    l1, l2, radius = (x.double().unsqueeze(-1) for x in (l1, l2, radius))
    size = v.abs().double()
    # scaled by the largest entry and its penalty, so that squares do not over- or
    # underflow
    unit = size.detach().amax(-1, keepdim=True)
    unit = unit.masked_fill(unit == 0, 1)
    price = (l1 + l2 * unit).detach()
    require_all(torch.isfinite(price), "l2", l2 * unit, "products with v below 1e308")
    u, radius = size / unit, radius / unit / price
    l1, l2 = l1 / price, l2 * unit / price
    with torch.no_grad():
        penalty = (l1 * u + l2 / 2 * u * u).sum(-1, keepdim=True)
        inside = penalty <= radius
        below = (unit - size) / unit
        support = _support_mask(below, l1, l2, radius) & ~inside
    support_values = u.masked_fill(~support, 0)
    excess = (2 * l1 * support_values + l2 * support_values * support_values).sum(
        -1, keepdim=True
    ) - 2 * radius
    count = support.sum(-1, keepdim=True)
    ratio = excess / (2 * radius * l2 + l1.square() * count).masked_fill(inside, 1)
    ratio = ratio.masked_fill(inside, 0)
    # the root of t (2 + t l2) = ratio, in the form that is valid for l2 = 0
    t = ratio / (1 + (1 + l2 * ratio).clamp(min=0).sqrt())
    w = (support_values - t * l1).masked_fill(~support, 0) / (1 + t * l2)
    with torch.no_grad():
        exact = _refine_threshold(below, l1, l2, radius, support, t, w)
    # value of the refined point, derivative of the formula
    w = unit * (w + (exact - w).detach())
    return torch.where(inside, v, v.sign() * w.to(v.dtype))


def _refine_threshold(
    below: Tensor,
    l1: Tensor,
    l2: Tensor,
    radius: Tensor,
    support: Tensor,
    t: Tensor,
    w: Tensor,
) -> Tensor:
    """Return the absolute values w of the point, accurate for thresholds near 1.

    Entries are ``1 - d``, d being ``below``. With ``s = 1 - t l1`` their absolute
    values are ``l1 (s - d) / e`` where ``e = l1 + l2 (1 - s)``. If s is small, it has
    lost its digits in ``1 - t l1``, and Newton's method computes it instead.
    """
    s = 1 - t * l1
    near = (s < 0.5) & (l1 > 0)
    for _ in range(_NEWTON_STEPS):
        e = l1 + l2 * (1 - s).clamp(min=0)
        q = (s - below).masked_fill(~support, 0)
        slope = l1 * support.sum(-1, keepdim=True) / e
        first, second = (l1 / e * x.sum(-1, keepdim=True) for x in (q, l1 / e * q * q))
        # the penalty, l1 |w| + l2 / 2 |w|^2, and its derivative
        value = l1 * first + l2 / 2 * second
        derivative = l1 * (slope + first * l2 / e) + l2 * (
            first * l1 / e + second * l2 / e
        )
        s = torch.where(
            near, s - (value - radius) / derivative.masked_fill(~near, 1), s
        )
    exact = l1 * (s - below).clamp(min=0) / (l1 + l2 * (1 - s).clamp(min=0))
    return torch.where(near, exact, w.clamp(min=0)).masked_fill(~support, 0)


def project_l1_ball(
    v: Float[Tensor, "*batch n"], radius: Tensor | float = 1.0
) -> Float[Tensor, "*batch n"]:
    r"""Project v onto the ball of the L1 norm.

    .. math:: \arg\min_w \tfrac12 \|w - v\|^2, \quad \|w\|_1 \le r

    Parameters
    ----------
    v
        ``(*batch, n)``, float32 or float64, finite.
    radius
        r, positive: a number, or ``(*batch)``. Both arguments receive gradients.

    Returns
    -------
    Tensor
        ``(*batch, n)``; v itself where it is inside.

    Raises
    ------
    TypeError, ValueError
        As for :func:`project_elastic_net_ball`, whose special case this is.

    Notes
    -----
    Outside the ball, the absolute values of v are projected onto the simplex and get
    the signs of v. The result is accurate even if the radius is much smaller than v.

    Source: Duchi et al., "Efficient Projections onto the l1-Ball for Learning in High
    Dimensions", section 4.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.projections import project_l1_ball
    >>> project_l1_ball(torch.tensor([1.0, -0.5])).tolist()
    [0.75, -0.25]
    """
    v = _as_finite(v)
    radius = broadcast_argument("radius", radius, v, v.shape[:-1])
    require_all(
        torch.isfinite(radius) & (radius > 0), "radius", radius, "positive numbers"
    )
    size = v.abs()
    inside = (size.detach().sum(-1) <= radius.detach()).unsqueeze(-1)
    # project_simplex subtracts the maximum, so a small radius keeps its digits
    return torch.where(inside, v, v.sign() * project_simplex(size, radius))


def _as_finite(v: object) -> Tensor:
    tensor = as_vectors(v)
    require_all(torch.isfinite(tensor), "v", tensor, "finite numbers")
    return tensor


def _as_strength(
    name: str, value: Tensor | float, v: Tensor, shape: torch.Size | None = None
) -> Tensor:
    tensor = broadcast_argument(name, value, v, v.shape if shape is None else shape)
    require_all(torch.isfinite(tensor) & (tensor >= 0), name, tensor, "numbers >= 0")
    return tensor


def _support_mask(below: Tensor, l1: Tensor, l2: Tensor, radius: Tensor) -> Tensor:
    """Return the mask of the entries that are not 0 in the projection.

    Entries are ``1 - below``, the largest is 1. At the multiplier at which an entry
    becomes 0, larger entries are proportional to their difference from it. The entry is
    in the support if the penalty of that point is below the radius.
    """
    below, order = below.sort(dim=-1, stable=True)
    size = 1 - below
    count = torch.arange(1, below.shape[-1] + 1, dtype=below.dtype, device=below.device)
    gap_sums = count * below - below.cumsum(-1)
    squared_gap_sums = count * below.square() - 2 * below * below.cumsum(-1)
    squared_gap_sums = squared_gap_sums + below.square().cumsum(-1)
    ratio = l1 / (l1 + l2 * size)
    is_in_support = ratio * (l1 * gap_sums + l2 / 2 * ratio * squared_gap_sums) < radius
    is_in_support = is_in_support.cumprod(-1).bool() & (size > 0)
    return torch.zeros_like(is_in_support).scatter(-1, order, is_in_support)
