"""Which schedule a Casimir run follows, and what follows it: kappa, mu, step sizes."""

from typing import Any

from smoothsp.optim import _checks
from smoothsp.optim.schedules import CasimirSchedule, Schedule, svrg_kappa

Groups = list[dict[str, Any]]


def strong_convexity(groups: Groups) -> float:
    """The smallest weight decay: what the whole objective surely has."""
    return float(min(group["weight_decay"] for group in groups))


def choose(
    groups: Groups,
    num_batches: int | None,
    kappa: float | None,
    mu: float,
    decreasing: bool,
) -> CasimirSchedule:
    """One of the four schedules, with the kappa given or by its rule."""
    decay = strong_convexity(groups)
    if kappa is None and decreasing and decay:
        kappa = decay
    elif kappa is None:
        smoothness = [group["smoothness"] for group in groups]
        if num_batches is None or None in smoothness:
            raise ValueError(
                "kappa: expected a number, or smoothness and num_batches for the rule "
                "that gives it; got neither"
            )
        _checks.count("num_batches", num_batches)
        kappa = svrg_kappa(max(smoothness), num_batches, decay)
    return CasimirSchedule(decay, kappa, mu, decreasing)


def check_group(group: dict[str, Any]) -> None:
    """Refuse a group whose step size nothing determines."""
    if group["smoothness"] is not None:
        _checks.positive("smoothness", group["smoothness"])
    elif group["derived_lr"]:
        raise ValueError(
            "lr: expected a step size, or smoothness to derive it from; got neither"
        )


def follow(
    schedule: Schedule, progress: dict[str, Any], groups: Groups, smoothing: Any
) -> None:
    """Set kappa, mu and step sizes for the outer iteration in progress."""
    k = progress["outer"] + 1
    mu, kappa = schedule.mu_at(k) * progress["mu_factor"], schedule.kappa_at(k)
    progress.update(mu=mu, kappa=kappa)
    if smoothing is not None and mu:
        smoothing.mu = mu
    # the smoothness of a smoothed loss is inverse to mu
    rougher = schedule.mu_at(1) / mu if mu else 1.0
    for group in groups:
        if group["derived_lr"]:
            smoothness = group["smoothness"] * rougher
            group["lr"] = 1 / (smoothness + group["weight_decay"] + kappa)
