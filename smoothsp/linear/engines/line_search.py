"""The next iterate of L-BFGS: two loops over its pairs, and steps of Wolfe."""

import math
import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import line_search

Floats = NDArray[np.float64]
# Objective and gradient at a point.
Evaluate = Callable[[Floats], tuple[float, Floats]]

# Armijo's and the curvature condition: f falls by a little, its slope by a tenth.
_FALL, _SLOPE = 1e-3, 0.9


class Reached(NamedTuple):
    """An iterate, objective and gradient there, and differences, oldest first.

    ``value`` is NaN as long as nothing is evaluated.
    """

    x: Floats
    value: float
    slope: Floats
    steps: tuple[Floats, ...]
    turns: tuple[Floats, ...]


def advance(at: Reached, evaluate: Evaluate, memory: int) -> Reached | None:
    """The next iterate; None if no step lowers the objective any more."""
    found = _search(at, evaluate)
    if found is None and at.steps:
        # curvature that rounding has spoilt
        at = at._replace(steps=(), turns=())
        found = _search(at, evaluate)
    if found is None:
        return None
    x, value, slope = found
    step, turn = x - at.x, slope - at.slope
    steps, turns = at.steps, at.turns
    if np.dot(step, turn) > np.finfo(float).eps * np.dot(turn, turn):
        steps, turns = (*steps, step)[-memory:], (*turns, turn)[-memory:]
    return Reached(x, value, slope, steps, turns)


def _search(at: Reached, evaluate: Evaluate) -> tuple[Floats, float, Floats] | None:
    p = _direction(at)
    fall = float(np.dot(at.slope, p))
    if not fall < 0:
        return None
    seen: dict[float, tuple[float, Floats]] = {}

    def at_step(a: Floats) -> tuple[float, Floats]:
        length = float(a[0])
        if length not in seen:
            seen.clear()
            seen[length] = evaluate(at.x + length * p)
        return seen[length]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        length = line_search(
            lambda a: at_step(a)[0],
            lambda a: np.array([np.dot(at_step(a)[1], p)]),
            np.zeros(1),
            np.ones(1),
            np.array([fall]),
            at.value,
            c1=_FALL,
            c2=_SLOPE,
        )[0]
    if length is None:
        return None
    value, slope = at_step(np.array([length]))
    if not value < at.value:
        return None
    return at.x + float(length) * p, value, slope


def _direction(at: Reached) -> Floats:
    """``-H g``: Nocedal's two loops, begun at ``s'y / y'y`` times the identity."""
    if not at.steps:
        return -at.slope / max(math.sqrt(float(np.dot(at.slope, at.slope))), 1e-300)
    q = -at.slope
    shares = []
    for s, y in zip(reversed(at.steps), reversed(at.turns), strict=True):
        share = np.dot(s, q) / np.dot(s, y)
        q = q - share * y
        shares.append(share)
    s, y = at.steps[-1], at.turns[-1]
    q *= np.dot(s, y) / np.dot(y, y)
    for s, y, share in zip(at.steps, at.turns, reversed(shares), strict=True):
        q += (share - np.dot(y, q) / np.dot(s, y)) * s
    return np.asarray(q)
