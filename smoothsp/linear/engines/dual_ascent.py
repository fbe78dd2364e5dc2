"""Dual coordinate ascent for the likelihood: arrays of the state, calls of kernels."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp._kernels.linear import dual_ascent as kernels
from smoothsp._kernels.linear.sampling_tree import fill_tree
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp.linear.engines.compiled_dual import compute_gram_matrices
from smoothsp.linear.inputs.arrays import (
    aligned_zeros,
    require_memory,
    round_up_to_lanes,
)
from smoothsp.linear.problems import ChainProblem

Floats = NDArray[np.float64]
# Upper bound of the uniform distribution's weight in the initial dual variables.
_MAX_UNIFORM_WEIGHT = 0.1
_MEMORY_HINT = (
    "Fewer or shorter sequences, or fewer labels, take less; LBFGS"
    " (solver='lbfgs' of ChainCRF) stores no marginals."
)


class DualAscentEngine:
    r"""Dual variables of a CRF as marginals, its weights, and their steps.

    .. math:: D(\mu) = \frac1n \sum_i H(\mu_i) - \frac{\lambda}{2} \|w(\mu)\|^2, \qquad
        w(\mu) = \frac{1}{\lambda n} \sum_i \bigl( \phi(x_i, y_i)
        - \mathbb E_{\mu_i} [\phi(x_i, y)] \bigr)

    Parameters
    ----------
    problem
        Chain problem; its costs are not used.
    lam
        lambda.
    precision
        Relative change of the step size at which a line search ends.
    uniform_weight
        Weight of the uniform distribution in each block at the start; the gold output
        has the rest. None: lambda, at most 0.1.
    """

    compiled = True

    def __init__(
        self,
        problem: ChainProblem,
        lam: float,
        precision: float = 0.1,
        uniform_weight: float | None = None,
    ) -> None:
        self.problem = problem
        s = self._sequences = problem.sequences
        self.n = len(problem)
        self._settings = kernels.StepRule(lam, precision)
        num_positions, count = len(problem.labels), problem.flat_size
        lengths = np.diff(s.offsets)
        num_entries = np.maximum(lengths - 1, 0) * s.S**2
        # Edge marginals of each sequence start at a multiple of the SIMD width.
        padded_sizes = -(
            -num_entries // round_up_to_lanes(1, np.float64)
        ) * round_up_to_lanes(1, np.float64)
        edge_offsets = np.concatenate([[0], np.cumsum(padded_sizes)])
        is_restricted = problem.seen is not None
        require_memory(
            {
                f"weights of {problem.num_features:,} features": 8
                * (1 + 2 * is_restricted)
                * count,
                f"marginals of {num_positions:,} words": 16 * s.P * num_positions,
                f"marginals of {int(num_entries.sum()):,} pairs of labels, with the"
                " copy in the state": 16 * int(edge_offsets[-1]),
            },
            _MEMORY_HINT,
        )
        self._duals = kernels.BlockMarginals(
            aligned_zeros(num_positions * s.P, np.float64),
            aligned_zeros(int(edge_offsets[-1]), np.float64),
            edge_offsets,
            np.full(self.n, math.inf),
        )
        mask = aligned_zeros(count if is_restricted else 0, np.float64)
        products = compute_gram_matrices(problem)
        if problem.seen is not None:
            mask[problem.seen] = 1
            products = products._replace(rows=aligned_zeros(count, np.float64))
        self._primal = kernels.Primal(aligned_zeros(count, np.float64), mask, products)
        self._counts = np.zeros(3, np.int64)
        self._tree = np.zeros(2 * 2 ** max(math.ceil(math.log2(self.n)), 0))
        # inner-loop steps of a pass
        self._work = (len(s.indices) + len(s.labels) * s.S) * s.P // 8
        self.num_certificates = self.certificate_oracle_calls = 0
        # At a vertex the entropy has an infinite derivative: start in the interior.
        start_weight = (
            min(_MAX_UNIFORM_WEIGHT, lam) if uniform_weight is None else uniform_weight
        )
        run_rows(
            kernels.smoothed_gold_marginals,
            self.n,
            self._work,
            s,
            start_weight,
            self._duals,
        )
        self.rebuild_weights()

    @property
    def gap_estimates(self) -> Floats:
        """Gaps ``(n,)`` of the examples at their last visits, over n."""
        return self._duals.gaps

    @property
    def oracle_calls(self) -> int:
        """Forward-backward calls so far, those of certificates included."""
        return int(self._counts[kernels.CALLS]) + self.certificate_oracle_calls

    @property
    def evaluations(self) -> int:
        """Number of derivative evaluations of all line searches."""
        return int(self._counts[kernels.EVALUATIONS])

    @property
    def w(self) -> Floats:
        """Weights, a copy."""
        return self.problem.plain_weights(self._primal.w)

    @property
    def blocks(self) -> tuple[Floats, list[Floats]]:
        """Marginals ``(positions, S)``, and ``(steps, S, S)`` of each sequence."""
        s, d = self._sequences, self._duals
        steps = np.maximum(np.diff(s.offsets) - 1, 0)
        edges = [
            d.edges[a : a + t * s.S**2].reshape(t, s.S, s.S)
            for a, t in zip(d.edge_offsets, steps, strict=False)
        ]
        return d.nodes.reshape(-1, s.P)[:, : s.S], edges

    def visit_in_order(self, order: NDArray[np.int64]) -> None:
        """Make one step for each example of ``order``."""
        kernels.visit_in_order(order, *self._kernel_arguments())

    def visit_by_gap(self, uniforms: Floats, gap_floor: float) -> int:
        """Sample examples by estimated gaps until these sum to ``gap_floor``.

        Returns the number of steps made.
        """
        steps_before = int(self._counts[kernels.STEPS])
        fill_tree(self.gap_estimates, self._tree)
        kernels.visit_by_gap(uniforms, gap_floor, self._tree, *self._kernel_arguments())
        return int(self._counts[kernels.STEPS]) - steps_before

    def _kernel_arguments(self) -> tuple[Any, ...]:
        return self._sequences, self._settings, self._primal, self._duals, self._counts

    def compute_certificate(self) -> tuple[float, float, float]:
        """Compute primal, dual and the exact gap of each example by n oracle calls."""
        losses, w = np.empty(self.n), self._primal.w
        gaps = self._duals.gaps
        run_rows(
            kernels.exact_gaps,
            self.n,
            self._work,
            self._sequences,
            w,
            self._duals,
            gaps,
            losses,
        )
        self.num_certificates += 1
        self.certificate_oracle_calls += self.n
        primal = self._settings.lam / 2 * float(np.dot(w, w)) + float(losses.mean())
        gap = float(gaps.sum())
        # The Kullback-Leibler divergences are summed, not subtracted from two
        # objectives.
        return primal, primal - gap, gap

    def rebuild_weights(self) -> None:
        """Recompute w from the dual variables, without accumulated rounding errors."""
        p = self._primal
        w = aligned_zeros(len(p.w), np.float64)
        kernels.primal_from_dual(self._sequences, self._settings.lam, self._duals, w)
        # Restricted label pairs have no weights: their expected features are dropped.
        if len(p.mask):
            w *= p.mask
        p.w[:] = w

    # warm starts

    def set_duals_at(self, flat: Floats) -> None:
        """Set dual variables to the marginals at padded weights; recompute w."""
        run_rows(
            kernels.marginals_at_weights,
            self.n,
            self._work,
            self._sequences,
            flat,
            self._duals,
        )
        self.certificate_oracle_calls += self.n
        self.rebuild_weights()

    def load_duals(self, state: dict[str, NDArray[Any]]) -> None:
        """Start from the dual variables of a state, at any lambda."""
        s, d = self._sequences, self._duals
        expected = (len(s.labels), s.S), d.edges.shape
        saved = np.shape(state["nodes"]), np.shape(state["edges"])
        if saved != expected:
            raise ValueError(
                f"state: expected marginals of {expected} as this problem has, got"
                f" {saved}"
            )
        d.nodes.reshape(-1, s.P)[:, : s.S] = state["nodes"]
        d.edges[:] = state["edges"]
        self.rebuild_weights()

    # saving

    def state(self) -> dict[str, NDArray[Any]]:
        """Arrays from which ``load`` continues the run."""
        s, d = self._sequences, self._duals
        return {
            "nodes": d.nodes.reshape(-1, s.P)[:, : s.S].copy(),
            "edges": d.edges.copy(),
            "gaps": d.gaps.copy(),
            "w": self.w,
            "counts": self._counts.copy(),
            "measured": np.array(
                [self.certificate_oracle_calls, self.num_certificates]
            ),
        }

    def load(self, state: dict[str, NDArray[Any]]) -> None:
        """Restore the arrays of ``state``."""
        self.load_duals(state)
        self._duals.gaps[:] = state["gaps"]
        self._primal.w[:] = self.problem.padded_weights(state["w"])
        self._counts[:] = state["counts"]
        self.certificate_oracle_calls, self.num_certificates = (
            int(x) for x in state["measured"]
        )
