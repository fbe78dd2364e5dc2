"""Parameters and cost bounds of Casimir-SVRG from its theory."""

from dataclasses import dataclass

from smoothsp.optim import _checks
from smoothsp.optim.schedules import CasimirSchedule, svrg_kappa, svrg_steps

# Bounds that need more iterations are never reached.
_MAX_ITERATIONS = 2**60


@dataclass(frozen=True)
class Plan:
    """Parameters of Casimir-SVRG for a target accuracy, and their cost.

    Attributes
    ----------
    mu, kappa, delta, alpha_0
        Values of the first iteration; ``schedule`` has all iterations.
    smoothness
        Smoothness A / mu of the smoothed terms at the first mu.
    outer_iterations
        Number of iterations after which the bound of the corollary is at most eps.
    inner_iterations
        Upper bound of the expected total number of SVRG steps, by Prop. 27, without
        full gradients.
    schedule
        Argument for ``CasimirSVRG(schedule=...)``.

    Examples
    --------
    >>> from smoothsp.optim import CasimirSVRG, plan
    >>> import torch
    >>> p = plan(eps=0.1, n=1000, weight_decay=1e-3, A=4.0, D=0.5, gap=1.0)
    >>> w = torch.nn.Parameter(torch.zeros(2))
    >>> settings = {"smoothness": p.smoothness, "weight_decay": 1e-3}
    >>> CasimirSVRG([w], schedule=p.schedule, **settings).schedule is p.schedule
    True
    """

    mu: float
    kappa: float
    delta: float
    alpha_0: float
    smoothness: float
    outer_iterations: int
    inner_iterations: float
    schedule: CasimirSchedule


def plan(
    eps: float,
    n: int,
    weight_decay: float,
    A: float,
    D: float,
    *,
    gap: float,
    distance: float | None = None,
    mu: float | None = None,
    kappa: float | None = None,
) -> Plan:
    r"""Compute parameters and cost of reaching ``F(w) - min F <= eps``.

    Parameters
    ----------
    eps
        Target accuracy, > 0, for the objective without smoothing.
    n
        Number of terms: examples, or batches.
    weight_decay
        Strong convexity lambda, >= 0.
    A
        Largest squared norm of a term's linear map: ``max |Phi(x, y') - Phi(x, y)|^2``
        for the entropy, the squared spectral norm for l2.
    D
        Range of the smoothing: ``log m`` (entropy over m outputs), 1/2 (l2).
    gap
        Upper bound of ``F(w_0) - min F``, such as ``F(w_0)``, as hinges are not
        negative.
    distance
        Upper bound of ``|w_0 - w*|``; required without weight decay.
    mu
        None: constant smoothing, ``eps / (10 D)``, or ``eps / (20 D)`` without weight
        decay (Prop. 29, 31). A number: initial smoothing, which decreases (Prop. 30,
        32).
    kappa
        None: the rule of Prop. 29 and 31, or with ``mu`` the weight decay. Required
        with ``mu`` and without weight decay.

    Notes
    -----
    The bound is often pessimistic: read it as an order of magnitude.

    Source: Pillutla et al., "A Smoother Way to Train Structured Prediction Models",
    corollaries 17 to 20, propositions 27 and 29 to 32. The rate of SVRG is ``tau = 1 /
    (8 L / lambda + n)``, with its constant, from appendix D.4.

    Examples
    --------
    >>> from smoothsp.optim import plan
    >>> p = plan(eps=0.1, n=1000, weight_decay=1e-3, A=4.0, D=0.5, gap=1.0)
    >>> p.mu, round(p.kappa, 3), p.outer_iterations
    (0.02, 0.199, 94)
    """
    for name, value in (("eps", eps), ("A", A), ("D", D), ("gap", gap)):
        _checks.positive(name, value)
    _checks.count("n", n)
    _checks.nonnegative("weight_decay", weight_decay)
    if distance is not None:
        _checks.nonnegative("distance", distance)
    if mu is not None:
        _checks.positive("mu", mu)
    if kappa is not None:
        _checks.positive("kappa", kappa)
    if distance is None and not weight_decay:
        raise ValueError(
            "distance: expected a bound on |w_0 - w*| without weight decay, got None"
        )
    decreasing = mu is not None
    if mu is None:
        # Prop. 29, 31: the bias of the smoothing, at most c mu D, takes a part of eps.
        mu = eps / ((10 if weight_decay else 20) * D)
    if kappa is None and not decreasing:
        kappa = svrg_kappa(A / mu, n, weight_decay)
    elif kappa is None:
        kappa = weight_decay
    if not kappa:
        raise ValueError(
            "kappa: expected a positive number with mu and without weight decay, "
            "got None"
        )
    schedule = CasimirSchedule(weight_decay, kappa, mu, decreasing)
    outer = _count_outer_iterations(schedule, eps, gap, distance or 0.0, D)
    return Plan(
        mu=schedule.mu_at(1),
        kappa=schedule.kappa_at(1),
        delta=schedule.delta_at(1),
        alpha_0=schedule.alpha_0,
        smoothness=A / schedule.mu_at(1),
        outer_iterations=outer,
        inner_iterations=_count_inner_steps(schedule, n, A, outer),
        schedule=schedule,
    )


def _count_outer_iterations(
    schedule: CasimirSchedule, eps: float, gap: float, distance: float, D: float
) -> int:
    """First iteration whose bound is at most eps, by doubling, then bisection."""

    def is_accurate(k: int) -> bool:
        return schedule.bound(k, gap, distance, D) <= eps

    high = 1
    while not is_accurate(high):
        high *= 2
        if high > _MAX_ITERATIONS:
            raise ValueError(
                f"eps: expected more than {schedule.bound(high, gap, distance, D):g}, "
                f"the limit of the bound with this smoothing, got {eps}"
            )
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_accurate(middle) else (middle, high)
    return high


def _count_inner_steps(
    schedule: CasimirSchedule, n: int, A: float, outer: int
) -> float:
    """Expected SVRG steps of all outer iterations; up to 1000 blocks by midpoints."""
    # Each level of svrg_steps varies slowly with k: midpoints suffice for an estimate.
    block = max(1, outer // 1000)
    total = 0.0
    for first in range(1, outer + 1, block):
        block_size = min(block, outer + 1 - first)
        k = first + block_size // 2
        total += block_size * svrg_steps(
            A / schedule.mu_at(k),
            n,
            schedule.weight_decay,
            schedule.kappa_at(k),
            schedule.delta_at(k),
        )
    return total
