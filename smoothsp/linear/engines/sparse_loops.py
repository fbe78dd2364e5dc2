"""Passes of SGD and of SVRG where slopes are sparse: a step costs their entries.

What happens to all weights at once is put off. With r, b and C numbers, V, Q and c
vectors, the iterate and the sum of iterates are

    x = r V + b c ,      sum of shares times iterates = C V - Q + B c

so that a step ``x <- keep x + rate c - rate s`` is ``r <- keep r, b <- keep b + rate``
and a change of V at the entries of s, at which Q makes up for what C V gains.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.engines.callback_loops import PassSchedule
from smoothsp.linear.engines.callback_objective import CallbackObjective
from smoothsp.linear.inputs import checks
from smoothsp.linear.inputs.vectors import LazyCombination, Vector, add

Flat = NDArray[np.float64]
State = dict[str, NDArray[Any]]

# Below this r is taken into V: it must not vanish.
_SMALL = 1e-100


class LazyIterate:
    """An iterate, and a weighted sum of iterates."""

    def __init__(self, x: Flat, c: Flat | None = None) -> None:
        self.V, self.c = x.copy(), c
        self.Q = np.zeros_like(x)
        self.r, self.b, self.C, self.B = 1.0, 0.0, 0.0, 0.0

    def step(self, keep: float, rate: float, slope: Vector, share: float) -> None:
        """``x <- keep x + rate c - rate slope``, then ``share x`` more of the sum."""
        self.r, self.b = keep * self.r, keep * self.b
        if self.c is not None:
            self.b += rate
        if abs(self.r) < _SMALL:
            self._gather()
        change = slope * (-rate / self.r)
        add(self.V, change)
        if self.C:
            add(self.Q, change * self.C)
        self.C += share * self.r
        self.B += share * self.b

    def _gather(self) -> None:
        self.Q = self.Q - self.C * self.V
        self.V, self.r, self.C = self.r * self.V, 1.0, 0.0

    def read(self) -> LazyCombination:
        """x, where it is read."""
        terms = ((self.r, self.V),)
        return LazyCombination(terms if self.c is None else (*terms, (self.b, self.c)))

    def iterate(self) -> Flat:
        """X."""
        x = self.r * self.V
        return x if self.c is None else x + self.b * self.c

    def sum(self) -> Flat:
        """The weighted sum of iterates."""
        found = self.C * self.V - self.Q
        return found if self.c is None else found + self.B * self.c

    def finite(self) -> bool:
        """Whether all is finite, looked at once a pass."""
        return bool(np.isfinite(self.V).all() and np.isfinite(self.Q).all())


def _read(objective: CallbackObjective, sums: LazyIterate) -> Flat | LazyCombination:
    """The iterate as an oracle takes it: a function in Python reads all of it."""
    return sums.read() if objective.lazy else sums.iterate()


class SparseSGD:
    """Stochastic subgradient steps; see ``linear.sgd``."""

    def __init__(self, objective: CallbackObjective, plan: PassSchedule) -> None:
        self.objective, self.plan = objective, plan
        self.begin(objective.zero_buffer())

    @property
    def passes(self) -> int:
        """Passes so far."""
        return self.reached[0]

    @property
    def calls(self) -> int:
        """Oracle calls so far."""
        return self.passes * self.objective.n

    def begin(self, w: Flat) -> None:
        """Start from the weights w."""
        # passes, iterate, sum of iterates, of weights: replaced as one
        self.reached = 0, w, np.zeros_like(w), 0.0

    def advance(self) -> None:
        """One pass."""
        objective = self.objective
        passes, w, m, total = self.reached
        sums, order = LazyIterate(w), self.plan(passes)
        for i, rate, share in zip(*order, strict=True):
            value, slope = objective.one(
                int(i), _read(objective, sums), objective.loss.mu
            )
            sums.step(1 - rate * objective.lam, float(rate), slope, float(share))
            if not np.isfinite(value):
                break
        else:
            if sums.finite():
                more = float(order[2].sum())
                self.reached = passes + 1, sums.iterate(), m + sums.sum(), total + more
                return
        raise FloatingPointError(
            f"SGD: the weights overflowed in pass {passes + 1}; choose a smaller rate"
        )

    def weights(self) -> Flat:
        """Weighted average of the iterates, or the last of them."""
        _, w, m, total = self.reached
        return m / total if total > 0 else w.copy()

    def state(self) -> State:
        """Arrays from which ``load`` goes on."""
        passes, iterate, m, total = self.reached
        return {
            "passes": np.array(passes),
            "w": self.weights(),
            "iterate": iterate.copy(),
            "m": m.copy(),
            "total": np.array(total),
        }

    def load(self, state: State) -> None:
        """Go on from what ``state`` returned."""
        w, m = np.empty((2, len(self.reached[1])))
        checks.fill_from_state(state, iterate=w, m=m)
        self.reached = int(state["passes"]), w, m, float(state["total"])


def sparse_svrg_epoch(
    objective: CallbackObjective,
    begin: Flat,
    slopes: Any,
    c: Flat,
    order: NDArray[np.int64],
    rate: float,
    mu: float,
    kappa: float,
) -> Flat:
    """Run an epoch as ``dense_svrg_epoch`` does, on sparse rows."""
    sums, keep = LazyIterate(begin, c), 1 - rate * (objective.lam + kappa)
    finite = True
    for i in order:
        value, slope = objective.one(int(i), _read(objective, sums), mu)
        sums.step(keep, rate, slope - slopes[i], 1.0)
        finite = finite and bool(np.isfinite(value))
    if not (finite and sums.finite()):
        raise FloatingPointError(
            "the weights overflowed; choose a smaller rate or a larger smoothness"
        )
    return np.asarray(sums.sum() / len(order))
