"""Cutting-plane models of a convex risk: maximum of cuts, or one averaged cut."""

import math
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from smoothsp._kernels.combinatorial import cutting_planes as cuts
from smoothsp._kernels.combinatorial.cutting_planes import LANES

Floats = NDArray[np.float64]
State = dict[str, NDArray[Any]]

# Initial capacity: 64 cuts, but at most 2^22 numbers, and at least 8 cuts.
_MAX_INITIAL_NUMBERS, _INITIAL_CUTS = 2**22, 64


class CutAverage(NamedTuple):
    """Convex combination of cuts, with the magnitudes that bound its rounding error."""

    p: Floats
    offset: float
    # weighted means of |offset| and of the norms of gradients
    spread: float
    length: float


class Model(Protocol):
    r"""A lower bound of the objective, :math:`\lambda/2 |w|^2` and a maximum of cuts.

    Its minimum is at ``w = -p / lam`` and is the dual value
    ``offset - |p|^2 / (2 lam)``, for p and offset the same average of the cuts.
    """

    average: CutAverage

    def add(self, gradient: Floats, offset: float) -> "Model":
        """Return the minimised model with one more cut ``<w, gradient> + offset``.

        This model does not change, so that a pass can be discarded. Models returned by
        ``add`` share buffers: only the last one is valid.
        """

    def state(self) -> State:
        """Arrays from which ``load`` continues the run."""

    def load(self, state: State) -> "Model":
        """Return the model of a saved state."""


