"""Objective of problems over any structure, in batches of examples."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.engines.callback_objective import CallbackObjective
from smoothsp.linear.engines.compiled_objective import Loss
from smoothsp.linear.inputs import checks
from smoothsp.linear.inputs.vectors import ZERO, Vector, add

Flat = NDArray[np.float64]


class StructureObjective(CallbackObjective):
    """Objective of structures: dense weights, sparse gradients."""

    accepts_lazy_weights = True

    def _require_supported_loss(self, problem: Any, loss: Loss) -> None:
        """Check nothing: structures raise for losses that they do not support."""

    def example_loss_and_gradient(
        self, i: int, w: Any, mu: float
    ) -> tuple[float, Vector]:
        """Loss of example i and its gradient; NaN if potentials overflow."""
        try:
            values_and_gradients = self.problem.slopes(
                w, *self._loss_arguments(mu), np.array([i])
            )
        except checks.Diverged:
            return math.nan, ZERO
        return float(values_and_gradients[0][0]), values_and_gradients[1][0]

    def _loss_arguments(self, mu: float) -> tuple[str, float, int]:
        """Name, mu and number of outputs; with mu = 0 the name is hinge."""
        name = self.loss.name if mu > 0 or self.loss.name == "likelihood" else "hinge"
        return name, mu, self.loss.k

    def losses(self, flat: Flat, mu: float) -> Flat:
        """Losses of all examples, ``(n,)``."""
        name, *options = self._loss_arguments(mu)
        if name == "hinge":
            return np.asarray(self.problem.hinges(flat))
        return np.asarray(self.problem.losses(flat, name, *options))

    def gradient(
        self, flat: Flat, mu: float, G: Flat, per_example: bool = False
    ) -> tuple[float, Any, Flat]:
        """Fill G with the mean gradient; return mean loss and per-example gradients."""
        if not per_example:
            value, G[:] = self.problem.mean_slope(flat, *self._loss_arguments(mu))
            return value, [], np.empty(0)
        all_examples = np.arange(self.n)
        values, example_gradients = self.problem.slopes(
            flat, *self._loss_arguments(mu), all_examples
        )
        G[:] = 0
        # ``slopes`` returns one gradient per example; their sum fills the dense buffer.
        for example_gradient in example_gradients:
            add(G, example_gradient)
        G /= self.n
        return float(values.mean()), example_gradients, np.empty(0)
