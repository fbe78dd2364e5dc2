"""Projections onto a box intersected with a hyperplane."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from smoothsp._kernels.svm import quadratic_knapsack
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp.oracles._inference.to_numpy import to_numpy
from smoothsp.oracles._inference.tracing import is_eager_tensor
from smoothsp.projections._arguments import as_vectors, broadcast_argument, require_all


def project_box_equality(
    v: Float[Tensor, "*batch n"],
    lower: Tensor | float,
    upper: Tensor | float,
    weights: Tensor | float = 1.0,
    total: Tensor | float = 1.0,
    scale: Tensor | float = 1.0,
) -> Float[Tensor, "*batch n"]:
    r"""Project v onto a box intersected with a hyperplane, in a diagonal metric.

    .. math:: \arg\min_b \tfrac12 \sum_i d_i^2 (b_i - v_i)^2, \quad
        l_i \le b_i \le u_i, \; \sum_i a_i b_i = t

    The dual variables of a support vector machine with an unregularised bias lie in
    such a set. The labels are the weights, and the total is 0.

    Parameters
    ----------
    v
        ``(*batch, n)``, float32 or float64. An entry of ``-inf`` gets its lower bound.
    lower, upper
        l and u: numbers, or tensors that can be broadcast to ``(*batch, n)``; ``-inf``
        and ``inf`` mean no bound.
    weights
        a, finite, of any sign. An entry with weight 0 is only clipped.
    total
        t, finite: a number, or ``(*batch)``.
    scale
        d, positive. All six arguments receive gradients.

    Returns
    -------
    Tensor
        ``(*batch, n)``. Entries at a bound are exactly there.

    Raises
    ------
    TypeError
        For a dtype other than float32 and float64, and dtypes that differ.
    ValueError
        For NaN, for infinities where they are not allowed, for crossing bounds, and for
        a total that no point of the box attains.

    Notes
    -----
    O(n) per row on the CPU: the multiplier is found by repeated medians of the 2n
    kinks. Other devices and traced code sort instead. Arithmetic is in float64.

    Source: Zhang, Saha and Vishwanathan, "Regularized Risk Minimization by Nesterov's
    Accelerated Gradient Methods", eqs. (64) to (66) and algorithm 8, without the
    superfluous 2 in the middle case of the multiplier; the derivative is not in the
    paper.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.projections import project_box_equality
    >>> labels = torch.tensor([1.0, 1.0, -1.0])
    >>> project_box_equality(torch.tensor([2.0, 0.5, 1.0]), 0, 1, labels, 0.0).tolist()
    [1.0, 0.0, 1.0]
    """
    return _project(
        _Box.from_arguments(as_vectors(v), lower, upper, weights, total, scale)
    )


def project_capped_simplex(
    v: Float[Tensor, "*batch n"],
    upper: Tensor | float = 1.0,
    total: Tensor | float = 1.0,
) -> Float[Tensor, "*batch n"]:
    r"""Project v onto a simplex with upper bounds.

    .. math:: \arg\min_b \tfrac12 \|b - v\|^2, \quad 0 \le b \le u, \; \sum_i b_i = t

    Parameters
    ----------
    v
        ``(*batch, n)``, float32 or float64. An entry of ``-inf`` becomes 0 if all other
        entries can reach the total.
    upper
        The bounds u, >= 0: a number, or a tensor that can be broadcast to
        ``(*batch, n)``; ``inf`` gives :func:`project_simplex`.
    total
        t, >= 0 and at most the sum of the bounds: a number, or ``(*batch)``.

    Returns
    -------
    Tensor
        ``(*batch, n)``. Entries at a bound are exactly there. All arguments receive
        gradients.

    Raises
    ------
    TypeError, ValueError
        As for :func:`project_box_equality`, whose special case this is.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.projections import project_capped_simplex
    >>> project_capped_simplex(torch.tensor([3.0, 1.0, 0.5]), 0.5).tolist()
    [0.5, 0.5, 0.0]
    """
    box = _Box.from_arguments(as_vectors(v), 0.0, upper, 1.0, total, 1.0)
    with torch.no_grad():
        base = _shift_per_row(
            *(x.detach().double() for x in (box.v, box.upper, box.total))
        )
    if base is None:
        return _project(box)
    # a shift of v does not change the point, and a small total keeps its digits
    projected = _Box(*(x.double() for x in box))
    bound_shift = 2 * projected.total.detach().unsqueeze(-1)
    # the threshold is within the total of base: farther entries are at a bound
    shifted_v = (projected.v - base).clamp(min=-bound_shift, max=2 * bound_shift)
    projected = projected._replace(
        v=shifted_v.masked_fill(projected.v == -torch.inf, -torch.inf)
    )
    return _project(projected).to(box.v.dtype)


def _shift_per_row(v: Tensor, upper: Tensor, total: Tensor) -> Tensor | None:
    """Return an entry of each row that is within the total of the threshold.

    It is the first, in decreasing order, at which the bounds of the largest entries
    reach the total. None if no entry is so large that digits would be lost.
    """
    total = total.unsqueeze(-1)
    size = v.masked_fill(v == -torch.inf, 0).abs()
    if is_eager_tensor(size) and bool((size <= 1e3 * total).all()):
        return None
    ranked, order = v.sort(dim=-1, descending=True)
    fits_total = upper.gather(-1, order).cumsum(-1) >= total
    last = (ranked > -torch.inf).sum(-1, keepdim=True) - 1
    first = torch.minimum((~fits_total).sum(-1, keepdim=True), last).clamp(min=0)
    base = ranked.gather(-1, first)
    return base.masked_fill(base == -torch.inf, 0)


class _Box(NamedTuple):
    """Validated arguments, broadcast to the shape of v."""

    v: Tensor
    lower: Tensor
    upper: Tensor
    weights: Tensor
    total: Tensor
    scale: Tensor

    @classmethod
    def from_arguments(
        cls,
        v: Tensor,
        lower: Tensor | float,
        upper: Tensor | float,
        weights: Tensor | float,
        total: Tensor | float,
        scale: Tensor | float,
    ) -> "_Box":
        box = cls(
            v,
            broadcast_argument("lower", lower, v, v.shape),
            broadcast_argument("upper", upper, v, v.shape),
            broadcast_argument("weights", weights, v, v.shape),
            broadcast_argument("total", total, v, v.shape[:-1]),
            broadcast_argument("scale", scale, v, v.shape),
        )
        # repeated entries are checked once
        low, high, a, t, d = (_unexpand(x) for x in box[1:])
        require_all(low < torch.inf, "lower", low, "no NaN and no +inf")
        require_all(high > -torch.inf, "upper", high, "no NaN and no -inf")
        order = low <= high
        description = "bounds of at most upper"
        require_all(order, "lower", low.broadcast_to(order.shape), description)
        if not _is_certainly_finite(a):
            require_all(torch.isfinite(a), "weights", a, "finite numbers")
        require_all(torch.isfinite(t), "total", t, "finite numbers")
        require_all(torch.isfinite(d) & (d > 0), "scale", d, "positive numbers")
        if not _is_certainly_finite(v):
            require_all(v < torch.inf, "v", v, "no NaN and no +inf")
        if is_eager_tensor(low) and bool((low == -torch.inf).any()):
            open_below = (v == -torch.inf) & (low == -torch.inf)
            require_all(~open_below, "v", v, "-inf only where lower is finite")
        box._require_feasible(low.double(), high.double(), a.double())
        return box

    def _require_feasible(self, low: Tensor, high: Tensor, a: Tensor) -> None:
        finite = _is_certainly_finite(low) and _is_certainly_finite(high)
        n = self.v.shape[-1]
        if finite and low.shape[-1] == high.shape[-1] == 1:
            repeats = n if a.shape[-1] == 1 else 1
            up = repeats * a.clamp(min=0).sum(-1)
            down = repeats * a.clamp(max=0).sum(-1)
            low, high = low.squeeze(-1), high.squeeze(-1)
            min_total, max_total = up * low + down * high, up * high + down * low
        else:
            below, above = a * low, a * high
            if not finite:
                below, above = (x.masked_fill(a == 0, 0) for x in (below, above))
            repeats = n if below.shape[-1] == above.shape[-1] == 1 else 1
            min_total = repeats * torch.minimum(below, above).sum(-1)
            max_total = repeats * torch.maximum(below, above).sum(-1)
        total = self.total.double()
        # bound of the rounding errors of both sums
        size = torch.nan_to_num(min_total, neginf=0).abs() + total.abs()
        size = size + torch.nan_to_num(max_total, posinf=0).abs()
        slack = 8 * torch.finfo(self.v.dtype).eps * size
        feasible = (min_total <= total + slack) & (max_total >= total - slack)
        description = "a sum that weights and bounds attain"
        if is_eager_tensor(feasible) and not bool(feasible.all()):
            wrong = (~feasible).flatten().to(torch.int8).argmax()
            attainable = (
                x.broadcast_to(feasible.shape).flatten()[wrong]
                for x in (min_total, max_total)
            )
            description += " (from {:.6g} to {:.6g})".format(
                *(float(x) for x in attainable)
            )
        require_all(feasible, "total", self.total, description)


def _project(box: _Box) -> Tensor:
    with torch.no_grad():
        detached = _Box(*(x.detach() for x in box))
        is_eager = all(is_eager_tensor(x) for x in box)
        b = _project_cpu(detached) if is_eager else _project_by_sorting(detached)
    if not (torch.is_grad_enabled() and any(x.requires_grad for x in box)):
        return b
    piece = _linear_piece(box, b)
    # value of the solver, derivative of the linear piece
    return b + (piece - piece.detach())


def _is_certainly_finite(x: Tensor) -> bool:
    """Return whether all entries are finite, in one pass; False while tracing."""
    if not is_eager_tensor(x) or not x.numel():
        return False
    low, high = x.aminmax()
    return bool((low > -torch.inf) & (high < torch.inf))


def _unexpand(x: Tensor) -> Tensor:
    """Return x with size 1 along axes on which it is expanded (stride 0)."""
    for axis, stride in enumerate(x.stride()):
        if stride == 0 and x.shape[axis] > 1:
            x = x.narrow(axis, 0, 1)
    return x


def _project_cpu(box: _Box) -> Tensor:
    n = box.v.shape[-1]
    rows = box.v.reshape(-1, n).double().contiguous()
    flat_arguments = [
        _as_flat_array(x) for x in (box.lower, box.upper, box.weights, box.scale)
    ]
    strides = np.array([stride for _, stride in flat_arguments], dtype=np.int64)
    total = to_numpy(box.total.double().reshape(-1))
    out = torch.empty_like(rows)
    arrays = (
        to_numpy(rows),
        *(x for x, _ in flat_arguments),
        strides,
        total,
        out.numpy(),
    )
    run_rows(
        quadratic_knapsack.project_box_equality, len(rows), 16 * rows.numel(), *arrays
    )
    return out.to(box.v.dtype).reshape(box.v.shape)


def _as_flat_array(x: Tensor) -> tuple[NDArray[np.float64], tuple[int, int]]:
    """Return x flat, without repeated entries, and strides of rows and entries."""
    strides = 0 if x.stride(-1) == 0 else 1
    *batch, n = x.shape
    if all(stride == 0 for stride in x.stride()[:-1]):
        x, rows = x[(0,) * len(batch)] if x.numel() else x.reshape(-1), 0
    else:
        rows = n if strides else 1
    if not strides:
        x = x[..., :1]
    flat: NDArray[np.float64] = to_numpy(x.double().reshape(-1))
    return flat, (rows, strides)


def _project_by_sorting(box: _Box) -> Tensor:
    """Return the projection by sorting all kinks; the multiplier is on one piece."""
    v, low, high, a, _, d = (x.double() for x in box)
    total = box.total.double().unsqueeze(-1)
    step = a / d.square()
    # other entries are constant in the multiplier t
    is_variable = (low < high) & (a * step > 0) & (v > -torch.inf)
    fixed = torch.where(is_variable, 0, v).clamp(low, high)
    total = total - (a * fixed).masked_fill(is_variable | (a == 0), 0).sum(
        -1, keepdim=True
    )
    start = (a * v).masked_fill(~is_variable, 0)
    slope = (a * step).masked_fill(~is_variable, 0)
    bottom = torch.minimum(a * low, a * high).masked_fill(~is_variable, 0)
    top = torch.maximum(a * low, a * high).masked_fill(~is_variable, 0)
    closed, capped = bottom > -torch.inf, top < torch.inf
    left = torch.where(is_variable & closed, (bottom - start) / slope, -torch.inf)
    right = torch.where(is_variable & capped, (top - start) / slope, torch.inf)
    # change of the sum's line, slope and value at 0, at each kink
    bottom, top = bottom.masked_fill(~closed, 0), top.masked_fill(~capped, 0)
    enters, leaves = closed & is_variable, capped & is_variable
    gains = torch.cat([slope * enters, -slope * leaves], -1)
    jumps = torch.cat([(start - bottom) * enters, (top - start) * leaves], -1)
    first_slope = (slope * ~closed).sum(-1, keepdim=True)
    first = torch.where(closed, bottom, start).sum(-1, keepdim=True)
    kinks, order = torch.cat([left, right], -1).sort(-1)
    n2 = kinks.shape[-1]
    slopes = first_slope + gains.gather(-1, order).cumsum(-1)
    starts = first + jumps.gather(-1, order).cumsum(-1)
    finite = kinks.isfinite()
    finite_kinks = kinks.masked_fill(~finite, 0)
    # the last kink at which the sum is at most the total; by rounding, the sum may
    # exceed the total at an earlier kink
    is_below_total = finite & (starts + slopes * finite_kinks <= total)
    segment = torch.arange(1, n2 + 1, device=v.device)
    num_neg_inf = (kinks == -torch.inf).to(torch.int64).sum(-1, keepdim=True)
    count = torch.maximum(
        (is_below_total * segment).amax(-1, keepdim=True), num_neg_inf
    )
    last = (count - 1).clamp(min=0)
    slope_at = torch.where(count > 0, slopes.gather(-1, last), first_slope)
    start_at = torch.where(count > 0, starts.gather(-1, last), first)
    # on a flat piece of the sum the root is at a kink, up to rounding
    edge = finite_kinks.gather(
        -1, torch.where(count > num_neg_inf, last, num_neg_inf.clamp(max=n2 - 1))
    )
    # rounding error of running sums of slopes, where the true slope is 0
    noise = 4 * n2 * torch.finfo(v.dtype).eps * slope.sum(-1, keepdim=True)
    t = torch.where(slope_at > noise, (total - start_at) / slope_at, edge)
    next_kink = kinks.gather(-1, count.clamp(max=n2 - 1))
    next_kink = next_kink.masked_fill(count >= n2, torch.inf)
    t = torch.minimum(t, next_kink)
    t = torch.where(count > num_neg_inf, torch.maximum(t, edge), t)
    # Newton steps remove the rounding error of the running sums
    for _ in range(2):
        b = torch.where(is_variable, v.masked_fill(~is_variable, 0) + t * step, fixed)
        free = is_variable & (b > low) & (b < high)
        b = b.clamp(low, high)
        residual = total - (a * b).masked_fill(~is_variable, 0).sum(-1, keepdim=True)
        free_slope = (slope * free).sum(-1, keepdim=True)
        t = t + torch.where(free_slope > 0, residual / free_slope, 0)
    b = torch.where(
        is_variable, v.masked_fill(~is_variable, 0) + t * step, fixed
    ).clamp(low, high)
    return b.to(box.v.dtype)


def _linear_piece(box: _Box, b: Tensor) -> Tensor:
    """Return b as a function of all arguments, by the linear piece on which it lies.

    Its derivative is that of the projection.
    """
    is_variable = (box.weights != 0) & (box.lower < box.upper)
    at_low, at_high = b <= box.lower, b >= box.upper
    free = ~(at_low | at_high)
    bounds = box.lower.masked_fill(~at_low, 0)
    bounds = bounds + box.upper.masked_fill(~at_high | at_low, 0)
    v, fixed_total, a, d = (x.double() for x in (box.v, bounds, box.weights, box.scale))
    v, inside = v.masked_fill(~free, 0), free & is_variable
    step = a / d.square()
    slope = (a * step).masked_fill(~inside, 0).sum(-1, keepdim=True)
    remaining = box.total.double().unsqueeze(-1) - (a * (fixed_total + v)).sum(
        -1, keepdim=True
    )
    t = remaining / slope.masked_fill(slope == 0, 1)
    t = t.masked_fill(slope == 0, 0)
    shifted = (t * step).masked_fill(~inside, 0)
    return (fixed_total + v + shifted).to(box.v.dtype)