class AllCuts:
    r"""Maximum of all cuts, minimised in the dual over the simplex.

    .. math:: \max_{\alpha \in \Delta} \langle b, \alpha \rangle
        - \tfrac{1}{2 \lambda} \|A \alpha\|^2, \qquad w = -A \alpha / \lambda

    Cuts with weight 0 for ``drop_after`` rounds are dropped; None keeps all.

    Notes
    -----
    Source: Saha, Zhang and Vishwanathan, "Lower Bounds for BMRM and Faster Rates for
    Training SVMs", equations 10 to 12.
    """

    def __init__(self, size: int, lam: float, drop_after: int | None) -> None:
        self.lam, self.drop_after = lam, drop_after
        self.average = CutAverage(np.zeros(size), 0.0, 0.0, 0.0)
        # row of each cut in the buffer, oldest first
        self.slots = np.zeros(0, dtype=np.int64)
        # columns: offset, weight, rounds without weight
        self.cuts = np.zeros((0, 3))
        self.buffer = _CutBuffer.allocate(
            max(8, min(_INITIAL_CUTS, _MAX_INITIAL_NUMBERS // max(size, 1))), size
        )

    def add(self, gradient: Floats, offset: float) -> "AllCuts":
        """Add a cut and solve the quadratic programme."""
        t = len(self.slots) + 1
        buffer = self.buffer
        if t > len(buffer.gradients):
            # Doubling: the cost of copies stays linear in the number of cuts.
            buffer = self._resize_buffer(2 * t)
        slots, new_cuts = np.empty(t, dtype=np.int64), np.empty((t, 3))
        p, results = np.empty(buffer.gradients.shape[1]), np.empty(4)
        before, after = (self.slots, self.cuts), (slots, new_cuts)
        cut = (gradient, offset, self.lam, self._max_idle_rounds)
        cuts.add_cut(
            before, *cut, (buffer.gradients, buffer.products), after, p, results
        )
        num_cuts, *means = results.tolist()
        at = CutAverage(p[: len(gradient)], *means)
        return self._replace(
            slots[: int(num_cuts)], new_cuts[: int(num_cuts)], buffer, at
        )

    @property
    def _max_idle_rounds(self) -> int:
        return -1 if self.drop_after is None else self.drop_after

    def _replace(
        self,
        slots: NDArray[np.int64],
        cuts: Floats,
        buffer: "_CutBuffer",
        at: CutAverage,
    ) -> "AllCuts":
        model = object.__new__(AllCuts)
        model.lam, model.drop_after = self.lam, self.drop_after
        model.slots, model.cuts, model.buffer, model.average = slots, cuts, buffer, at
        return model

    def _resize_buffer(self, size: int) -> "_CutBuffer":
        """Return a larger buffer with the cuts in the same rows."""
        t, buffer = (
            len(self.buffer.gradients),
            _CutBuffer.allocate(size, len(self.average.p)),
        )
        buffer.gradients[:t] = self.buffer.gradients
        buffer.products[:t, :t] = self.buffer.products
        return buffer

    def state(self) -> State:
        """Arrays from which ``load`` continues the run."""
        at = self.slots
        return {
            "slopes": self.buffer.gradients[at, : len(self.average.p)],
            "products": self.buffer.products[np.ix_(at, at)],
            "offsets": self.cuts[:, 0].copy(),
            "weights": self.cuts[:, 1].copy(),
            "idle": self.cuts[:, 2].astype(np.int64),
        }

    def load(self, state: State) -> "AllCuts":
        """Return the model of a saved state."""
        t, size = np.shape(state["slopes"])
        buffer = (
            self.buffer
            if t <= len(self.buffer.gradients)
            else _CutBuffer.allocate(2 * t, size)
        )
        buffer.gradients[:t, :size] = state["slopes"]
        buffer.products[:t, :t] = state["products"]
        columns = (state[name] for name in ("offsets", "weights", "idle"))
        cuts = np.stack([np.asarray(x, dtype=np.float64) for x in columns], axis=1)
        return self._replace(np.arange(t), cuts, buffer, self.average)


class _CutBuffer(NamedTuple):
    """Gradients of cuts in rows, and their inner products; some rows are unused.

    Rows start at multiples of the SIMD width and are padded with zeros.
    """

    gradients: Floats
    products: Floats

    @classmethod
    def allocate(cls, cuts: int, size: int) -> "_CutBuffer":
        padded_size = -(-size // LANES) * LANES
        # Uninitialised rows are never read; ``np.zeros`` would not align them.
        memory = np.empty(cuts * padded_size + LANES)
        first_aligned = -memory.ctypes.data // memory.itemsize % LANES
        gradients = memory[first_aligned : first_aligned + cuts * padded_size].reshape(
            cuts, padded_size
        )
        gradients[:, size:] = 0.0
        return cls(gradients, np.zeros((cuts, cuts)))


class AveragedCut:
    r"""Weighted average of all cuts, moved towards the newest by exact line search.

    .. math:: \eta = \Big[ \frac{\lambda (b_t - \beta) + \langle p, p - a_t \rangle}
        {\|a_t - p\|^2} \Big]_0^1

    Notes
    -----
    :math:`\eta` maximises the dual on the segment from the average :math:`(p, \beta)`
    to the cut :math:`(a_t, b_t)`. Time and memory are O(features). Source: as
    ``AllCuts``, section 5.
    """

    def __init__(self, lam: float, at: CutAverage | None = None) -> None:
        self.lam, self.has_cuts = lam, at is not None
        self.average = CutAverage(np.zeros(0), 0.0, 0.0, 0.0) if at is None else at

    def add(self, gradient: Floats, offset: float) -> "AveragedCut":
        """Move the average towards a new cut by exact line search."""
        length = math.sqrt(float(gradient @ gradient))
        new = CutAverage(gradient, offset, abs(offset), length)
        if not self.has_cuts:
            return AveragedCut(self.lam, new)
        old = self.average
        difference = gradient - old.p
        squared_distance = float(difference @ difference)
        ascent = self.lam * (offset - old.offset) - float(old.p @ difference)
        # Compare before dividing: equal cuts have distance 0.
        eta = 1.0 if ascent >= squared_distance else max(ascent / squared_distance, 0.0)
        p = (1 - eta) * old.p + eta * gradient
        # Rounding errors of averages follow the averages of magnitudes.
        pairs = zip(old[1:], new[1:], strict=True)
        means = ((1 - eta) * x + eta * y for x, y in pairs)
        return AveragedCut(self.lam, CutAverage(p, *means))

    def state(self) -> State:
        """Arrays from which ``load`` continues the run."""
        at = self.average
        return {
            "begun": np.array(self.has_cuts),
            "p": at.p.copy(),
            "offset": np.array(at.offset),
            "sizes": np.array([at.length, at.spread]),
        }

    def load(self, state: State) -> "AveragedCut":
        """Return the model of a saved state."""
        if not state["begun"]:
            return AveragedCut(self.lam)
        length, spread = (float(x) for x in state["sizes"])
        at = CutAverage(state["p"].copy(), float(state["offset"]), spread, length)
        return AveragedCut(self.lam, at)
