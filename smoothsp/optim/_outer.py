"""The tensors of Casimir's outer loop, kept for each parameter.

``iterate`` is ``w_{k-1}``, ``center`` is ``z_{k-1}``, ``older_center`` is ``z_{k-2}``.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from smoothsp.optim._evaluation import norm

Kept = Sequence[dict[str, Any]]


def begin(params: Sequence[Tensor], kept: Kept) -> None:
    """``z_0 = w_0`` for the parameters that are new."""
    for p, one in zip(params, kept, strict=True):
        if "center" not in one:
            one["center"] = p.detach().clone()
            one["iterate"] = p.detach().clone()


def start(params: Sequence[Tensor], kept: Kept, warm_start: str, factor: float) -> None:
    """Move to where the subproblem of iteration k starts; section 7.3.1."""
    for p, one in zip(params, kept, strict=True):
        if warm_start == "prox-center":
            p.copy_(one["center"])
        else:
            p.copy_(one["iterate"])
        if warm_start in ("restart", "extrapolation") and "older_center" in one:
            p.add_(one["center"] - one["older_center"], alpha=factor)


def restart(params: Sequence[Tensor], kept: Kept) -> None:
    """Begin anew at ``w_{k-1}``: there the parameters go, and ``z_{k-1}``."""
    for p, one in zip(params, kept, strict=True):
        p.copy_(one["iterate"])
        one["center"] = one["iterate"].clone()
        one.pop("older_center", None)


def extrapolate(
    params: Sequence[Tensor], kept: Kept, beta: float, keep_older: bool
) -> None:
    """``z_k = w_k + beta_k (w_k - w_{k-1})``: eq. (28)."""
    for p, one in zip(params, kept, strict=True):
        if keep_older:
            one["older_center"] = one["center"]
        one["center"] = torch.lerp(p, one["iterate"], -beta)
        one["iterate"] = p.detach().clone()


def regulariser(params: Sequence[Tensor], decays: Sequence[float]) -> float:
    """``lambda / 2 |w|^2``, each parameter with its own lambda."""
    return (
        norm([p * decay**0.5 for p, decay in zip(params, decays, strict=True)]) ** 2 / 2
    )


def is_accurate(
    params: Sequence[Tensor],
    kept: Kept,
    decays: Sequence[float],
    weight_decay: float,
    kappa: float,
    delta: float,
) -> bool:
    """Sufficient test of the relative accuracy (26), by strong convexity.

    ``|grad|^2 <= (lambda + kappa) delta kappa |w - z|^2`` for the gradient of the
    subproblem at w, where the snapshot is.
    """
    apart = [p - one["center"] for p, one in zip(params, kept, strict=True)]
    loss = [one["full_gradient"] for one in kept]
    decay = [p * weight for p, weight in zip(params, decays, strict=True)]
    total = [f + d + kappa * a for f, d, a in zip(loss, decay, apart, strict=True)]
    allowed = (weight_decay + kappa) * delta * kappa * norm(apart) ** 2
    # at the optimum both sides are rounding errors
    smallest = max((torch.finfo(p.dtype).eps for p in params), default=0.0)
    rounding = 4 * smallest * (norm(loss) + norm(decay))
    size = norm(total)
    return size**2 <= allowed or size <= rounding
