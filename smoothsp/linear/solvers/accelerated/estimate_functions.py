r"""Accelerated gradient methods by estimate functions, with infinite or one memory.

Both minimise :math:`J = f + \Psi`, f smooth and Psi simple, by exact minima of a lower
model of J. Infinite memory averages all tangents; one memory keeps a single Bregman
divergence. Sums are divided by the paper's :math:`A_k`, which grows exponentially for
strongly convex J: the code stores :math:`1 / A_k`.

The Lipschitz constant L is that of f in units of the divergence,
:math:`f(x) \le f(y) + \langle \nabla f(y), x - y \rangle + L \, D(x, y)`. If adaptive,
each iteration first tries a smaller L and tests the inequality of the proof.

Source: Zhang, Saha and Vishwanathan, "Regularized Risk Minimization by Nesterov's
Accelerated Gradient Methods", algorithms 1 to 4; the roots in closed form, the
normalisation and :attr:`SimpleTerm.mixes` are not in the paper.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.solvers.accelerated.prox_terms import Point, SimpleTerm

Floats = NDArray[np.float64]
State = dict[str, NDArray[Any]]

# Factor on L after a failed test; divisor of L at the start of an iteration.
L_INCREASE, L_DECREASE = 2.0, 1.5
# Tolerance of the test, relative to its terms: their rounding error.
ROUNDING_TOL = 1e-12
# Trials of L in one iteration; after them the run has stalled by rounding.
MAX_TRIALS = 60


class Smooth(Protocol):
    """Convex differentiable function f."""

    def value(self, x: Floats) -> float:
        """Value f(x)."""

    def value_and_gradient(self, x: Floats) -> tuple[float, Floats, float]:
        """Value f(x), gradient, and offset of a tangent at 0 for lower bounds.

        The offset is ``f(x) - <gradient, x>``, or larger if f approximates another
        function from below: bounds then hold for that function.
        """


class Model(NamedTuple):
    r"""Average of tangents of f, a lower model :math:`\langle G, x \rangle + c`.

    If f is l1-strongly convex, each tangent gains :math:`l_1` times a divergence. Their
    average adds :math:`l_1 (d(x) - \langle B, x \rangle + e)`. With ``offset`` in place
    of c the model bounds the function that f approximates from below.
    """

    G: Floats
    c: float
    B: Floats
    e: float
    offset: float

    def interpolate(self, weight: float, other: "Model") -> "Model":
        """Return (1 - weight) times this model plus weight times another."""
        remaining = 1 - weight
        return Model(
            remaining * self.G + weight * other.G,
            remaining * self.c + weight * other.c,
            remaining * self.B + weight * other.B,
            remaining * self.e + weight * other.e,
            remaining * self.offset + weight * other.offset,
        )


def divergence(z: Point, y: Point) -> float:
    """Bregman divergence ``D(z, y)`` of d."""
    return z.d - y.d - float(y.mirror @ (z.x - y.x))


class Iteration:
    """Base of the two methods: the tangent at a point, trials of L, the bound.

    Parameters
    ----------
    f, simple
        Smooth and simple part of J.
    start
        Point in the domain of the simple term.
    lipschitz
        L, or the first value tried.
    adaptive
        Whether to search for L.
    strong_convexity
        Strong convexity l1 of f relative to d.
    """

    k = evaluations = 0

    def __init__(
        self,
        f: Smooth,
        simple: SimpleTerm,
        start: Point,
        lipschitz: float,
        adaptive: bool = True,
        strong_convexity: float = 0.0,
    ) -> None:
        self.f, self.simple, self.adaptive = f, simple, adaptive
        self.l1, self.l2 = strong_convexity, simple.strong
        self.lam = self.l1 + self.l2
        # l2 of Psi counts at mixtures only if Psi can be evaluated there.
        self.mixture_l2 = self.l2 if simple.mixes else 0.0
        self.L = self._clamp_lipschitz(lipschitz)
        self.prox_centre, self.x, self.psi = start, start.x, start.psi
        self.z = start
        none = np.zeros(0)
        self.model = Model(np.zeros_like(start.x), 0.0, none, 0.0, -math.inf)
        self.has_stalled = False

    def step(self) -> None:
        """Compute x, z and the model of the next iteration."""
        raise NotImplementedError

    def _clamp_lipschitz(self, L: float) -> float:
        # kappa = L - l1 is a divisor, and L >= l1 holds for every l1-strongly convex f.
        return max(L, self.l1 * (1 + 1e-6), 1e-300)

    def _tangent(self, u: Floats) -> tuple[Model, float, Point | None]:
        """Tangent model of f at u, f(u), and the point u if f is strongly convex."""
        value, gradient, offset = self.f.value_and_gradient(u)
        self.evaluations += 1
        c = value - float(gradient @ u)
        if self.l1 == 0:
            return Model(gradient, c, np.zeros(0), 0.0, offset), value, None
        point = self.simple.at(u)
        # d(x) - <grad d(u), x> + lift is the divergence D(x, u).
        lift = float(point.mirror @ u) - point.d
        return Model(gradient, c, point.mirror, lift, offset), value, point

    def _mix(self, weight: float, z: Point) -> tuple[Floats, float]:
        """Convex combination of x and z, and Psi or its bound by convexity there."""
        x = (1 - weight) * self.x + weight * z.x
        if self.simple.mixes:
            return x, self.simple.at(x).psi
        return x, (1 - weight) * self.psi + weight * z.psi

    def _passes_test(
        self, x: Floats, psi: float, bound: float, magnitude: float
    ) -> bool:
        """Whether J(x) <= bound up to rounding of terms of this magnitude."""
        if not self.adaptive:
            return True
        value = self.f.value(x) + psi
        self.evaluations += 1
        return bool(value <= bound + ROUNDING_TOL * (abs(value) + magnitude))

    def _search_lipschitz(self, attempt: Callable[[float], bool]) -> None:
        if not self.adaptive:
            attempt(self.L)
            return
        L = self._clamp_lipschitz(self.L / L_DECREASE if self.k else self.L)
        for _ in range(MAX_TRIALS):
            if attempt(L):
                self.L = L
                return
            L *= L_INCREASE
        # No L passes the test: decreases are below rounding error.
        self.has_stalled = True

    def lower_bound(self) -> float:
        r"""Lower bound of the minimum of J: the minimum of the model plus Psi.

        It is :math:`D(\alpha_k)` of theorems 10 and 18 for averaged dual variables, or
        less if the dual is not linear in the averaged quantities.
        """
        G, _, B, e, offset = self.model
        if self.l1 == 0:
            # min <G, x> + Psi(x) = -Psi^*(-G)
            return offset - self.simple.conjugate(-G)
        p = self.l1 * B - G
        maximiser = self.simple.solve(p, self.l1)
        return (
            offset
            + self.l1 * (maximiser.d + e)
            - float(p @ maximiser.x)
            + maximiser.psi
        )

    def state(self) -> State:
        """Arrays from which ``load`` continues the run."""
        offset, start = self.model.offset, self.prox_centre
        return {
            "start": start.x.copy(),
            "start_mirror": start.mirror.copy(),
            "start_numbers": np.array([start.d, start.psi]),
            "x": self.x.copy(),
            "z": self.z.x.copy(),
            "mirror": self.z.mirror.copy(),
            "G": self.model.G.copy(),
            "B": self.model.B.copy(),
            "numbers": np.array(
                [
                    self.L,
                    self.psi,
                    self.z.d,
                    self.z.psi,
                    self.model.c,
                    self.model.e,
                    offset,
                ]
            ),
            "counts": np.array([self.k, self.evaluations]),
        }

    def load(self, state: State) -> None:
        """Restore the arrays of ``state``."""
        L, self.psi, d, psi, c, e, offset = (float(x) for x in state["numbers"])
        self.L, self.x = L, state["x"].copy()
        self.z = Point(state["z"].copy(), state["mirror"].copy(), d, psi)
        self.model = Model(state["G"].copy(), c, state["B"].copy(), e, offset)
        start = state["start"].copy(), state["start_mirror"].copy()
        self.prox_centre = Point(*start, *(float(x) for x in state["start_numbers"]))
        self.k, self.evaluations = (int(x) for x in state["counts"])


class InfiniteMemory(Iteration):
    r"""Algorithms 1 and 2: all tangents are averaged.

    z minimises the estimate function
    :math:`\mathrm{model}(x) + D(x, x_0) / A_k + \Psi(x)`.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # 1 / A_k
        self.inverse_weight = math.inf

    def step(self) -> None:
        """Compute x, z and the model of the next iteration."""
        self._search_lipschitz(self._try_step)
        self.k += 1

    def _try_step(self, L: float) -> bool:
        ratio, weight_of_tangent, inverse = self._step_weights(L)
        u = self._gradient_point(ratio, weight_of_tangent)
        tangent, _, _ = self._tangent(u)
        model = (
            tangent
            if self.k == 0
            else self.model.interpolate(weight_of_tangent, tangent)
        )
        weight = inverse + self.l1
        p = inverse * self.prox_centre.mirror - model.G
        if self.l1:
            p = p + self.l1 * model.B
        z = self.simple.solve(p, weight)
        x, psi = self._mix(weight_of_tangent, z)
        # Minimum of the estimate function at z; J(x) must not exceed it.
        terms = [inverse * divergence(z, self.prox_centre), z.psi]
        terms += [float(model.G @ z.x), model.c]
        if self.l1:
            terms.append(self.l1 * (z.d - float(model.B @ z.x) + model.e))
        magnitude = sum(abs(t) for t in terms)
        if not self._passes_test(x, psi, sum(terms), magnitude):
            return False
        self.model, self.z, self.x, self.psi = model, z, x, psi
        self.inverse_weight, self.estimate = inverse, sum(terms)
        return True

    def _step_weights(self, L: float) -> tuple[float, float, float]:
        """``a / A``, ``a / (A + a)`` and ``1 / (A + a)`` of the next step."""
        kappa = L - self.l1
        if self.k == 0:
            return math.inf, 1.0, kappa
        # ``ratio`` is the positive root of kappa r^2 - 2 half r - (1 / A + lam) = 0:
        # the largest a / A for which the proof bounds J(x) by the estimate function.
        half = (self.inverse_weight + self.lam + self.l1 + self.mixture_l2) / 2
        root = math.sqrt(half * half + kappa * (self.inverse_weight + self.lam))
        ratio = (half + root) / kappa
        return ratio, ratio / (1 + ratio), self.inverse_weight / (1 + ratio)

    def _gradient_point(self, ratio: float, weight: float) -> Floats:
        """Point of the next gradient: a mixture of x and z."""
        if self.k == 0:
            return self.prox_centre.x
        t1, t2, t3 = (
            self.inverse_weight + self.lam,
            self.l1 * ratio,
            self.mixture_l2 * weight,
        )
        t = t1 + t2 + t3
        to_z, to_x = ratio * t1, t + t3 * ratio
        u: Floats = (to_z * self.z.x + to_x * self.x) / (t * (1 + ratio) - t2 * ratio)
        return u

    def state(self) -> State:
        """Arrays from which ``load`` continues the run."""
        return {**super().state(), "inverse": np.array(self.inverse_weight)}

    def load(self, state: State) -> None:
        """Restore the arrays of ``state``."""
        super().load(state)
        self.inverse_weight = float(state["inverse"])


