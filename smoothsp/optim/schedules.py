r"""Schedules of Casimir and of the prox-linear loop, as plain floats.

Iteration k of Casimir minimises the smoothed objective plus
``kappa_k / 2 |w - z_{k-1}|^2`` to a relative accuracy ``delta_k``, and extrapolates:

.. math::

    \alpha_k^2 (\kappa_{k+1} + \lambda)
        = (1 - \alpha_k) \alpha_{k-1}^2 (\kappa_k + \lambda) + \alpha_k \lambda,
    \qquad
    \beta_k = \frac{\alpha_{k-1} (1 - \alpha_{k-1}) (\kappa_k + \lambda)}
                   {\alpha_{k-1}^2 (\kappa_k + \lambda) + \alpha_k (\kappa_{k+1} + \lambda)}.

No tensors here: a solver that works on arrays uses the same numbers.

Source: Pillutla et al., "A Smoother Way to Train Structured Prediction Models",
algorithm 4, corollaries 17 to 20, propositions 27, 29 and 31; section 7.3.2.
"""  # noqa: E501

import math
from dataclasses import dataclass
from typing import Protocol

from smoothsp.optim._checks import nonnegative, positive

# Lower bound of mu / mu_1: a long run would underflow in float32.
_MIN_MU_RATIO = 1e-12


class Schedule(Protocol):
    """Interface of schedules for ``CasimirSVRG``; k counts from 1.

    Theorem 16 covers any with ``kappa`` positive and non-decreasing, ``mu``
    non-increasing, ``delta`` in [0, 1) and
    ``alpha_0^2 >= weight_decay / (weight_decay + kappa_1)``.
    """

    @property
    def alpha_0(self) -> float:
        """The first alpha, in (0, 1)."""

    def kappa_at(self, k: int) -> float:
        """Weight of the proximal term of iteration k."""

    def mu_at(self, k: int) -> float:
        """Strength of the smoothing of iteration k; 0 is none."""

    def delta_at(self, k: int) -> float:
        """Relative accuracy required of iteration k."""


@dataclass(frozen=True)
class CasimirSchedule:
    r"""The four schedules with a rate: corollaries 17, 18, 19 and 20.

    With :math:`q = \lambda / (\lambda + \kappa)` and :math:`\eta = 1 - \sqrt q / 2`:

    =========  ======  ==========  ===============  ==================  ===========
    corollary  lambda  kappa_k     mu_k             delta_k             alpha_0
    =========  ======  ==========  ===============  ==================  ===========
    17         > 0     kappa       mu               sqrt q/(2 - sqrt q)  sqrt q
    18         > 0     kappa       mu eta^(k/2)     sqrt q/(2 - sqrt q)  sqrt q
    19         0       kappa       mu               1/(k + 1)^2          (sqrt 5 - 1)/2
    20         0       kappa k     mu/k             1/(k + 1)^2          (sqrt 5 - 1)/2
    =========  ======  ==========  ===============  ==================  ===========

    Parameters
    ----------
    weight_decay
        Strong convexity lambda, >= 0.
    kappa
        Weight of the proximal term, > 0.
    mu
        Strength of the smoothing, >= 0; 0 is no smoothing, plain Catalyst.
    decreasing
        Corollaries 18 and 20 instead of 17 and 19.
    """

    weight_decay: float
    kappa: float
    mu: float = 0.0
    decreasing: bool = False

    def __post_init__(self) -> None:
        nonnegative("weight_decay", self.weight_decay)
        positive("kappa", self.kappa)
        nonnegative("mu", self.mu)

    @property
    def root_q(self) -> float:
        """Square root of lambda / (lambda + kappa)."""
        return math.sqrt(self.weight_decay / (self.weight_decay + self.kappa))

    @property
    def alpha_0(self) -> float:
        """The first alpha, in (0, 1)."""
        # eq. (27) with lambda = 0 and alpha_{-1} = 1: alpha^2 = 1 - alpha.
        return self.root_q if self.weight_decay else (math.sqrt(5) - 1) / 2

    def kappa_at(self, k: int) -> float:
        """Weight of the proximal term of iteration k."""
        # Without strong convexity kappa must grow as mu shrinks (corollary 20).
        harmonic = self.decreasing and not self.weight_decay
        return self.kappa * k if harmonic else self.kappa

    def mu_at(self, k: int) -> float:
        """Strength of the smoothing of iteration k."""
        if not self.decreasing:
            return self.mu
        shrunk = math.pow(1 - self.root_q / 2, k / 2) if self.weight_decay else 1 / k
        return self.mu * max(shrunk, _MIN_MU_RATIO)

    def delta_at(self, k: int) -> float:
        """Relative accuracy required of iteration k."""
        if self.weight_decay:
            return self.root_q / (2 - self.root_q)
        return 1 / (k + 1) ** 2

    def bound(self, k: int, gap: float, distance: float, D: float) -> float:
        """Proved bound on the suboptimality of ``w_k``, without smoothing.

        Parameters
        ----------
        k
            Outer iteration, >= 1.
        gap
            ``F(w_0) - min F``.
        distance
            ``|w_0 - w*|``; read only without weight decay.
        D
            Range of the smoothing: ``log m`` (entropy over m outputs), 1/2 (l2).
        """
        bias = self.mu * D
        if self.weight_decay and not self.decreasing:
            c = (3 - self.root_q) / (1 - self.root_q)
            return c * bias + 2 * (1 - self.root_q / 2) ** k * gap
        if self.weight_decay:
            eta = 1 - self.root_q / 2
            c = 2 - self.root_q + self.root_q / (1 - math.sqrt(eta))
            return math.pow(eta, k / 2) * (2 * gap + bias / (1 - self.root_q) * c)
        start = gap + self.kappa / 2 * distance**2
        if not self.decreasing:
            slack = 1 + 12 / (k + 2) + 30 / (k + 2) ** 2
            return 8 / (k + 2) ** 2 * start + bias * slack
        rate = (math.log(k + 1) if k > 1 else 1.0) / (k + 1)
        return rate * (2 * start + 27 * bias)


