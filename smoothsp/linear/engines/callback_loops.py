"""SGD and SVRG on dense vectors in numpy, with the iterates of the compiled loops.

    w_t = (1 - gamma_t lambda) w_{t-1} - gamma_t g_t ,   m_t = m_{t-1} + rho_t w_t
    x_t = x_{t-1} - gamma (g_i(x) - g_i(snapshot) + gbar + lambda x + kappa (x - z))

Source: Pillutla et al., "A Smoother Way to Train Structured Prediction Models",
sections 5 and 7.2.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.engines.callback_objective import CallbackObjective
from smoothsp.linear.inputs import checks

Flat = NDArray[np.float64]
State = dict[str, NDArray[Any]]
# Function of the pass number: order, step sizes, and weights in the average.
PassSchedule = Callable[[int], tuple[NDArray[np.int64], Flat, Flat]]


class _SGDState(NamedTuple):
    """Passes made, iterate w, weighted sum m of iterates, and sum of the weights."""

    passes: int
    w: Flat
    m: Flat
    total: float


class DenseSGD:
    """Stochastic subgradient steps on dense vectors."""

    def __init__(self, objective: CallbackObjective, schedule: PassSchedule) -> None:
        self.objective, self.schedule = objective, schedule
        self.initialise(objective.zero_buffer())

    @property
    def passes(self) -> int:
        """Number of passes made."""
        return self.sgd_state.passes

    @property
    def calls(self) -> int:
        """Oracle calls so far."""
        return self.passes * self.objective.n

    def initialise(self, w: Flat) -> None:
        """Set the iterate to w and discard the average."""
        # One assignment replaces all, so that Ctrl-C cannot separate them.
        self.sgd_state = _SGDState(0, w, self.objective.zero_buffer(), 0.0)

    def run_pass(self) -> None:
        """Make one pass over the examples."""
        objective = self.objective
        passes, w, m, total = self.sgd_state
        order, rates, average_weights = self.schedule(passes)
        for i, rate, average_weight in zip(order, rates, average_weights, strict=True):
            value, gradient = objective.example_loss_and_gradient(
                int(i), w, objective.loss.mu
            )
            # New arrays: an interrupt within a pass must not change the state.
            w = (1 - rate * objective.lam) * w - rate * gradient
            if not (np.isfinite(value) and np.isfinite(w).all()):
                raise FloatingPointError(
                    f"SGD: the weights overflowed in pass {passes + 1}; choose a"
                    " smaller rate"
                )
            if average_weight > 0:
                m = m + average_weight * w
        self.sgd_state = _SGDState(
            passes + 1, w, m, total + float(average_weights.sum())
        )

    def weights(self) -> Flat:
        """Weighted average of the iterates, or the last iterate without averaging."""
        _, w, m, total = self.sgd_state
        return m / total if total > 0 else w.copy()

    def state(self) -> State:
        """Arrays from which ``load`` continues the run."""
        passes, iterate, m, total = self.sgd_state
        numbers = {"passes": np.array(passes), "total": np.array(total)}
        return {
            "w": self.weights(),
            "iterate": iterate.copy(),
            "m": m.copy(),
            **numbers,
        }

    def load(self, state: State) -> None:
        """Restore the arrays of ``state``."""
        w, m = np.empty((2, len(self.sgd_state.w)))
        checks.fill_from_state(state, iterate=w, m=m)
        self.sgd_state = _SGDState(int(state["passes"]), w, m, float(state["total"]))


def dense_svrg_epoch(
    objective: CallbackObjective,
    snapshot_w: Flat,
    snapshot_gradients: Flat,
    c: Flat,
    order: NDArray[np.int64],
    rate: float,
    mu: float,
    kappa: float,
) -> Flat:
    """Run one SVRG epoch from the snapshot; return the mean of its iterates.

    ``snapshot_gradients`` are those of the examples at the snapshot, and
    ``c = kappa z - gbar``.
    """
    x, total = snapshot_w, objective.zero_buffer()
    decay = 1 - rate * (objective.lam + kappa)
    for i in order:
        value, gradient = objective.example_loss_and_gradient(int(i), x, mu)
        x = decay * x + rate * c - rate * (gradient - snapshot_gradients[i])
        if not (np.isfinite(value) and np.isfinite(x).all()):
            raise FloatingPointError(
                "the weights overflowed; choose a smaller rate or a larger smoothness"
            )
        total += x
    return np.asarray(total / len(order))
