"""The next iterate of L-BFGS: two loops over its pairs, and steps of Wolfe.

Vectors are as long as the weights, so that making one takes as long as reading several:
all are changed in place, and those of earlier iterates are used again.
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
# Objective at the first, and its gradient there into the second.
Evaluate = Callable[[Floats, Floats], float]

# Armijo's and the curvature condition: f falls by a little, its slope by a tenth.
_FALL, _SLOPE = 1e-3, 0.9


class Iterate(NamedTuple):
    """An iterate, objective and gradient there, and differences, oldest first.

    ``value`` is NaN as long as nothing is evaluated.
    """

    x: Floats
    value: float
    slope: Floats
    steps: tuple[Floats, ...]
    turns: tuple[Floats, ...]

    def vectors(self) -> Iterator[Floats]:
        """All that it holds."""
        yield from (self.x, self.slope, *self.steps, *self.turns)


class VectorPool:
    """Vectors to be filled: new ones, and those that were given back."""

    def __init__(self, make: Callable[[], Floats]) -> None:
        self._make = make
        self._free: list[Floats] = []

    def take(self) -> Floats:
        """One with anything in it."""
        return self._free.pop() if self._free else self._make()

    def give(self, *vectors: Floats) -> None:
        """Take these back; nobody reads them any more."""
        self._free += vectors

    def give_all_but(self, kept: Iterate, of: Iterate) -> None:
        """Take back what one iterate holds and another does not."""
        held = {id(vector) for vector in kept.vectors()}
        self.give(*(x for x in of.vectors() if id(x) not in held))


def next_iterate(
    at: Iterate, evaluate: Evaluate, memory: int, vectors: VectorPool
) -> Iterate | None:
    """The next iterate; None if no step lowers the objective any more.

    Nothing that ``at`` holds is changed.
    """
    found = _search(at, evaluate, vectors)
    if found is None and at.steps:
        # curvature that rounding has spoilt
        at = at._replace(steps=(), turns=())
        found = _search(at, evaluate, vectors)
    if found is None:
        return None
    x, value, slope = found
    step = np.subtract(x, at.x, out=vectors.take())
    turn = np.subtract(slope, at.slope, out=vectors.take())
    steps, turns = at.steps, at.turns
    if np.dot(step, turn) > np.finfo(float).eps * np.dot(turn, turn):
        steps, turns = (*steps, step)[-memory:], (*turns, turn)[-memory:]
    else:
        vectors.give(step, turn)
    return Iterate(x, value, slope, steps, turns)


def _search(
    at: Iterate, evaluate: Evaluate, vectors: VectorPool
) -> tuple[Floats, float, Floats] | None:
    p = _direction(at, vectors.take())
    x, slope = vectors.take(), vectors.take()
    fall = float(np.dot(at.slope, p))
    if not fall < 0:
        vectors.give(p, x, slope)
        return None
    # of the point that was evaluated last
    length, value = 0.0, math.nan

    def evaluate_at(a: float) -> float:
        nonlocal length, value
        if a != length:
            np.copyto(x, at.x)
            daxpy(p, x, a=a)
            length, value = a, evaluate(x, slope)
        return value

    def slope_at(a: Floats) -> Floats:
        evaluate_at(float(a[0]))
        return np.array([np.dot(slope, p)])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chosen = line_search(
            lambda a: evaluate_at(float(a[0])),
            slope_at,
            np.zeros(1),
            np.ones(1),
            np.array([fall]),
            at.value,
            c1=_FALL,
            c2=_SLOPE,
        )[0]
    lower = chosen is not None and evaluate_at(float(chosen)) < at.value
    vectors.give(p)
    if not lower:
        vectors.give(x, slope)
        return None
    return x, value, slope


def _direction(at: Iterate, q: Floats) -> Floats:
    """Fill q with ``-H g``: Nocedal's two loops, begun at ``s'y / y'y`` times 1."""
    np.negative(at.slope, out=q)
    if not at.steps:
        q /= max(math.sqrt(float(np.dot(at.slope, at.slope))), 1e-300)
        return q
    pairs = list(zip(at.steps, at.turns, strict=True))
    curvatures = [float(np.dot(s, y)) for s, y in pairs]
    shares = []
    for (s, y), curvature in zip(reversed(pairs), reversed(curvatures), strict=True):
        shares.append(float(np.dot(s, q)) / curvature)
        daxpy(y, q, a=-shares[-1])
    q *= curvatures[-1] / float(np.dot(at.turns[-1], at.turns[-1]))
    for (s, y), curvature, share in zip(
        pairs, curvatures, reversed(shares), strict=True
    ):
        daxpy(s, q, a=share - float(np.dot(y, q)) / curvature)
    return q
