"""Outer loop of Casimir on the tensors that are stored for each parameter.

``iterate`` is ``w_{k-1}``, ``center`` is ``z_{k-1}``, ``older_center`` is ``z_{k-2}``.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from smoothsp.optim._evaluation import joint_norm

ParamStates = Sequence[dict[str, Any]]


def initialise(params: Sequence[Tensor], param_states: ParamStates) -> None:
    """Set ``z_0 = w_0`` for parameters without state."""
    for p, param_state in zip(params, param_states, strict=True):
        if "center" not in param_state:
            param_state["center"] = p.detach().clone()
            param_state["iterate"] = p.detach().clone()


def move_to_start(
    params: Sequence[Tensor], param_states: ParamStates, warm_start: str, factor: float
) -> None:
    """Move the parameters to the start of subproblem k; section 7.3.1."""
    for p, param_state in zip(params, param_states, strict=True):
        if warm_start == "prox-center":
            p.copy_(param_state["center"])
        else:
            p.copy_(param_state["iterate"])
        if warm_start in ("restart", "extrapolation") and "older_center" in param_state:
            p.add_(param_state["center"] - param_state["older_center"], alpha=factor)


def restart(params: Sequence[Tensor], param_states: ParamStates) -> None:
    """Restart the acceleration: set parameters and ``z_{k-1}`` to ``w_{k-1}``."""
    for p, param_state in zip(params, param_states, strict=True):
        p.copy_(param_state["iterate"])
        param_state["center"] = param_state["iterate"].clone()
        param_state.pop("older_center", None)


def extrapolate(
    params: Sequence[Tensor], param_states: ParamStates, beta: float, keep_older: bool
) -> None:
    """Set ``z_k = w_k + beta_k (w_k - w_{k-1})``, eq. (28)."""
    for p, param_state in zip(params, param_states, strict=True):
        if keep_older:
            param_state["older_center"] = param_state["center"]
        # lerp(w_k, w_{k-1}, -beta) = w_k + beta (w_k - w_{k-1}) without a temporary.
        param_state["center"] = torch.lerp(p, param_state["iterate"], -beta)
        param_state["iterate"] = p.detach().clone()


def regulariser(params: Sequence[Tensor], decays: Sequence[float]) -> float:
    """``lambda / 2 |w|^2``, each parameter with its own lambda."""
    return (
        # Square roots first: the joint norm does not overflow where squares do.
        joint_norm([p * decay**0.5 for p, decay in zip(params, decays, strict=True)])
        ** 2
        / 2
    )


def is_accurate(
    params: Sequence[Tensor],
    param_states: ParamStates,
    decays: Sequence[float],
    weight_decay: float,
    kappa: float,
    delta: float,
) -> bool:
    """Sufficient test of the relative accuracy (26), by strong convexity.

    ``|grad|^2 <= (lambda + kappa) delta kappa |w - z|^2`` for the gradient of the
    subproblem at w, where the snapshot is.
    """
    offset = [
        p - param_state["center"]
        for p, param_state in zip(params, param_states, strict=True)
    ]
    loss_gradients = [param_state["full_gradient"] for param_state in param_states]
    decay_gradients = [p * weight for p, weight in zip(params, decays, strict=True)]
    subproblem_gradient = [
        f + d + kappa * a
        for f, d, a in zip(loss_gradients, decay_gradients, offset, strict=True)
    ]
    # For a (lambda + kappa)-strongly convex G, G(w) - min G <= |grad G|^2 / (2 (lambda
    # + kappa)); (26) allows delta kappa / 2 |w - z|^2.
    allowed = (weight_decay + kappa) * delta * kappa * joint_norm(offset) ** 2
    # At the optimum both sides are rounding errors: compare with these.
    eps = max((torch.finfo(p.dtype).eps for p in params), default=0.0)
    rounding = 4 * eps * (joint_norm(loss_gradients) + joint_norm(decay_gradients))
    gradient_norm = joint_norm(subproblem_gradient)
    return gradient_norm**2 <= allowed or gradient_norm <= rounding
