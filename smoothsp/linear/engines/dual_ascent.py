"""Dual coordinate ascent for the likelihood: the state, and calls of compiled loops."""

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
# The most weight that blocks give at the start to labels that are not gold.
_AWAY = 0.1
_REMEDY = (
    "Fewer or shorter sequences, or fewer labels, take less; LBFGS"
    " (solver='lbfgs' of ChainCRF) stores no marginals."
)


class DualAscentEngine:
    """Marginals of all sequences, their weights, and steps from there.

    Parameters
    ----------
    problem
        What is solved: by its likelihood.
    lam
        lambda.
    precision
        Relative change of the step size at which a line search ends.
    away
        Weight of the uniform distribution in each block at the start.
    """

    compiled = True

    def __init__(
        self,
        problem: ChainProblem,
        lam: float,
        precision: float = 0.1,
        away: float | None = None,
    ) -> None:
        self.problem = problem
        s = self._s = problem.sequences
        self.n = len(problem)
        self._rules = kernels.StepRule(lam, precision)
        rows, count = len(problem.labels), problem.flat_size
        lengths = np.diff(s.offsets)
        steps = np.maximum(lengths - 1, 0) * s.S**2
        sizes = -(-steps // round_up_to_lanes(1, np.float64)) * round_up_to_lanes(
            1, np.float64
        )
        at = np.concatenate([[0], np.cumsum(sizes)])
        restricted = problem.seen is not None
        require_memory(
            {
                f"weights of {problem.num_features:,} features": 8
                * (1 + 2 * restricted)
                * count,
                f"marginals of {rows:,} words": 16 * s.P * rows,
                f"marginals of {int(steps.sum()):,} pairs of labels, with the copy in"
                " the state": 16 * int(at[-1]),
            },
            _REMEDY,
        )
        self._d = kernels.BlockMarginals(
            aligned_zeros(rows * s.P, np.float64),
            aligned_zeros(int(at[-1]), np.float64),
            at,
            np.full(self.n, math.inf),
        )
        mask = aligned_zeros(count if restricted else 0, np.float64)
        products = compute_gram_matrices(problem)
        if problem.seen is not None:
            mask[problem.seen] = 1
            products = products._replace(rows=aligned_zeros(count, np.float64))
        self._p = kernels.Primal(aligned_zeros(count, np.float64), mask, products)
        self._counts = np.zeros(3, np.int64)
        self._tree = np.zeros(2 * 2 ** max(math.ceil(math.log2(self.n)), 0))
        # inner-loop steps of a pass
        self._work = (len(s.indices) + len(s.labels) * s.S) * s.P // 8
        self.num_certificates = self.certificate_oracle_calls = 0
        eps = min(_AWAY, lam) if away is None else away
        run_rows(kernels.smoothed_gold_marginals, self.n, self._work, s, eps, self._d)
        self.rebuild_weights()

    @property
    def gap_estimates(self) -> Floats:
        """Gaps of the examples at their last visits, over n."""
        return self._d.gaps

    @property
    def oracle_calls(self) -> int:
        """Forward-backward calls so far, those of certificates included."""
        return int(self._counts[kernels.CALLS]) + self.certificate_oracle_calls

    @property
    def evaluations(self) -> int:
        """Evaluations of slopes in all line searches."""
        return int(self._counts[kernels.EVALUATIONS])

    @property
    def w(self) -> Floats:
        """Weights, a copy."""
        return self.problem.plain_weights(self._p.w)

    @property
    def blocks(self) -> tuple[Floats, list[Floats]]:
        """Marginals ``(positions, S)``, and ``(steps, S, S)`` of each sequence."""
        s, d = self._s, self._d
        steps = np.maximum(np.diff(s.offsets) - 1, 0)
        edges = [
            d.edges[a : a + t * s.S**2].reshape(t, s.S, s.S)
            for a, t in zip(d.edge_offsets, steps, strict=False)
        ]
        return d.nodes.reshape(-1, s.P)[:, : s.S], edges

    def visit_in_order(self, order: NDArray[np.int64]) -> None:
        """A step on each of ``order``."""
        kernels.visit_in_order(order, *self._arguments())

    def visit_by_gap(self, uniforms: Floats, floor: float) -> int:
        """Steps drawn by estimated gaps until these sum to ``floor``; how many."""
        before = int(self._counts[kernels.STEPS])
        fill_tree(self.gap_estimates, self._tree)
        kernels.visit_by_gap(uniforms, floor, self._tree, *self._arguments())
        return int(self._counts[kernels.STEPS]) - before

    def _arguments(self) -> tuple[Any, ...]:
        return self._s, self._rules, self._p, self._d, self._counts

    def compute_certificate(self) -> tuple[float, float, float]:
        """Primal, dual and gap, with the exact gap of each example: n oracle calls."""
        losses, w = np.empty(self.n), self._p.w
        gaps = self._d.gaps
        run_rows(
            kernels.exact_gaps, self.n, self._work, self._s, w, self._d, gaps, losses
        )
        self.num_certificates += 1
        self.certificate_oracle_calls += self.n
        primal = self._rules.lam / 2 * float(np.dot(w, w)) + float(losses.mean())
        gap = float(gaps.sum())
        return primal, primal - gap, gap

    def rebuild_weights(self) -> None:
        """Weights anew from the dual variables: rounding does not add up."""
        p = self._p
        w = aligned_zeros(len(p.w), np.float64)
        kernels.primal_from_dual(self._s, self._rules.lam, self._d, w)
        if len(p.mask):
            w *= p.mask
        p.w[:] = w

    # another start

    def set_duals_at(self, flat: Floats) -> None:
        """Blocks become the marginals at these padded weights, and w theirs."""
        run_rows(
            kernels.marginals_at_weights, self.n, self._work, self._s, flat, self._d
        )
        self.certificate_oracle_calls += self.n
        self.rebuild_weights()

    def load_duals(self, state: dict[str, NDArray[Any]]) -> None:
        """Start from the dual variables of a state, at any lambda."""
        s, d = self._s, self._d
        want = (len(s.labels), s.S), d.edges.shape
        found = np.shape(state["nodes"]), np.shape(state["edges"])
        if found != want:
            raise ValueError(
                f"state: expected marginals of {want} as this problem has, got {found}"
            )
        d.nodes.reshape(-1, s.P)[:, : s.S] = state["nodes"]
        d.edges[:] = state["edges"]
        self.rebuild_weights()

    # saving

    def state(self) -> dict[str, NDArray[Any]]:
        """All that changes, as arrays."""
        s, d = self._s, self._d
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
        """Go on from a saved state."""
        self.load_duals(state)
        self._d.gaps[:] = state["gaps"]
        self._p.w[:] = self.problem.padded_weights(state["w"])
        self._counts[:] = state["counts"]
        self.certificate_oracle_calls, self.num_certificates = (
            int(x) for x in state["measured"]
        )
