"""Schedule of Casimir-SVRG: kappa, mu and step sizes of parameter groups."""

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
    """Smallest weight decay of the groups: strong convexity of the objective."""
    return float(min(group["weight_decay"] for group in groups))


def choose_schedule(
    groups: Groups,
    num_batches: int | None,
    kappa: float | None,
    mu: float,
    decreasing: bool,
) -> tuple[CasimirSchedule, int | None]:
    """Choose a schedule; also return num_batches if kappa depends on it."""
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
    """Raise for a group without lr and without smoothness."""
    if group["smoothness"] is not None:
        _checks.positive("smoothness", group["smoothness"])
    elif group["derived_lr"] is not None:
        raise ValueError(
            "lr: expected a step size, or smoothness to derive it from; got neither"
        )


def require_same_convexity(groups: Groups, weight_decay: float) -> None:
    """Raise if the strong convexity differs from that of the schedule."""
    current = min_weight_decay(groups)
    if current != weight_decay:
        raise ValueError(
            f"weight_decay: expected {weight_decay:g} as the smallest one of all "
            "groups, from which the sequences of CasimirSVRG follow, got "
            f"{current:g}; build a new CasimirSVRG, which starts from these parameters"
        )


def require_num_batches(num_batches: int | None, terms: int, steps: int) -> None:
    """Raise if num_batches differs by over 10 % from snapshot and epoch.

    Snapshots may use larger batches than steps: one of both must agree. A deviation of
    10 % changes kappa by about 10 %.
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
    """Step size of a group: the derived one times the factor of lr schedulers."""
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
    # The smoothness of a smoothed loss is proportional to 1 / mu.
    smoothness_ratio = schedule.mu_at(1) / mu if mu else 1.0
    for group in groups:
        if group["derived_lr"] is None:
            continue
        smoothness = group["smoothness"] * smoothness_ratio
        group["derived_lr"] = 1 / (smoothness + group["weight_decay"] + kappa)
        # Schedulers set lr relative to its value at their construction.
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
    """Epochs of the current outer iteration; the first one has ``epochs``.

    When mu and the derived step sizes shrink, the number grows as the step counts of
    proposition 27. With step sizes of the user it is constant.
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
