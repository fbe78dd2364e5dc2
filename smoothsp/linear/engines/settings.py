"""Parameters of solvers, checked: tolerances, steps, and random numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.engines.solution import Certificate
from smoothsp.linear.inputs import checks

SAMPLINGS = ("gap", "uniform", "permutation")
STEPS = ("fw", "pairwise", "away", "safeguarded", "best")
# More labellings than any example keeps.
UNLIMITED = 2**30
STOPPING = ("objective", "relative_gap", "gap")


@dataclass(frozen=True)
class Tolerance:
    """A tolerance relative to the objective, as ``tol`` of a solver.

    A number as ``tol`` of a solver is the gap itself.

    Parameters
    ----------
    tol
        At least 0.
    stopping
        ``"objective"``: stop at a gap of ``tol`` times the dual, so that the objective
        is at most ``1 + tol`` times its minimum, if that is positive.
        ``"relative_gap"``: at ``tol`` times the first gap. ``"gap"``: at ``tol``.

    Notes
    -----
    Source: Wang and Scott, "An Exact Solver for the Weston-Watkins SVM Subproblem",
    sections 5 and A.6.3, for ``"relative_gap"``.

    Examples
    --------
    >>> import numpy as np
    >>> from smoothsp.linear.problems import MulticlassProblem
    >>> from smoothsp.linear.solvers import BCFW, Tolerance
    >>> solver = BCFW(lam=0.1, tol=Tolerance(0.01))
    >>> solution = solver.solve(MulticlassProblem(np.eye(2), [0, 1]))
    >>> bool(solution.gap <= 0.01 * solution.dual)
    True
    """

    tol: float
    stopping: str = "objective"

    def goal(self, history: Sequence[Certificate]) -> float:
        """Return the gap to stop at, given the certificates so far; 0 for none."""
        if self.stopping == "gap":
            return self.tol
        if not history:
            return 0.0
        if self.stopping == "relative_gap":
            return self.tol * history[0].gap
        # NaN where no bound is known
        return self.tol * max(0.0, history[-1].dual)


@dataclass(frozen=True)
class EngineSettings:
    """Settings of both engines.

    ``steps`` is an index into ``STEPS``; ``local`` and ``overall`` are F and nu of the
    criterion for cache hits.
    """

    lam: float
    steps: int
    cached: bool
    local: float
    overall: float
    most: int
    averaging: bool
    lower: Any
    upper: Any
    # examples that are asked for at once
    batch: int = 1

    @property
    def boxed(self) -> bool:
        """Whether weights have bounds."""
        return self.lower is not None or self.upper is not None

    @property
    def weighed(self) -> bool:
        """Whether labellings have weights, not only a place in the cache."""
        return self.steps != 0


def box(
    bounds: Any, num_weights: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lower and upper bound of each weight."""
    ends = []
    for name, given, none in zip(
        ("lower", "upper"), bounds, (-math.inf, math.inf), strict=True
    ):
        value = np.asarray(none if given is None else given, dtype=np.float64)
        if value.shape not in ((), (num_weights,)):
            raise ValueError(
                f"bounds: expected a number or ({num_weights},) numbers as {name} "
                f"bound, got {value.shape}"
            )
        ends.append(np.broadcast_to(value, (num_weights,)).copy())
    if not (ends[0] <= ends[1]).all():
        i = int((~(ends[0] <= ends[1])).argmax())
        raise ValueError(
            f"bounds: expected lower <= upper, got {ends[0][i]} and {ends[1][i]} at "
            f"weight {i}"
        )
    return ends[0], ends[1]


def pair_of_bounds(bounds: Any) -> tuple[Any, Any]:
    """``(lower, upper)``, either of them None for no bound."""
    if bounds is None:
        return None, None
    if not isinstance(bounds, tuple) or len(bounds) != 2:
        raise TypeError(f"bounds: expected (lower, upper) or None, got {bounds!r}")
    return bounds


def seed_of(seed: object) -> int:
    """An integer of at least 0."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise TypeError(f"seed: expected an int of at least 0, got {seed!r}")
    return int(seed)


def seconds_of(value: object) -> float:
    """A budget of seconds, infinite for None."""
    return math.inf if value is None else checks.positive("max_seconds", value)


def save_stream(stream: np.random.Generator) -> NDArray[np.uint64]:
    """The state of a generator as six words."""
    known: Any = stream.bit_generator.state
    words = []
    for number in (known["state"]["state"], known["state"]["inc"]):
        words += [number >> 64, number & (2**64 - 1)]
    return np.array([*words, known["has_uint32"], known["uinteger"]], dtype=np.uint64)


def load_stream(words: NDArray[np.uint64]) -> np.random.Generator:
    """The generator whose state was saved."""
    stream = np.random.Generator(np.random.PCG64())
    high, low, inc_high, inc_low, has, last = (int(x) for x in words)
    stream.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {"state": (high << 64) | low, "inc": (inc_high << 64) | inc_low},
        "has_uint32": has,
        "uinteger": last,
    }
    return stream
