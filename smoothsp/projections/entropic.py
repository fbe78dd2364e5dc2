"""Projection onto a capped simplex in relative entropy."""

import torch
from jaxtyping import Float
from torch import Tensor

from smoothsp.projections._arguments import as_vectors, broadcast_argument, require_all


def project_capped_simplex_kl(
    v: Float[Tensor, "*batch n"],
    upper: Tensor | float = torch.inf,
    total: Tensor | float = 1.0,
) -> Float[Tensor, "*batch n"]:
    r"""Compute a softmax with an upper bound on each entry.

    .. math:: \arg\min_b \sum_i b_i \log b_i - \langle v, b \rangle
        = \arg\min_b \mathrm{KL}(b \,\|\, e^v), \quad
        0 \le b \le u, \; \sum_i b_i = t

    Parameters
    ----------
    v
        ``(*batch, n)``, float32 or float64: logarithms of the point to project, which
        need not be normalised. An entry of ``-inf`` becomes 0.
    upper
        The bounds u, > 0: a number, or a tensor that can be broadcast to
        ``(*batch, n)``. ``inf`` everywhere gives ``t softmax(v)``.
    total
        t, > 0: a number, or ``(*batch)``. All three arguments receive gradients.

    Returns
    -------
    Tensor
        ``(*batch, n)``, ``min(u, exp(v - s))`` for one number s per row. Entries at a
        bound are exactly there.

    Raises
    ------
    TypeError
        For a dtype other than float32 and float64, and dtypes that differ.
    ValueError
        For NaN and +inf in v, and bounds and totals that are not positive. Also for a
        total that exceeds the sum of the bounds of the entries above -inf.

    Notes
    -----
    O(n log n) per row. Ratios to the bounds are sorted, and sums are computed in log
    space, so that tiny entries stay accurate.

    Source: the problem is eq. (51) of Zhang, Saha and Vishwanathan, "Regularized Risk
    Minimization by Nesterov's Accelerated Gradient Methods", for LPBoost with soft
    margins. The algorithm is not in the paper.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.projections import project_capped_simplex_kl
    >>> v = torch.tensor([0.0, -1.0, -1.0])
    >>> project_capped_simplex_kl(v, 0.5).tolist()
    [0.5, 0.25, 0.25]
    """
    v = as_vectors(v)
    upper = broadcast_argument("upper", upper, v, v.shape)
    total = broadcast_argument("total", total, v, v.shape[:-1])
    require_all(upper > 0, "upper", upper, "positive numbers")
    require_all(torch.isfinite(total) & (total > 0), "total", total, "positive numbers")
    require_all(v < torch.inf, "v", v, "no NaN and no +inf")
    with torch.no_grad():
        full, feasible = _at_upper_bound(v.double(), upper.double(), total.double())
    description = "at most the sum of upper, where v is above -inf"
    require_all(feasible, "total", total, description)
    remaining = total - upper.masked_fill(~full, 0).sum(-1)
    free = ~full & (v > -torch.inf)
    has_mass = free.any(-1, keepdim=True)
    # rows without a free entry attain the total at their bounds
    logs = v.masked_fill(~free, -torch.inf).masked_fill(~has_mass, 0)
    inside = logs.softmax(-1) * remaining.clamp(min=0).unsqueeze(-1)
    inside = torch.minimum(inside.masked_fill(~free, 0), upper)
    return torch.where(full, upper, inside)


def _at_upper_bound(v: Tensor, upper: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
    """Return the entries at their bound, and whether bounds can reach the total."""
    total = total.unsqueeze(-1)
    real = v > -torch.inf
    # a shift of v does not change the point, and bounds keep their digits
    top = v.amax(-1, keepdim=True).clamp(min=torch.finfo(v.dtype).min)
    v = (v - top).clamp(min=torch.finfo(v.dtype).min).masked_fill(~real, -torch.inf)
    caps = upper.masked_fill(~real, 0)
    cap_sum = caps.sum(-1, keepdim=True)
    slack = 8 * torch.finfo(torch.float32).eps * total
    feasible = (cap_sum >= total - slack).squeeze(-1)
    # exp(v - s) = u at s = v - log u: entries reach their bounds in this order
    excess = v - upper.log()
    ranked, order = excess.sort(dim=-1, descending=True)
    sorted_caps, logs = caps.gather(-1, order), v.gather(-1, order)
    # total and mass that remain if the first k entries are at their bounds
    sum_before = sorted_caps.cumsum(-1) - sorted_caps
    # inf - inf, past an entry without a bound
    sum_before = sum_before.masked_fill(sum_before.isnan(), torch.inf)
    # log of the sum of exp(v) from entry k on, a suffix sum
    mass = logs.flip(-1).logcumsumexp(-1).flip(-1)
    remaining = total - sum_before
    # entry k is at its bound if its part of the remaining total would exceed it
    log_value = remaining.clamp(min=0).log() + (logs - mass)
    exceeds_cap = (
        (remaining > 0) & (log_value >= sorted_caps.log()) & (ranked > -torch.inf)
    )
    is_capped = exceeds_cap.cumprod(-1).bool()
    return torch.zeros_like(is_capped).scatter(-1, order, is_capped), feasible
