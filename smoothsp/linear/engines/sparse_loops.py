"""SGD and SVRG with sparse gradients: a step costs the entries of its gradient.

Operations on all weights are deferred. With scalars r, b, C and B and vectors V, Q and
c, the iterate and the weighted sum of iterates are

    x = r V + b c ,      sum_t rho_t x_t = C V - Q + B c .

A step ``x <- decay x + rate c - rate g`` sets ``r <- decay r, b <- decay b + rate`` and
changes V at the entries of g; Q changes there by C times as much.
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

# Below this, r is multiplied into V, since steps divide by r.
_MIN_SCALE = 1e-100


class LazyIterate:
    """Iterate and weighted sum of iterates, in the deferred form of the module."""

    def __init__(self, x: Flat, c: Flat | None = None) -> None:
        self.V, self.c = x.copy(), c
        self.Q = np.zeros_like(x)
        self.r, self.b, self.C, self.B = 1.0, 0.0, 0.0, 0.0

    def step(
        self, decay: float, rate: float, gradient: Vector, average_weight: float
    ) -> None:
        """Step ``x <- decay x + rate c - rate gradient``; add x to the weighted sum."""
        self.r, self.b = decay * self.r, decay * self.b
        if self.c is not None:
            self.b += rate
        if abs(self.r) < _MIN_SCALE:
            self._rescale()
        # r (V + change) = r V - rate g; the sum C V - Q must not change.
        change = gradient * (-rate / self.r)
        add(self.V, change)
        if self.C:
            add(self.Q, change * self.C)
        self.C += average_weight * self.r
        self.B += average_weight * self.b

    def _rescale(self) -> None:
        self.Q = self.Q - self.C * self.V
        self.V, self.r, self.C = self.r * self.V, 1.0, 0.0

    def as_combination(self) -> LazyCombination:
        """Iterate x as a LazyCombination, evaluated at the entries that are read."""
        terms = ((self.r, self.V),)
        return LazyCombination(terms if self.c is None else (*terms, (self.b, self.c)))

    def iterate(self) -> Flat:
        """Iterate x as a dense vector."""
        x = self.r * self.V
        return x if self.c is None else x + self.b * self.c

    def sum(self) -> Flat:
        """The weighted sum of iterates."""
        weighted_sum = self.C * self.V - self.Q
        return weighted_sum if self.c is None else weighted_sum + self.B * self.c

    def is_finite(self) -> bool:
        """Whether V and Q are finite."""
        return bool(np.isfinite(self.V).all() and np.isfinite(self.Q).all())


def _oracle_weights(
    objective: CallbackObjective, lazy_iterate: LazyIterate
) -> Flat | LazyCombination:
    """Weights for the oracle: lazy if the objective accepts them, else dense."""
    return (
        lazy_iterate.as_combination()
        if objective.accepts_lazy_weights
        else lazy_iterate.iterate()
    )


class SparseSGD:
    """Stochastic subgradient steps with sparse gradients."""

    def __init__(self, objective: CallbackObjective, schedule: PassSchedule) -> None:
        self.objective, self.schedule = objective, schedule
        self.initialise(objective.zero_buffer())

    @property
    def passes(self) -> int:
        """Number of passes made."""
        return self.sgd_state[0]

    @property
    def calls(self) -> int:
        """Oracle calls so far."""
        return self.passes * self.objective.n

    def initialise(self, w: Flat) -> None:
        """Set the iterate to w and discard the average."""
        # Passes, iterate, sum of iterates, sum of weights: one assignment replaces all.
        self.sgd_state = 0, w, np.zeros_like(w), 0.0

    def run_pass(self) -> None:
        """Make one pass over the examples."""
        objective = self.objective
        passes, w, m, total = self.sgd_state
        lazy_iterate, pass_schedule = LazyIterate(w), self.schedule(passes)
        for i, rate, average_weight in zip(*pass_schedule, strict=True):
            value, gradient = objective.example_loss_and_gradient(
                int(i), _oracle_weights(objective, lazy_iterate), objective.loss.mu
            )
            lazy_iterate.step(
                1 - rate * objective.lam, float(rate), gradient, float(average_weight)
            )
            if not np.isfinite(value):
                break
        else:
            if lazy_iterate.is_finite():
                weight_sum = float(pass_schedule[2].sum())
                self.sgd_state = (
                    passes + 1,
                    lazy_iterate.iterate(),
                    m + lazy_iterate.sum(),
                    total + weight_sum,
                )
                return
        raise FloatingPointError(
            f"SGD: the weights overflowed in pass {passes + 1}; choose a smaller rate"
        )

    def weights(self) -> Flat:
        """Weighted average of the iterates, or the last iterate without averaging."""
        _, w, m, total = self.sgd_state
        return m / total if total > 0 else w.copy()

    def state(self) -> State:
        """Arrays from which ``load`` continues the run."""
        passes, iterate, m, total = self.sgd_state
        return {
            "passes": np.array(passes),
            "w": self.weights(),
            "iterate": iterate.copy(),
            "m": m.copy(),
            "total": np.array(total),
        }

    def load(self, state: State) -> None:
        """Restore the arrays of ``state``."""
        w, m = np.empty((2, len(self.sgd_state[1])))
        checks.fill_from_state(state, iterate=w, m=m)
        self.sgd_state = int(state["passes"]), w, m, float(state["total"])


def sparse_svrg_epoch(
    objective: CallbackObjective,
    snapshot_w: Flat,
    snapshot_gradients: Any,
    c: Flat,
    order: NDArray[np.int64],
    rate: float,
    mu: float,
    kappa: float,
) -> Flat:
    """Run one SVRG epoch as ``dense_svrg_epoch``, with sparse gradients."""
    lazy_iterate, decay = LazyIterate(snapshot_w, c), 1 - rate * (objective.lam + kappa)
    is_finite = True
    for i in order:
        value, gradient = objective.example_loss_and_gradient(
            int(i), _oracle_weights(objective, lazy_iterate), mu
        )
        lazy_iterate.step(decay, rate, gradient - snapshot_gradients[i], 1.0)
        is_finite = is_finite and bool(np.isfinite(value))
    if not (is_finite and lazy_iterate.is_finite()):
        raise FloatingPointError(
            "the weights overflowed; choose a smaller rate or a larger smoothness"
        )
    return np.asarray(lazy_iterate.sum() / len(order))
