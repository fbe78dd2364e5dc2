"""One step of L-BFGS: two-loop recursion and a line search for Wolfe's conditions.

Allocating a vector of all weights takes as long as reading several vectors. Vectors are
therefore changed in place, and those of earlier iterates are reused.

Source: Nocedal and Wright, "Numerical Optimization", algorithms 7.4 and 3.5.
"""

import math
import warnings
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import daxpy
from scipy.optimize import line_search

Floats = NDArray[np.float64]
# Returns the objective at the first vector and fills the second with its gradient.
Evaluate = Callable[[Floats, Floats], float]

# Wolfe conditions: sufficient decrease c1, and curvature c2.
_ARMIJO_C1, _CURVATURE_C2 = 1e-3, 0.9


class Iterate(NamedTuple):
    """Iterate x, objective and gradient, and pairs of differences, oldest first.

    ``value`` is NaN before the first evaluation.
    """

    x: Floats
    value: float
    gradient: Floats
    iterate_diffs: tuple[Floats, ...]
    gradient_diffs: tuple[Floats, ...]

    def vectors(self) -> Iterator[Floats]:
        """Yield all vectors of the iterate."""
        yield from (self.x, self.gradient, *self.iterate_diffs, *self.gradient_diffs)


class VectorPool:
    """Pool of equally long vectors for reuse."""

    def __init__(self, make: Callable[[], Floats]) -> None:
        self._make = make
        self._free: list[Floats] = []

    def acquire(self) -> Floats:
        """Return an uninitialised vector."""
        return self._free.pop() if self._free else self._make()

    def release(self, *vectors: Floats) -> None:
        """Return vectors to the pool; they must not be read afterwards."""
        self._free += vectors

    def release_unshared(self, retained: Iterate, iterate: Iterate) -> None:
        """Return the vectors of an iterate that ``retained`` does not share."""
        retained_ids = {id(vector) for vector in retained.vectors()}
        self.release(*(x for x in iterate.vectors() if id(x) not in retained_ids))


def next_iterate(
    iterate: Iterate, evaluate: Evaluate, memory: int, vectors: VectorPool
) -> Iterate | None:
    """Return the next iterate, or None if no step decreases the objective.

    The vectors of the given iterate do not change.
    """
    accepted = _wolfe_search(iterate, evaluate, vectors)
    if accepted is None and iterate.iterate_diffs:
        # Rounding may have spoilt the pairs: retry along the negative gradient.
        iterate = iterate._replace(iterate_diffs=(), gradient_diffs=())
        accepted = _wolfe_search(iterate, evaluate, vectors)
    if accepted is None:
        return None
    x, value, gradient = accepted
    iterate_diff = np.subtract(x, iterate.x, out=vectors.acquire())
    gradient_diff = np.subtract(gradient, iterate.gradient, out=vectors.acquire())
    iterate_diffs, gradient_diffs = iterate.iterate_diffs, iterate.gradient_diffs
    # Keep H positive definite: store pairs with s'y > 0 beyond rounding error alone.
    if np.dot(iterate_diff, gradient_diff) > np.finfo(float).eps * np.dot(
        gradient_diff, gradient_diff
    ):
        iterate_diffs, gradient_diffs = (
            (*iterate_diffs, iterate_diff)[-memory:],
            (*gradient_diffs, gradient_diff)[-memory:],
        )
    else:
        vectors.release(iterate_diff, gradient_diff)
    return Iterate(x, value, gradient, iterate_diffs, gradient_diffs)


def _wolfe_search(
    iterate: Iterate, evaluate: Evaluate, vectors: VectorPool
) -> tuple[Floats, float, Floats] | None:
    p = _fill_direction(iterate, vectors.acquire())
    x, gradient = vectors.acquire(), vectors.acquire()
    directional_derivative = float(np.dot(iterate.gradient, p))
    if not directional_derivative < 0:
        vectors.release(p, x, gradient)
        return None
    # step and value of the last evaluation: scipy repeats steps
    evaluated_step, value = 0.0, math.nan

    def evaluate_at(a: float) -> float:
        nonlocal evaluated_step, value
        if a != evaluated_step:
            np.copyto(x, iterate.x)
            daxpy(p, x, a=a)
            evaluated_step, value = a, evaluate(x, gradient)
        return value

    def derivative_at(a: Floats) -> Floats:
        evaluate_at(float(a[0]))
        return np.array([np.dot(gradient, p)])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # A one-dimensional problem in the step size: scipy then never copies the
        # weights.
        step = line_search(
            lambda a: evaluate_at(float(a[0])),
            derivative_at,
            np.zeros(1),
            np.ones(1),
            np.array([directional_derivative]),
            iterate.value,
            c1=_ARMIJO_C1,
            c2=_CURVATURE_C2,
        )[0]
    decreases = step is not None and evaluate_at(float(step)) < iterate.value
    vectors.release(p)
    if not decreases:
        vectors.release(x, gradient)
        return None
    return x, value, gradient


def _fill_direction(iterate: Iterate, q: Floats) -> Floats:
    """Fill q with ``-H g`` by the two-loop recursion, ``H_0 = (s'y / y'y) I``."""
    np.negative(iterate.gradient, out=q)
    if not iterate.iterate_diffs:
        # Without pairs the first step has length 1 along the negative gradient.
        q /= max(math.sqrt(float(np.dot(iterate.gradient, iterate.gradient))), 1e-300)
        return q
    pairs = list(zip(iterate.iterate_diffs, iterate.gradient_diffs, strict=True))
    curvatures = [float(np.dot(s, y)) for s, y in pairs]
    alphas = []
    for (s, y), curvature in zip(reversed(pairs), reversed(curvatures), strict=True):
        alphas.append(float(np.dot(s, q)) / curvature)
        # daxpy adds in place; ``q -= a * y`` allocates a vector.
        daxpy(y, q, a=-alphas[-1])
    # H_0 scales by the curvature along the newest pair.
    q *= curvatures[-1] / float(
        np.dot(iterate.gradient_diffs[-1], iterate.gradient_diffs[-1])
    )
    for (s, y), curvature, alpha in zip(
        pairs, curvatures, reversed(alphas), strict=True
    ):
        daxpy(s, q, a=alpha - float(np.dot(y, q)) / curvature)
    return q
