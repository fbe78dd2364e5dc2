"""What is known of a convex risk from its cutting planes, and where that is lowest."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.solvers.cutting_planes.simplex_qp import maximise

Floats = NDArray[np.float64]
State = dict[str, NDArray[Any]]


class Model(Protocol):
    r"""A lower bound of the objective, :math:`\lambda/2 |w|^2` and a maximum of cuts.

    Its minimum is at ``w = -p / lam`` and is the dual value
    ``offset - |p|^2 / (2 lam)``, for p and offset the same average of the cuts.
    """

    p: Floats
    offset: float

    @property
    def size(self) -> float:
        """Of the terms of the dual value, before they cancel."""

    def add(self, slope: Floats, offset: float) -> None:
        """Take one more cut ``<w, slope> + offset``, and minimise."""

    def state(self) -> State:
        """All that changes."""

    def load(self, state: State) -> None:
        """Go on from a state."""


class AllCuts:
    """The maximum of all cuts, minimised by its dual, a quadratic over the simplex.

    Cuts without weight for ``drop_after`` rounds are forgotten; None keeps all.

    Notes
    -----
    Source: Saha, Zhang and Vishwanathan, "Lower Bounds for BMRM and Faster Rates for
    Training SVMs", equations 10 to 12.
    """

    def __init__(self, size: int, lam: float, drop_after: int | None) -> None:
        self.lam, self.drop_after = lam, drop_after
        # rows past the first ``count`` are room
        self.count = 0
        self.slopes = np.zeros((0, size))
        self.products = np.zeros((0, 0))
        self.offsets, self.weights = np.zeros(0), np.zeros(0)
        self.idle = np.zeros(0, dtype=np.int64)
        self.p, self.offset = np.zeros(size), 0.0

    @property
    def size(self) -> float:
        """Of the terms of the dual value, before they cancel."""
        t = self.count
        lengths = float(self.weights @ np.sqrt(np.diagonal(self.products)[:t]))
        spread = float(self.weights @ np.abs(self.offsets))
        return spread + lengths * float(np.linalg.norm(self.p)) / self.lam

    def add(self, slope: Floats, offset: float) -> None:
        """One more cut, and the quadratic programme anew."""
        self._room()
        t = self.count
        self.slopes[t] = slope
        row = self.slopes[: t + 1] @ slope
        self.products[t, : t + 1] = self.products[: t + 1, t] = row
        self.count = t + 1
        self.offsets = np.append(self.offsets, offset)
        self.weights = np.append(self.weights, 0.0 if t else 1.0)
        self.idle = np.append(self.idle, 0)
        Q = self.products[: t + 1, : t + 1] / self.lam
        self.weights = maximise(Q, self.offsets, self.weights)
        self.idle = np.where(self.weights > 0, 0, self.idle + 1)
        if self.drop_after is not None:
            self._drop(self.idle <= self.drop_after)
        self.p = self.weights @ self.slopes[: self.count]
        self.offset = float(self.weights @ self.offsets)

    def _room(self) -> None:
        if self.count < len(self.slopes):
            return
        larger = max(8, 2 * self.count)
        slopes = np.zeros((larger, self.slopes.shape[1]))
        slopes[: self.count] = self.slopes
        products = np.zeros((larger, larger))
        products[: self.count, : self.count] = self.products
        self.slopes, self.products = slopes, products

    def _drop(self, kept: NDArray[np.bool_]) -> None:
        if kept.all():
            return
        # the last ones fill the holes, so that the others stay where they are
        at = np.flatnonzero(kept)
        holes = np.flatnonzero(~kept[: len(at)])
        last = at[at >= len(at)]
        self.slopes[holes] = self.slopes[last]
        at = np.arange(len(at))
        at[holes] = last
        self.products[: len(at), : len(at)] = self.products[np.ix_(at, at)]
        self.offsets, self.weights = self.offsets[at], self.weights[at]
        self.idle, self.count = self.idle[at], len(at)

    def state(self) -> State:
        """All that changes."""
        t = self.count
        return {
            "slopes": self.slopes[:t].copy(),
            "products": self.products[:t, :t].copy(),
            "offsets": self.offsets.copy(),
            "weights": self.weights.copy(),
            "idle": self.idle.copy(),
            "p": self.p.copy(),
            "offset": np.array(self.offset),
        }

    def load(self, state: State) -> None:
        """Go on from a state."""
        self.slopes = np.array(state["slopes"], dtype=np.float64)
        self.products = np.array(state["products"], dtype=np.float64)
        self.offsets, self.weights = state["offsets"].copy(), state["weights"].copy()
        self.idle, self.count = state["idle"].copy(), len(self.slopes)
        self.p, self.offset = state["p"].copy(), float(state["offset"])


class OneAverage:
    r"""One average of all cuts so far, moved towards the newest by a line search.

    .. math:: \eta = \Big[ \frac{\lambda (b_t - \beta) + \langle p, p - a_t \rangle}
        {\|a_t - p\|^2} \Big]_0^1

    Notes
    -----
    The exact maximum of the dual between the two, where the old point was optimal for
    its cuts: O(features) time and memory. Source: as ``AllCuts``, section 5.
    """

    def __init__(self, size: int, lam: float) -> None:
        self.lam, self.begun = lam, False
        self.p, self.offset = np.zeros(size), 0.0
        # averages of the lengths and of the sizes of offsets, rounding included
        self.length = self.spread = 0.0

    @property
    def size(self) -> float:
        """Of the terms of the dual value, before they cancel."""
        return self.spread + self.length * float(np.linalg.norm(self.p)) / self.lam

    def add(self, slope: Floats, offset: float) -> None:
        """One more cut."""
        eta = 1.0
        if self.begun:
            apart = slope - self.p
            square = float(apart @ apart)
            ascent = self.lam * (offset - self.offset) - float(self.p @ apart)
            eta = 1.0 if ascent >= square else max(ascent / square, 0.0)
        self.begun = True
        self.p = (1 - eta) * self.p + eta * slope
        self.offset = (1 - eta) * self.offset + eta * offset
        length = float(np.linalg.norm(slope))
        self.length = (1 - eta) * self.length + eta * length
        self.spread = (1 - eta) * self.spread + eta * abs(offset)

    def state(self) -> State:
        """All that changes."""
        return {
            "begun": np.array(self.begun),
            "p": self.p.copy(),
            "offset": np.array(self.offset),
            "sizes": np.array([self.length, self.spread]),
        }

    def load(self, state: State) -> None:
        """Go on from a state."""
        self.begun = bool(state["begun"])
        self.p, self.offset = state["p"].copy(), float(state["offset"])
        self.length, self.spread = (float(x) for x in state["sizes"])
