"""Accelerated minimisation of a composite objective f + Psi of the caller."""

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
    >>> result = minimise_composite(squares, ElasticNet(l1=1.0, l2=1.0), np.zeros(1))
    >>> result.x.round(3).tolist(), result.converged
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
    r"""Simple term defined by its proximal operator, with Euclidean distances.

    Parameters
    ----------
    prox
        ``prox(v, step)`` is :math:`\arg\min_x \tfrac12 \|x - v\|^2 + s \Psi(x)`.
    value
        ``value(x)`` is Psi; by default 0, as for projections.
    strong
        Strong convexity of Psi, >= 0.
    conjugate
        ``conjugate(v)`` is the convex conjugate, the maximum of ``<v, x> - Psi(x)``.
        Without it the lower bound is ``-inf``.

    Examples
    --------
    Least squares over a box:

    >>> import numpy as np
    >>> box = Prox(lambda v, step: np.clip(v, 0, 1), conjugate=lambda v: v[v > 0].sum())
    >>> def squares(x):
    ...     return 0.5 * float((x - 3) @ (x - 3)), x - 3
    >>> minimise_composite(squares, box, np.zeros(2)).x.tolist()
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
            # 1 / A_k underflowed: avoid 0 / 0, keep the minimiser of the model.
            near = 1e-300 * step
        return self.at(np.asarray(self.prox(p / near, step / near), dtype=np.float64))

    def at(self, x: Floats) -> Point:
        """Return x with d(x) = |x|^2 / 2, whose gradient is x, and Psi(x)."""
        value = 0.0 if self.value is None else float(self.value(x))
        return Point(x, x, float(x @ x) / 2, value)

    def conjugate(self, v: Floats) -> float:
        """Convex conjugate ``max_x <v, x> - Psi(x)``; infinite if unknown."""
        return math.inf if self._conjugate is None else float(self._conjugate(v))


class _UserFunction:
    """Function f of the caller, with checked gradients."""

    def __init__(
        self,
        value_and_gradient: ValueAndGradient,
        value: Callable[[Floats], float] | None,
    ) -> None:
        self._value_and_gradient, self._value = value_and_gradient, value

    def value(self, x: Floats) -> float:
        result = (
            self._value_and_gradient(x)[0] if self._value is None else self._value(x)
        )
        return float(result)

    def value_and_gradient(self, x: Floats) -> tuple[float, Floats, float]:
        value, gradient = self._value_and_gradient(x)
        # Recursions over thousands of tangents need float64.
        gradient = np.asarray(gradient, dtype=np.float64)
        if gradient.shape != x.shape:
            raise ValueError(
                f"value_and_gradient: expected a gradient of shape {x.shape}, got"
                f" {gradient.shape}"
            )
        if not (math.isfinite(value) and np.isfinite(gradient).all()):
            raise ValueError(
                "value_and_gradient: expected finite numbers, got NaN or inf"
            )
        # The tangent is <gradient, .> + offset.
        return float(value), gradient, float(value) - float(gradient @ x)


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
    r"""Minimise f + Psi by Nesterov's accelerated gradient methods.

    .. math:: \min_x f(x) + \Psi(x)

    f is smooth and Psi simple: the sum of Psi, a linear function and a prox function d
    has a minimiser in closed form. The error falls as :math:`4 L D / (k + 1)^2`, and as
    :math:`(1 + \sqrt{(l_1 + l_2) / 4L})^{-2k}` if f + Psi is strongly convex.

    Parameters
    ----------
    value_and_gradient
        Returns f and its gradient at a ``(size,)`` array.
    simple
        Psi: :class:`ElasticNet`, :class:`ElasticNetBall`, :class:`Prox`,
        :class:`CappedSimplex`, whose d is the negative entropy, or an object with the
        same methods.
    start
        ``(size,)``, in the domain of Psi; in its interior for :class:`CappedSimplex`.
    memory
        ``"infinite"`` averages all gradients, ``"one"`` keeps a single divergence.
    lipschitz
        L, the Lipschitz constant of the gradient of f in the norm of d. With
        ``adaptive``, the first value tried.
    adaptive
        If True, search for L at each iteration, downwards as well as upwards.
    strong
        Strong convexity l1 of f relative to d; l2 is that of ``simple``.
    value
        Returns f without its gradient, if that is cheaper; used in the search for L.
    tol
        Difference between ``value`` and ``bound`` at which to stop.
    max_iterations
        Maximum number of iterations.
    callback
        ``callback(iteration, value, bound)``, called after each iteration; a true
        return value stops the run.

    Returns
    -------
    Minimum

    Raises
    ------
    TypeError, ValueError
        For arguments, values or gradients that are not finite numbers, and for
        gradients of another shape.

    Notes
    -----
    The bound is the minimum of Psi plus the average of the tangents of f. Its distance
    to ``value`` is the duality gap of theorems 10 and 18, with averaged dual variables.

    Source: Zhang, Saha and Vishwanathan, "Regularized Risk Minimization by Nesterov's
    Accelerated Gradient Methods", algorithms 1 to 4.

    Examples
    --------
    Least squares with the penalty of the elastic net:

    >>> import numpy as np
    >>> from smoothsp.linear.solvers import ElasticNet
    >>> X, y = np.eye(3), np.array([3.0, -0.5, 2.0])
    >>> def squares(w):
    ...     r = X @ w - y
    ...     return 0.5 * float(r @ r), X.T @ r
    >>> result = minimise_composite(squares, ElasticNet(l1=1.0, l2=0.5), np.zeros(3))
    >>> result.converged, result.x.round(3).tolist()
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
    # Neither method is monotone: keep the best iterate and the largest bound.
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
