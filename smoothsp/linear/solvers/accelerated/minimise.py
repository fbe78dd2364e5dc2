"""Minimise a smooth and a simple function, both given by the caller."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.inputs import checks
from smoothsp.linear.solvers.accelerated.estimate_functions import MEMORIES
from smoothsp.linear.solvers.accelerated.prox_terms import Point, SimpleTerm

Floats = NDArray[np.float64]
ValueAndGradient = Callable[[Floats], tuple[float, Floats]]


@dataclass(frozen=True)
class Minimum:
    """Result of a minimisation.

    Parameters
    ----------
    x
        ``(size,)``.
    value
        f + Psi at x.
    bound
        Lower bound of the minimum of f + Psi; ``-inf`` if the conjugate of Psi is
        unknown.
    iterations, evaluations
        Number of iterations, and of evaluations of f with or without its gradient.
    lipschitz
        Last Lipschitz constant tried.
    converged
        Whether ``value - bound`` is at most ``tol``.

    Examples
    --------
    >>> import numpy as np
    >>> from smoothsp.linear.solvers import ElasticNet, minimise_composite
    >>> def squares(w):
    ...     return 0.5 * float((w - 3) @ (w - 3)), w - 3
    >>> found = minimise_composite(squares, ElasticNet(l1=1.0, l2=1.0), np.zeros(1))
    >>> found.x.round(3).tolist(), found.converged
    ([1.0], True)
    """

    x: Floats
    value: float
    bound: float
    iterations: int
    evaluations: int
    lipschitz: float
    converged: bool

    @property
    def gap(self) -> float:
        """``value - bound``."""
        return self.value - self.bound


class Prox:
    r"""A simple term given by its proximal operator, in the Euclidean geometry.

    Parameters
    ----------
    prox
        ``prox(v, step)`` is :math:`\arg\min_x \tfrac12 \|x - v\|^2 + s \Psi(x)`.
    value
        ``value(x)`` is Psi; by default 0, as for projections.
    strong
        How strongly convex Psi is.
    conjugate
        ``conjugate(v)`` is the maximum of ``<v, x> - Psi(x)``: without it there are no
        lower bounds.

    Examples
    --------
    Least squares over a box:

    >>> import numpy as np
    >>> box = Prox(lambda v, step: np.clip(v, 0, 1), conjugate=lambda v: v[v > 0].sum())
    >>> def far(x):
    ...     return 0.5 * float((x - 3) @ (x - 3)), x - 3
    >>> minimise_composite(far, box, np.zeros(2)).x.tolist()
    [1.0, 1.0]
    """

    mixes = True

    def __init__(
        self,
        prox: Callable[[Floats, float], Floats],
        value: Callable[[Floats], float] | None = None,
        *,
        strong: float = 0.0,
        conjugate: Callable[[Floats], float] | None = None,
    ) -> None:
        self.prox, self.value = prox, value
        self.strong = checks.as_nonnegative("strong", strong)
        self._conjugate = conjugate

    def solve(self, p: Floats, near: float, step: float = 1.0) -> Point:
        """Minimise ``near |x|^2 / 2 - <p, x> + step Psi(x)``."""
        if near == 0:
            # the model has outgrown the distance to the start
            near = 1e-300 * step
        return self.at(np.asarray(self.prox(p / near, step / near), dtype=np.float64))

    def at(self, x: Floats) -> Point:
        """The point x."""
        value = 0.0 if self.value is None else float(self.value(x))
        return Point(x, x, float(x @ x) / 2, value)

    def conjugate(self, v: Floats) -> float:
        """The largest ``<v, x> - Psi(x)``."""
        return math.inf if self._conjugate is None else float(self._conjugate(v))


class _UserFunction:
    def __init__(
        self, slope: ValueAndGradient, value: Callable[[Floats], float] | None
    ) -> None:
        self._value_and_gradient, self._value = slope, value

    def value(self, x: Floats) -> float:
        result = (
            self._value_and_gradient(x)[0] if self._value is None else self._value(x)
        )
        return float(result)

    def value_and_gradient(self, x: Floats) -> tuple[float, Floats, float]:
        value, slope = self._value_and_gradient(x)
        slope = np.asarray(slope, dtype=np.float64)
        if slope.shape != x.shape:
            raise ValueError(
                f"value_and_gradient: expected a gradient of {x.shape}, got"
                f" {slope.shape}"
            )
        if not (math.isfinite(value) and np.isfinite(slope).all()):
            raise ValueError("value_and_gradient: expected finite numbers, got others")
        return float(value), slope, float(value) - float(slope @ x)


def minimise_composite(
    value_and_gradient: ValueAndGradient,
    simple: SimpleTerm,
    start: Any,
    *,
    memory: Literal["infinite", "one"] = "infinite",
    lipschitz: float = 1.0,
    adaptive: bool = True,
    strong: float = 0.0,
    value: Callable[[Floats], float] | None = None,
    tol: float = 1e-6,
    max_iterations: int = 1000,
    callback: Callable[[int, float, float], Any] | None = None,
) -> Minimum:
    r"""Nesterov's accelerated gradient methods, by estimate functions.

    .. math:: \min_x f(x) + \Psi(x)

    for f smooth and Psi simple: one whose sum with a linear function and a prox
    function d is minimised exactly. The error falls as :math:`4 L D / (k + 1)^2`, and
    as :math:`(1 + \sqrt{(l_1 + l_2) / 4L})^{-2k}` where the sum is strongly convex.

    Parameters
    ----------
    value_and_gradient
        f and its gradient at a ``(size,)`` array.
    simple
        Psi: :class:`ElasticNet`, :class:`ElasticNetBall`, :class:`CappedSimplex`, whose
        d is the entropy, :class:`Prox`, or your own with the same methods.
    start
        ``(size,)``, in the domain of Psi; of :class:`CappedSimplex` inside it.
    memory
        ``"infinite"`` adds up all gradients, ``"one"`` keeps a single divergence.
    lipschitz
        L of the gradient of f in the norm of d: of f, if not adaptive, or where trials
        of it begin.
    adaptive
        Whether to try L, down as well as up, at each iteration.
    strong
        How strongly convex f is with regard to d: l1; l2 is that of ``simple``.
    value
        f alone, where that is cheaper: what trials ask for.
    tol
        The gap to the lower bound at which to stop.
    max_iterations
        A budget.
    callback
        ``callback(iteration, value, bound)`` after each; what is true stops.

    Returns
    -------
    Minimum

    Raises
    ------
    TypeError, ValueError
        For numbers that are none or not finite, and gradients of another shape.

    Notes
    -----
    The bound is the minimum of Psi and the average of the tangents of f, the duality
    gap of theorems 10 and 18 with averaged dual variables.

    Source: Zhang, Saha and Vishwanathan, "Regularized Risk Minimization by Nesterov's
    Accelerated Gradient Methods", algorithms 1 to 4.

    Examples
    --------
    The elastic net:

    >>> import numpy as np
    >>> from smoothsp.linear.solvers import ElasticNet
    >>> X, y = np.eye(3), np.array([3.0, -0.5, 2.0])
    >>> def squares(w):
    ...     r = X @ w - y
    ...     return 0.5 * float(r @ r), X.T @ r
    >>> found = minimise_composite(squares, ElasticNet(l1=1.0, l2=0.5), np.zeros(3))
    >>> found.converged, found.x.round(3).tolist()
    (True, [1.333, 0.0, 0.667])
    """
    checks.require_choice("memory", memory, tuple(MEMORIES))
    x = np.array(start, dtype=np.float64)
    if x.ndim != 1 or not np.isfinite(x).all():
        raise ValueError(f"start: expected a finite vector, got shape {x.shape}")
    f = _UserFunction(value_and_gradient, value)
    run = MEMORIES[memory](
        f,
        simple,
        simple.at(x),
        checks.as_positive("lipschitz", lipschitz),
        checks.as_bool("adaptive", adaptive),
        checks.as_nonnegative("strong", strong),
    )
    tol = checks.as_nonnegative("tol", tol)
    best, best_value, bound = x, math.inf, -math.inf
    for k in range(1, checks.as_positive_int("max_iterations", max_iterations) + 1):
        run.step()
        if run.has_stalled:
            break
        value_at_x = f.value(run.x) + simple.at(run.x).psi
        if value_at_x < best_value:
            best, best_value = run.x, value_at_x
        bound = max(bound, run.lower_bound())
        if best_value - bound <= tol or (callback and callback(k, best_value, bound)):
            break
    return Minimum(
        best,
        best_value,
        bound,
        run.k,
        run.evaluations,
        run.L,
        bool(best_value - bound <= tol),
    )
