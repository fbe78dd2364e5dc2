"""Schedule of a Casimir run: kappa, mu and step sizes."""

from typing import Any

from smoothsp.optim import _checks
from smoothsp.optim.schedules import (
    CasimirSchedule,
    Schedule,
    svrg_kappa,
    svrg_steps,
)

Groups = list[dict[str, Any]]


def min_weight_decay(groups: Groups) -> float:
    """The smallest weight decay: what the whole objective surely has."""
    return float(min(group["weight_decay"] for group in groups))


def choose_schedule(
    groups: Groups,
    num_batches: int | None,
    kappa: float | None,
    mu: float,
    decreasing: bool,
) -> tuple[CasimirSchedule, int | None]:
    """One of the four schedules, and the number of batches if kappa depends on it."""
    decay = min_weight_decay(groups)
    if kappa is None and decreasing and decay:
        kappa = decay
    if kappa is not None:
        num_batches = None
    else:
        smoothness = [group["smoothness"] for group in groups]
        if num_batches is None or None in smoothness:
            raise ValueError(
                "kappa: expected a number, or smoothness and num_batches for the rule "
                "that gives it; got neither"
            )
        _checks.count("num_batches", num_batches)
        kappa = svrg_kappa(max(smoothness), num_batches, decay)
    return CasimirSchedule(decay, kappa, mu, decreasing), num_batches


def check_group(group: dict[str, Any]) -> None:
    """Refuse a group whose step size nothing determines."""
    if group["smoothness"] is not None:
        _checks.positive("smoothness", group["smoothness"])
    elif group["derived_lr"] is not None:
        raise ValueError(
            "lr: expected a step size, or smoothness to derive it from; got neither"
        )


def require_same_convexity(groups: Groups, weight_decay: float) -> None:
    """Refuse another strong convexity than the sequences were chosen for."""
    current = min_weight_decay(groups)
    if current != weight_decay:
        raise ValueError(
            f"weight_decay: expected {weight_decay:g} as the smallest one of all "
            "groups, from which the sequences of CasimirSVRG follow, got "
            f"{current:g}; build a new CasimirSVRG, which starts from these parameters"
        )


def require_num_batches(num_batches: int | None, terms: int, steps: int) -> None:
    """Refuse a number of batches that neither a snapshot nor an epoch's steps had.

    Both are compared, as snapshots may be taken in larger batches. Batches of varying
    size vary in number; kappa feels no tenth of it.
    """
    if num_batches is None or not terms or not steps:
        return
    if all(
        10 * abs(observed - num_batches) > num_batches for observed in (terms, steps)
    ):
        raise ValueError(
            f"num_batches: expected {terms}, as the snapshot had, for the rule that "
            f"gives kappa, got {num_batches}; give that number, or kappa instead"
        )


def compute_step_size(group: dict[str, Any]) -> float:
    """Step size: the derived one, times what ``lr`` has been multiplied by."""
    if group["derived_lr"] is None:
        return float(group["lr"])
    return float(group["lr"] / group["first_lr"] * group["derived_lr"])


def apply_schedule(
    schedule: Schedule, progress: dict[str, Any], groups: Groups, smoothing: Any
) -> None:
    """Set kappa, mu and step sizes for the outer iteration in progress."""
    k = progress["outer"] + 1
    mu, kappa = schedule.mu_at(k) * progress["mu_factor"], schedule.kappa_at(k)
    progress.update(mu=mu, kappa=kappa)
    if smoothing is not None and mu:
        smoothing.mu = mu
    # the smoothness of a smoothed loss is inverse to mu
    smoothness_ratio = schedule.mu_at(1) / mu if mu else 1.0
    for group in groups:
        if group["derived_lr"] is None:
            continue
        smoothness = group["smoothness"] * smoothness_ratio
        group["derived_lr"] = 1 / (smoothness + group["weight_decay"] + kappa)
        # schedulers set lr relative to where they found it, so it has to stay there
        if "initial_lr" not in group:
            group["lr"] = (
                compute_step_size(group) if group["first_lr"] else group["derived_lr"]
            )
            group["first_lr"] = group["derived_lr"]


def epochs_needed(
    schedule: Schedule,
    progress: dict[str, Any],
    groups: Groups,
    epochs: int,
    batches: int,
) -> int:
    """Epochs of the outer iteration in progress, where the first one makes ``epochs``.

    They grow as proposition 27 says when mu shrinks, and the steps with it, as shorter
    steps get less far. Steps that are given do not shrink.
    """
    k, decay = progress["outer"] + 1, min_weight_decay(groups)
    first = schedule.mu_at(1)
    smoothness_ratio = first / progress["mu"] if progress["mu"] else 1.0
    derived_smoothness = [
        g["smoothness"] for g in groups if g["derived_lr"] is not None
    ]
    if smoothness_ratio <= 1 or not derived_smoothness:
        return epochs
    smoothness, delta = max(derived_smoothness), schedule.delta_at(k)
    steps_now = svrg_steps(
        smoothness * smoothness_ratio, batches, decay, schedule.kappa_at(k), delta
    )
    steps_first = svrg_steps(smoothness, batches, decay, schedule.kappa_at(1), delta)
    return max(epochs, round(epochs * steps_now / steps_first))
