"""Objective and gradient of problems with an oracle in Python, in numpy."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp.linear.engines.compiled_objective import Loss
from smoothsp.linear.engines.solution import check_start_weights
from smoothsp.linear.inputs.vectors import (
    SparseVectorStore,
    Vector,
    add,
    as_vector,
    dot,
    make_vector_store,
)
from smoothsp.linear.problems.batch import smoothed_max

Flat = NDArray[np.float64]


class CallbackObjective:
    """Objective of problems with a Python oracle: dense weights and gradients."""

    compiled = False
    # whether example_loss_and_gradient takes a LazyCombination as weights
    accepts_lazy_weights = False

    def __init__(self, problem: Any, loss: Loss, lam: float) -> None:
        self._require_supported_loss(problem, loss)
        self.problem, self.loss, self.lam = problem, loss, lam
        self.n = len(problem)
        self.sparse = isinstance(make_vector_store(problem), SparseVectorStore)

    def _require_supported_loss(self, problem: Any, loss: Loss) -> None:
        if loss.name not in ("hinge", "hinge-l2"):
            raise ValueError(
                f"loss: expected 'hinge' or 'hinge-l2' for {type(problem).__name__},"
                f" got {loss.name!r}, which sums over all outputs; use StructureProblem"
            )
        if loss.name == "hinge-l2" and problem.topk_oracle is None:
            oracle_name = problem.called[1]
            raise ValueError(
                "loss: expected 'hinge' for a problem without"
                f" {oracle_name}, got 'hinge-l2', which needs the k worst outputs;"
                f" implement {oracle_name}(i, w, k), or use 'hinge'"
            )

    def zero_buffer(self) -> Flat:
        """New vector of zeros, of the size of the weights."""
        return np.zeros(self.problem.num_weights)

    def unpad(self, flat: Flat) -> Flat:
        """Copy of the weights, which have no padding here."""
        return flat.copy()

    def active_weights(self) -> NDArray[np.int64]:
        """Indices of the weights that can have a gradient: all."""
        return np.arange(self.problem.num_weights)

    def example_loss_and_gradient(
        self, i: int, w: Any, mu: float
    ) -> tuple[float, Vector]:
        """Loss of example i and its gradient in w."""
        if self.loss.name == "hinge" or mu == 0:
            worst = self.problem.worst(i, w)
            psi = as_vector(worst.psi)
            return worst.loss - dot(psi, w), -psi
        corners = self.problem.worst_few(i, w, self.loss.k)
        features = [as_vector(corner.psi) for corner in corners]
        scores = [dot(psi, w) for psi in features]
        z = np.array([corner.loss for corner in corners]) - np.array(scores)
        if not np.isfinite(z).all():
            return math.nan, features[0]
        # A stable order of ties: the projection is then independent of the platform.
        order = np.argsort(-z, kind="stable")
        value, u = smoothed_max(z[order], mu)
        # -sum_j u_j psi_j; starting from a term keeps psi sparse or dense.
        gradient = features[order[0]] * -u[0]
        for weight, j in zip(u[1:], order[1:], strict=True):
            gradient = gradient - features[j] * weight
        return value, gradient

    def losses(self, flat: Flat, mu: float) -> NDArray[np.float64]:
        """Losses of all examples, ``(n,)``."""
        return np.array(
            [self.example_loss_and_gradient(i, flat, mu)[0] for i in range(self.n)]
        )

    def gradient(
        self, flat: Flat, mu: float, G: Flat, per_example: bool = False
    ) -> tuple[float, Any, Flat]:
        """Fill G with the mean gradient; return mean loss and per-example gradients."""
        example_gradients = make_vector_store(self.problem).zeros(
            self.n if per_example else 0
        )
        total = 0.0
        G[:] = 0
        for i in range(self.n):
            value, example_gradient = self.example_loss_and_gradient(i, flat, mu)
            total += value
            add(G, example_gradient)
            if per_example:
                example_gradients[i] = example_gradient
        G /= self.n
        return total / self.n, example_gradients, np.empty(0)

    def as_start_weights(self, start: object) -> Flat:
        """Copy of user-given start weights, validated."""
        return check_start_weights(start, self.problem.num_weights)
