"""Compiled objective and gradient of chain problems, under one of four losses."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smoothsp._kernels.linear import gradients as kernels
from smoothsp._kernels.linear.sequence_loss import ENTROPY, MAX, TOP_K
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp.linear.engines.solution import check_start_weights
from smoothsp.linear.inputs import checks
from smoothsp.linear.inputs.arrays import aligned_zeros
from smoothsp.linear.problems import ChainProblem

Flat = NDArray[np.float64]

LOSS_KERNELS = {
    "hinge": MAX,
    "hinge-l2": TOP_K,
    "hinge-entropy": ENTROPY,
    "likelihood": ENTROPY,
}


@dataclass(frozen=True)
class Loss:
    """Loss by its name in ``LOSS_KERNELS``, with the strength of its smoothing.

    ``mu`` smooths ``"hinge-l2"`` and ``"hinge-entropy"``; ``mu = 0`` is the hinge.
    ``k`` is the number of outputs of ``"hinge-l2"``.
    """

    name: str
    mu: float = 1.0
    k: int = 5

    def __post_init__(self) -> None:
        checks.require_choice("loss", self.name, tuple(LOSS_KERNELS))
        checks.as_nonnegative("mu", self.mu)
        checks.as_positive_int("k", self.k)

    def kernel_arguments(self, mu: float) -> tuple[int, float, int]:
        """Arguments of kernels: kind of maximum, mu, number of labellings.

        The likelihood is the entropy-smoothed maximum with mu = 1.
        """
        if self.name == "likelihood":
            return ENTROPY, 1.0, 1
        kind = LOSS_KERNELS[self.name] if mu > 0 else MAX
        return kind, float(mu) or 1.0, self.k if kind == TOP_K else 1


class ChainObjective:
    """Regularised mean loss of a chain problem.

    Weights are one padded array: word weights W, then those of transitions.
    """

    compiled = True

    def __init__(self, problem: ChainProblem, loss: Loss, lam: float) -> None:
        self.problem, self.loss, self.lam = problem, loss, lam
        self.n = len(problem)
        self.size, self.border = problem.flat_size, problem.border
        s = problem.apart
        if loss.name == "likelihood":
            # The likelihood has no costs; the padding past the last label keeps -inf.
            s = s._replace(costs=np.minimum(s.costs, 0.0))
        self.sequences = s

    def split_weights(self, flat: Flat) -> tuple[Flat, Flat]:
        """Views of W and of the weights of transitions."""
        return flat[: self.border], flat[self.border :]

    def zero_buffer(self) -> Flat:
        """New vector of zeros, of the size of the weights."""
        return aligned_zeros(self.size, np.float64)

    def unpad(self, flat: Flat) -> Flat:
        """Copy of the weights without padding."""
        return np.asarray(self.problem.plain_weights(flat))

    def active_weights(self) -> NDArray[np.int64]:
        """Indices of the weights of features that occur."""
        return self.problem.used()

    def losses(self, flat: Flat, mu: float) -> NDArray[np.float64]:
        """Losses of all examples, ``(n,)``."""
        losses_out = np.empty(self.n)
        run_rows(
            kernels.sequence_losses,
            self.n,
            self.problem.indices.size * self.problem.row_width // 8,
            self.sequences,
            *self.split_weights(flat),
            *self.loss.kernel_arguments(mu),
            losses_out,
        )
        return losses_out

    def gradient(
        self, flat: Flat, mu: float, G: Flat, per_example: bool = False
    ) -> tuple[float, Flat, Flat]:
        """Fill G with the mean gradient; return mean loss and example marginals."""
        s = self.sequences
        G[:] = 0
        nodes = np.empty(len(self.problem.labels) * s.P if per_example else 0)
        edges = np.empty((self.n if per_example else 0, s.S * s.P))
        losses = np.empty(self.n)
        kernels.losses_and_gradient(
            s,
            *self.split_weights(flat),
            *self.loss.kernel_arguments(mu),
            per_example,
            *self.split_weights(G),
            nodes,
            edges,
            losses,
        )
        G /= self.n
        return float(losses.mean()), nodes, edges

    def as_start_weights(self, start: object) -> Flat:
        """Padded copy of user-given start weights, validated."""
        w = check_start_weights(start, self.problem.num_weights)
        return np.asarray(self.problem.padded_weights(w))