def next_alpha(
    alpha: float, kappa: float, next_kappa: float, weight_decay: float
) -> float:
    """``alpha_k`` from ``alpha_{k-1}``, ``kappa_k`` and ``kappa_{k+1}``: eq. (27).

    The positive root of ``x^2 + b x - c = 0`` as ``2 c / (b + sqrt(b^2 + 4 c))``, which
    has no cancellation for b > 0.
    """
    c = (weight_decay + kappa) / (weight_decay + next_kappa) * alpha**2
    b = c - weight_decay / (weight_decay + next_kappa)
    return 2 * c / (b + math.sqrt(b * b + 4 * c))


def extrapolation(
    alpha: float,
    alpha_next: float,
    kappa: float,
    next_kappa: float,
    weight_decay: float,
) -> float:
    """``beta_k`` of ``z_k = w_k + beta_k (w_k - w_{k-1})``: eq. (29).

    ``alpha`` is ``alpha_{k-1}``, ``alpha_next`` is ``alpha_k``.
    """
    prox_weight = alpha * (kappa + weight_decay)
    return (
        prox_weight
        * (1 - alpha)
        / (alpha * prox_weight + alpha_next * (next_kappa + weight_decay))
    )


def svrg_kappa(smoothness: float, num_batches: int, weight_decay: float) -> float:
    """Proximal weight for SVRG as inner solver.

    ``L/n - lambda`` if ``L/n > 4 lambda``, else ``lambda``; without weight decay
    ``L/(n + 1)``. Here L is the smoothness of the terms, and n their number.

    Source: propositions 29 and 31.
    """
    positive("smoothness", smoothness)
    positive("num_batches", num_batches)
    if not weight_decay:
        return smoothness / (num_batches + 1)
    smoothness_per_batch = smoothness / num_batches
    return (
        smoothness_per_batch - weight_decay
        if smoothness_per_batch > 4 * weight_decay
        else weight_decay
    )


def svrg_steps(
    smoothness: float, n: int, weight_decay: float, kappa: float, delta: float
) -> float:
    """Upper bound of the expected number of SVRG steps of a subproblem.

    The smoothness is that of the n terms alone; ``delta`` is the relative accuracy.

    Source: proposition 27; the rate of SVRG is ``tau = 1 / (8 L / lambda + n)``, with
    its constant, from appendix D.4.
    """
    for name, value in (("smoothness", smoothness), ("n", n), ("kappa", kappa)):
        positive(name, value)
    nonnegative("weight_decay", weight_decay)
    positive("delta", delta)
    smooth = smoothness + weight_decay + kappa
    ratio = smooth / (weight_decay + kappa)
    inverse_tau = 8 * ratio + n
    C = ratio * (1 + n * ratio / inverse_tau)
    relative = smooth / (kappa * delta)
    return inverse_tau * math.log(8 * C * inverse_tau * relative) + 1


def satisfies_theorem_16(schedule: Schedule, k: int, weight_decay: float) -> bool:
    """Whether theorem 16 covers iteration k of a schedule and the step to k + 1."""
    kappa, mu, delta = schedule.kappa_at(k), schedule.mu_at(k), schedule.delta_at(k)
    if k == 1:
        min_alpha_squared = weight_decay / (weight_decay + kappa)
        # alpha_0 = sqrt(q) is rounded, so that its square may be below q.
        if not min_alpha_squared * (1 - 1e-12) <= schedule.alpha_0**2 < 1:
            return False
    is_nondecreasing = 0 < kappa <= schedule.kappa_at(k + 1)
    return is_nondecreasing and mu >= schedule.mu_at(k + 1) >= 0 and 0 <= delta < 1


@dataclass(frozen=True)
class ProxLinearSchedule:
    """``mu_k``, ``L_k`` and ``eps_k`` of the prox-linear loop; k counts from 1.

    Adaptive: ``mu / k`` and ``k L_0``. Otherwise ``mu`` and ``L_0``. The tolerance of
    the subproblem is ``eps_0 / k`` in both.

    Source: section 7.3.2 and proposition 37.
    """

    mu: float = 0.0
    smoothness: float | None = None
    tolerance: float | None = None
    adaptive: bool = True

    def mu_at(self, k: int) -> float:
        """Strength of the smoothing of subproblem k."""
        return self.mu / k if self.adaptive else self.mu

    def smoothness_at(self, k: int) -> float | None:
        """Estimate of the smoothness of subproblem k."""
        if self.smoothness is None or not self.adaptive:
            return self.smoothness
        return self.smoothness * k

    def tolerance_at(self, k: int) -> float | None:
        """Accuracy required of subproblem k."""
        return None if self.tolerance is None else self.tolerance / k


def subgradient_rate(decay: str, t: int, t_0: int = 1) -> float:
    """Factor of the t-th step of a subgradient method, t from 1.

    ``"constant"``: 1. ``"inverse-sqrt"``: ``t^-1/2``. ``"inverse"``: ``1/t``.
    ``"step"``: ``1 / (1 + floor(t / t_0))``.

    Source: sections 7.2 and 7.3.
    """
    if decay == "inverse-sqrt":
        return 1 / math.sqrt(t)
    if decay == "inverse":
        return 1 / t
    if decay == "step":
        return 1 / (1 + t // t_0)
    return 1.0
