"""Scores of all outputs of a row and sums over them, without cancellation."""

import math
from typing import Any

import numpy as np

from tests.fuzz.structures import Arrays, Kind

Floats = np.ndarray
# Potentials at or below this number forbid.
FORBIDDEN = -(2.0**40)


class Row:
    """All outputs of a row: arrays of numbers, and ``uses`` of potentials by them."""

    def __init__(
        self, kind: Kind, potentials: Arrays, arrays: Arrays, options: Any, b: int
    ) -> None:
        every = [*kind.outputs(potentials | arrays, options, b)]
        self.ys = [y for y, _ in every]
        self.places = {tuple(y.ravel().tolist()): i for i, y in enumerate(self.ys)}
        starts = np.cumsum([0, *(x.size for x in potentials.values())])
        self.slices = {x: slice(*starts[k : k + 2]) for k, x in enumerate(potentials)}
        self.uses = np.zeros((len(every), starts[-1]))
        for i, (_, parts) in enumerate(every):
            for name, *place in parts:
                shape = potentials[name].shape
                *place, weight = (*place, 1) if len(place) == len(shape) else place
                at = np.ravel_multi_index(tuple(place), shape) if shape else 0
                self.uses[i, self.slices[name].start + at] += weight
        self.read(potentials)

    def read(self, potentials: Arrays) -> "Row":
        """Compute scores anew."""
        theta = np.concatenate([x.ravel() for x in potentials.values()])
        self.never = theta <= FORBIDDEN
        terms = self.uses * np.where(self.never, 0, theta)
        self.allowed = ~((self.uses != 0) & self.never).any(1)
        self.terms = [x[x != 0].tolist() for x in terms]
        some = [i for i, yes in enumerate(self.allowed) if yes]
        self.count = len(some)
        if not some:
            return self
        self.size = max(math.fsum(map(abs, self.terms[i])) for i in some)
        top = max(some, key=lambda i: math.fsum(self.terms[i]))
        self.best = math.fsum(self.terms[top])
        self.above = self.minus(top)
        self.log_sum = log_sum(self.above)
        self.log_p = self.above - self.log_sum
        self.p = np.exp(self.log_p)
        self.means = self.p @ self.uses
        return self

    def minus(self, i: int) -> Floats:
        """Scores minus that of output i, -inf where forbidden."""
        own = [-x for x in self.terms[i]]
        return np.array(
            [
                math.fsum(x + own) if yes else -math.inf
                for x, yes in zip(self.terms, self.allowed, strict=True)
            ]
        )

    def scores(self) -> Floats:
        return np.array(
            [
                math.fsum(x) if yes else -math.inf
                for x, yes in zip(self.terms, self.allowed, strict=True)
            ]
        )

    def mean(self, x: Floats) -> float:
        return math.fsum(np.where(self.p > 0, self.p * np.where(self.p > 0, x, 0), 0))

    def covariance(self, x: Floats) -> Floats:
        """Of x and the uses."""
        centred = np.where(self.p > 0, np.where(self.p > 0, x, 0) - self.mean(x), 0)
        return (self.p * centred) @ (self.uses - self.means)


def log_sum(x: Floats) -> float:
    top = float(x.max())
    return top + math.log(math.fsum(np.exp(x - top)))


def softmax(x: Floats) -> Floats:
    return np.exp(x - log_sum(x))


def l2(x: Floats, mu: float) -> tuple[float, Floats]:
    """Return ``max <u, x> - mu/2 (|u|^2 - 1)`` over the simplex, and u."""
    ranked = np.sort(x)[::-1]
    for n in range(len(x), 0, -1):
        level = (math.fsum(ranked[:n] - ranked[0]) - mu) / n + ranked[0]
        if n == 1 or ranked[n - 1] > level:
            break
    u = np.maximum(x - level, 0) / mu
    u = u / math.fsum(u)
    return math.fsum(u[u > 0] * x[u > 0]) - mu / 2 * (math.fsum(u * u) - 1), u
