"""Means over the sequences of a chain problem, by compiled loops."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp._kernels.linear import gradients as kernels
from smoothsp._kernels.linear.examples import Sentences
from smoothsp._kernels.linear.frank_wolfe import add_corners
from smoothsp._kernels.linear.slopes import ENTROPY, MAX, TOP_K
from smoothsp.linear.problems.batch import Slope, smoothing_of

Weights = NDArray[np.float64]


class ChainSums:
    """Methods of a ``BatchProblem`` for problems with ``sentences``."""

    # of the problem
    num_labels: int
    offsets: NDArray[np.int64]
    loss_scale: NDArray[np.float64]
    sentences: Sentences
    called: str

    @property
    def norms(self) -> Weights:
        """Norms of the problem."""
        raise NotImplementedError

    @property
    def flat_size(self) -> int:
        """Size of the flat weights of the problem."""
        raise NotImplementedError

    @property
    def border(self) -> int:
        """Border weights of the problem."""
        raise NotImplementedError

    @property
    def apart(self) -> Any:
        """Separate weights of the problem."""
        raise NotImplementedError

    def padded_weights(self, w: Weights) -> Weights:
        """Padded weights of the problem."""
        raise NotImplementedError

    def plain_weights(self, flat: Weights) -> Weights:
        """Plain weights of the problem."""
        raise NotImplementedError

    def risk(self, w: Weights) -> Slope:
        """Mean hinge at w, and a subgradient; see ``BatchProblem``."""
        return self._mean_slope(w, MAX, 1.0, 1)

    def smoothed_risk(
        self, w: Weights, mu: float, smoothing: str = "entropy", k: int = 5
    ) -> Slope:
        """Mean hinge smoothed from below, and its gradient; see ``BatchProblem``."""
        smoothing_of(smoothing, mu, k)
        kind, K = (ENTROPY, 1) if smoothing == "entropy" else (TOP_K, k)
        value, slope = self._mean_slope(w, kind, float(mu), K)
        # the loops smooth from above
        return value - mu * self.diameter(smoothing), slope

    def smoothed_tangent(
        self, w: Weights, mu: float, smoothing: str = "entropy", k: int = 5
    ) -> tuple[float, Weights, float]:
        """Result of ``smoothed_risk``, and the expected cost: a tangent at 0.

        ``<v, slope>`` and the expected cost are at most the risk at any v.
        """
        smoothing_of(smoothing, mu, k)
        kind, K = (ENTROPY, 1) if smoothing == "entropy" else (TOP_K, k)
        s, n = self.apart, len(self.offsets) - 1
        nodes, edges = np.empty((len(s.labels), s.P)), np.empty((n, s.S * s.P))
        kept = nodes.reshape(-1), edges
        value, slope = self._mean_slope(w, kind, float(mu), K, kept=kept)
        table = s.costs.reshape(-1, s.P)
        costs = np.where(np.isfinite(table), table, 0.0)[s.labels]
        # right labels, which nodes have less 1, cost nothing
        each = (nodes * costs).sum(1)
        cost = float(each @ np.repeat(s.scales, np.diff(self.offsets)))
        return value - mu * self.diameter(smoothing), slope, cost / n

    def diameter(self, smoothing: str = "entropy") -> float:
        """Largest gap between risk and smoothed risk, divided by mu."""
        smoothing_of(smoothing, 1.0, 1)
        if smoothing == "l2":
            return 0.5 * float(self.loss_scale.mean())
        words = float((self.loss_scale * np.diff(self.offsets)).mean())
        return words * float(np.log(self.num_labels))

    def corners(self, w: Weights, scale: float) -> tuple[Weights, float, float]:
        """``scale`` times the sum of psi of the worst outputs, mean loss and hinge."""
        s, n = self.sentences, len(self.offsets) - 1
        v, losses, hinges = np.zeros(self.flat_size), np.empty(n), np.empty(n)
        add_corners(0, n, s, self.padded_weights(w), scale, v, losses, hinges)
        return self.plain_weights(v), float(losses.mean()), float(hinges.mean())

    def require_range(self, lam: float) -> None:
        """Refuse features with which a step of a dual solver leaves float64.

        The curvature along one is at most ``|psi_i|^2 / (lambda n)``, and psi_i at most
        twice the norms of the words, summed.
        """
        norms, n = 2 * self.norms, len(self.offsets) - 1
        with np.errstate(over="ignore"):
            wrong = ~np.isfinite(norms * norms)
            wrong |= ~np.isfinite(norms / (lam * n) * norms)
        if wrong.any():
            i = int(wrong.argmax())
            raise ValueError(
                f"{self.called}: expected words whose squared norm over lambda n fits"
                f" float64, got norms that sum to {self.norms[i]:.3g} in sentence {i};"
                " scale the features, or raise lambda (lower C)"
            )

    def likelihood(self, w: Weights) -> Slope:
        """Mean negative log-likelihood of the labels, and its gradient."""
        return self._mean_slope(w, ENTROPY, 1.0, 1, with_costs=False)

    def mean_slope(self, w: Weights, loss: str, mu: float, k: int) -> Slope:
        """The mean loss, smoothed from above, and its gradient."""
        if loss == "likelihood":
            return self.likelihood(w)
        kind = {"hinge": MAX, "hinge-l2": TOP_K, "hinge-entropy": ENTROPY}[loss]
        if mu == 0:
            kind = MAX
        return self._mean_slope(w, kind, float(mu) or 1.0, k if kind == TOP_K else 1)

    def _mean_slope(
        self,
        w: Weights,
        kind: int,
        mu: float,
        k: int,
        with_costs: bool = True,
        kept: tuple[Weights, Weights] | None = None,
    ) -> Slope:
        s, flat, border = self.apart, self.padded_weights(w), self.border
        if not with_costs:
            # -inf past the last label stays
            s = s._replace(costs=np.minimum(s.costs, 0.0))
        n, slope = len(s.offsets) - 1, np.zeros_like(flat)
        none, losses = np.empty(0), np.empty(n)
        nodes, edges = kept or (none, none.reshape(0, s.S * s.P))
        kernels.gradient(
            s,
            flat[:border],
            flat[border:],
            kind,
            mu,
            k,
            kept is not None,
            slope[:border],
            slope[border:],
            nodes,
            edges,
            losses,
        )
        return float(losses.mean()), self.plain_weights(slope) / n
