"""Cutting-plane models of a convex risk, and their minima."""

import math
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from smoothsp._kernels.combinatorial import cutting_planes as cuts
from smoothsp._kernels.combinatorial.cutting_planes import LANES

Floats = NDArray[np.float64]
State = dict[str, NDArray[Any]]

# the first room for cuts: at most so many numbers, or 8 cuts
_ROOM, _CUTS = 2**22, 64


class CutAverage(NamedTuple):
    """The mean of cuts that a dual point is; of their sizes, what bounds rounding."""

    p: Floats
    offset: float
    # means of the sizes of offsets, and of the lengths of slopes
    spread: float
    length: float


class Model(Protocol):
    r"""A lower bound of the objective, :math:`\lambda/2 |w|^2` and a maximum of cuts.

    Its minimum is at ``w = -p / lam`` and is the dual value
    ``offset - |p|^2 / (2 lam)``, for p and offset the same average of the cuts.
    """

    at: CutAverage

    def add(self, slope: Floats, offset: float) -> "Model":
        """The model with one more cut ``<w, slope> + offset``, minimised.

        This one stays as it is, so that a pass can be given up; of what ``add`` made of
        it, only the last holds.
        """

    def state(self) -> State:
        """All that matters to the next cut."""

    def load(self, state: State) -> "Model":
        """The model of a state."""


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
        self.at = CutAverage(np.zeros(size), 0.0, 0.0, 0.0)
        # where in the room each cut is, oldest first
        self.slots = np.zeros(0, dtype=np.int64)
        # offset, weight, rounds without weight
        self.cuts = np.zeros((0, 3))
        self.zero_buffer = _Room.of(max(8, min(_CUTS, _ROOM // max(size, 1))), size)

    def add(self, slope: Floats, offset: float) -> "AllCuts":
        """One more cut, and the quadratic programme anew."""
        t = len(self.slots) + 1
        room = self.zero_buffer
        if t > len(room.slopes):
            room = self._room(2 * t)
        slots, made = np.empty(t, dtype=np.int64), np.empty((t, 3))
        p, found = np.empty(room.slopes.shape[1]), np.empty(4)
        before, after = (self.slots, self.cuts), (slots, made)
        cut = (slope, offset, self.lam, self._patience)
        cuts.add_cut(before, *cut, (room.slopes, room.products), after, p, found)
        kept, *means = found.tolist()
        at = CutAverage(p[: len(slope)], *means)
        return self._with(slots[: int(kept)], made[: int(kept)], room, at)

    @property
    def _patience(self) -> int:
        return -1 if self.drop_after is None else self.drop_after

    def _with(
        self, slots: NDArray[np.int64], cuts: Floats, room: "_Room", at: CutAverage
    ) -> "AllCuts":
        found = object.__new__(AllCuts)
        found.lam, found.drop_after = self.lam, self.drop_after
        found.slots, found.cuts, found.zero_buffer, found.at = slots, cuts, room, at
        return found

    def _room(self, size: int) -> "_Room":
        """Resize the buffers and keep the places of the cuts."""
        t, room = len(self.zero_buffer.slopes), _Room.of(size, len(self.at.p))
        room.slopes[:t] = self.zero_buffer.slopes
        room.products[:t, :t] = self.zero_buffer.products
        return room

    def state(self) -> State:
        """All that matters to the next cut."""
        at = self.slots
        return {
            "slopes": self.zero_buffer.slopes[at, : len(self.at.p)],
            "products": self.zero_buffer.products[np.ix_(at, at)],
            "offsets": self.cuts[:, 0].copy(),
            "weights": self.cuts[:, 1].copy(),
            "idle": self.cuts[:, 2].astype(np.int64),
        }

    def load(self, state: State) -> "AllCuts":
        """The model of a state."""
        t, size = np.shape(state["slopes"])
        room = (
            self.zero_buffer
            if t <= len(self.zero_buffer.slopes)
            else _Room.of(2 * t, size)
        )
        room.slopes[:t, :size] = state["slopes"]
        room.products[:t, :t] = state["products"]
        columns = (state[name] for name in ("offsets", "weights", "idle"))
        cuts = np.stack([np.asarray(x, dtype=np.float64) for x in columns], axis=1)
        return self._with(np.arange(t), cuts, room, self.at)


class _Room(NamedTuple):
    """Slopes in rows, and their products; not all rows are in use.

    Rows begin and end at whole vectors, and have zeros after the slope.
    """

    slopes: Floats
    products: Floats

    @classmethod
    def of(cls, cuts: int, size: int) -> "_Room":
        wide = -(-size // LANES) * LANES
        memory = np.empty(cuts * wide + LANES)
        past = -memory.ctypes.data // memory.itemsize % LANES
        slopes = memory[past : past + cuts * wide].reshape(cuts, wide)
        slopes[:, size:] = 0.0
        return cls(slopes, np.zeros((cuts, cuts)))


class AveragedCut:
    r"""One average of all cuts so far, moved towards the newest by a line search.

    .. math:: \eta = \Big[ \frac{\lambda (b_t - \beta) + \langle p, p - a_t \rangle}
        {\|a_t - p\|^2} \Big]_0^1

    Notes
    -----
    The exact maximum of the dual between the two, where the old point was optimal for
    its cuts: O(features) time and memory. Source: as ``AllCuts``, section 5.
    """

    def __init__(self, lam: float, at: CutAverage | None = None) -> None:
        self.lam, self.begun = lam, at is not None
        self.at = CutAverage(np.zeros(0), 0.0, 0.0, 0.0) if at is None else at

    def add(self, slope: Floats, offset: float) -> "AveragedCut":
        """One more cut."""
        length = math.sqrt(float(slope @ slope))
        new = CutAverage(slope, offset, abs(offset), length)
        if not self.begun:
            return AveragedCut(self.lam, new)
        old = self.at
        apart = slope - old.p
        square = float(apart @ apart)
        ascent = self.lam * (offset - old.offset) - float(old.p @ apart)
        eta = 1.0 if ascent >= square else max(ascent / square, 0.0)
        p = (1 - eta) * old.p + eta * slope
        pairs = zip(old[1:], new[1:], strict=True)
        means = ((1 - eta) * x + eta * y for x, y in pairs)
        return AveragedCut(self.lam, CutAverage(p, *means))

    def state(self) -> State:
        """All that matters to the next cut."""
        at = self.at
        return {
            "begun": np.array(self.begun),
            "p": at.p.copy(),
            "offset": np.array(at.offset),
            "sizes": np.array([at.length, at.spread]),
        }

    def load(self, state: State) -> "AveragedCut":
        """The model of a state."""
        if not state["begun"]:
            return AveragedCut(self.lam)
        length, spread = (float(x) for x in state["sizes"])
        at = CutAverage(state["p"].copy(), float(state["offset"]), spread, length)
        return AveragedCut(self.lam, at)