class OneMemory(Iteration):
    r"""Algorithms 3 and 4: one divergence replaces the past tangents.

    The estimate function is :math:`e + c D(x, z)`, with ``estimate`` e and
    ``divergence_weight`` c.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.divergence_weight = self.estimate = math.nan
        # prod_i (1 - a_i): weight of the first tangent in the average
        self.first_weight = 1.0

    def step(self) -> None:
        """Compute x, z and the model of the next iteration."""
        self._search_lipschitz(self._try_first_step if self.k == 0 else self._try_step)
        self.k += 1

    def _try_first_step(self, L: float) -> bool:
        start = self.prox_centre
        tangent, value, _ = self._tangent(start.x)
        z = self.simple.solve(L * start.mirror - tangent.G, L)
        terms = [L * divergence(z, start), z.psi, value]
        terms.append(float(tangent.G @ (z.x - start.x)))
        magnitude = sum(abs(t) for t in terms)
        if not self._passes_test(z.x, z.psi, sum(terms), magnitude):
            return False
        self.model, self.z, self.x, self.psi = tangent, z, z.x, z.psi
        self.divergence_weight, self.estimate, self.first_weight = (
            L + self.l2,
            sum(terms),
            1.0,
        )
        return True

    def _try_step(self, L: float) -> bool:
        l1, c = self.l1, self.divergence_weight
        half = (c - self.mixture_l2 - l1) / 2
        root = math.sqrt(half * half + (L + self.mixture_l2) * c)
        # Positive root of (L + l2) a^2 + 2 half a - c = 0. Of the two equal forms, each
        # branch takes the one without cancellation.
        a = c / (half + root) if half > 0 else (root - half) / (L + self.mixture_l2)
        a = min(a, 1.0)
        t1, t2, t3 = (1 - a) * c, l1 * a, self.mixture_l2 * a * (1 - a)
        t = t1 + t2 + t3
        x_weight, z_weight = t - (t1 + t2) * a, t1 * a
        # These weights of x and z cancel the linear terms of the proof.
        u = (x_weight * self.x + z_weight * self.z.x) / (t - t2 * a)
        tangent, value, tangent_point = self._tangent(u)
        weight = t1 + a * l1
        p = t1 * self.z.mirror - a * tangent.G
        if tangent_point is not None:
            p = p + a * l1 * tangent_point.mirror
        z = self.simple.solve(p, weight, a)
        x, psi = self._mix(a, z)
        terms = [(1 - a) * self.estimate, t1 * divergence(z, self.z)]
        terms += [a * value, a * float(tangent.G @ (z.x - u)), a * z.psi]
        if tangent_point is not None:
            terms.append(a * l1 * divergence(z, tangent_point))
        size = sum(abs(t) for t in terms)
        if not self._passes_test(x, psi, sum(terms), size):
            return False
        self.model = self.model.interpolate(a, tangent)
        self.z, self.x, self.psi = z, x, psi
        self.divergence_weight, self.estimate = (1 - a) * c + self.lam * a, sum(terms)
        self.first_weight *= 1 - a
        return True

    def state(self) -> State:
        """Arrays from which ``load`` continues the run."""
        memory = np.array([self.divergence_weight, self.estimate, self.first_weight])
        return {**super().state(), "memory": memory}

    def load(self, state: State) -> None:
        """Restore the arrays of ``state``."""
        super().load(state)
        self.divergence_weight, self.estimate, self.first_weight = (
            float(x) for x in state["memory"]
        )


MEMORIES: dict[str, type[InfiniteMemory] | type[OneMemory]] = {
    "infinite": InfiniteMemory,
    "one": OneMemory,
}
