"""The objective of a problem behind a Python oracle, and its gradient, in numpy."""

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
    """Objective of other problems: dense weights and gradients."""

    compiled = False
    # whether ``one`` takes weights that are not added up yet
    lazy = False

    def __init__(self, problem: Any, loss: Loss, lam: float) -> None:
        self._require(problem, loss)
        self.problem, self.loss, self.lam = problem, loss, lam
        self.n = len(problem)
        self.sparse = isinstance(make_vector_store(problem), SparseVectorStore)

    def _require(self, problem: Any, loss: Loss) -> None:
        if loss.name not in ("hinge", "hinge-l2"):
            raise ValueError(
                f"loss: expected 'hinge' or 'hinge-l2' for {type(problem).__name__},"
                f" got {loss.name!r}, which sums over all outputs; use StructureProblem"
            )
        if loss.name == "hinge-l2" and problem.topk_oracle is None:
            few = problem.called[1]
            raise ValueError(
                "loss: 'hinge-l2' asks for the k worst outputs, and this problem has no"
                f" {few}; give it {few}(i, w, k), or choose 'hinge'"
            )

    def zero_buffer(self) -> Flat:
        """Zeros as large as the weights."""
        return np.zeros(self.problem.num_weights)

    def unpad(self, flat: Flat) -> Flat:
        """A copy."""
        return flat.copy()

    def used(self) -> NDArray[np.int64]:
        """All weights."""
        return np.arange(self.problem.num_weights)

    def one(self, i: int, w: Any, mu: float) -> tuple[float, Vector]:
        """Loss of example i, and its slope."""
        if self.loss.name == "hinge" or mu == 0:
            worst = self.problem.worst(i, w)
            psi = as_vector(worst.psi)
            return worst.loss - dot(psi, w), -psi
        found = self.problem.worst_few(i, w, self.loss.k)
        known = [as_vector(corner.psi) for corner in found]
        scores = [dot(psi, w) for psi in known]
        z = np.array([corner.loss for corner in found]) - np.array(scores)
        if not np.isfinite(z).all():
            return math.nan, known[0]
        order = np.argsort(-z, kind="stable")
        value, u = smoothed_max(z[order], mu)
        slope = known[order[0]] * -u[0]
        for share, j in zip(u[1:], order[1:], strict=True):
            slope = slope - known[j] * share
        return value, slope

    def losses(self, flat: Flat, mu: float) -> NDArray[np.float64]:
        """The loss of each example."""
        return np.array([self.one(i, flat, mu)[0] for i in range(self.n)])

    def gradient(
        self, flat: Flat, mu: float, G: Flat, per_example: bool = False
    ) -> tuple[float, Any, Flat]:
        """Fill G with the mean slope; the mean loss, and the slopes if wanted."""
        slopes = make_vector_store(self.problem).zeros(self.n if per_example else 0)
        total = 0.0
        G[:] = 0
        for i in range(self.n):
            value, slope = self.one(i, flat, mu)
            total += value
            add(G, slope)
            if per_example:
                slopes[i] = slope
        G /= self.n
        return total / self.n, slopes, np.empty(0)

    def as_start_weights(self, start: object) -> Flat:
        """A copy of weights to start from."""
        return check_start_weights(start, self.problem.num_weights)
