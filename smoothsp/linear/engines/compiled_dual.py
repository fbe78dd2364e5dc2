"""Block-coordinate Frank-Wolfe on chains: arrays of the state, calls of kernels."""

import math
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp._kernels.compilation.interrupts import defer_sigint
from smoothsp._kernels.linear import frank_wolfe as kernels
from smoothsp._kernels.linear.frank_wolfe_steps import CALLS, HITS, STEPS
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp.linear.engines.run_monitor import (
    NO_CACHE_LIMIT,
    EngineSettings,
    expand_bounds,
)
from smoothsp.linear.inputs.arrays import aligned_zeros, require_memory
from smoothsp.linear.problems import ChainProblem

Floats = NDArray[np.float64]
# Outputs allocated for each example at first.
_INITIAL_SLOTS = 4
_MEMORY_HINT = "Fewer examples, labels or features take less."


class ChainEngine:
    """Dual variables of a chain problem as marginals, its weights, and their steps.

    A block is the expected features of its output: node marginals ``(length, S)`` and
    the sum of edge marginals ``(S, S)`` replace alpha and w_i.

    Parameters
    ----------
    problem, settings
        Chain problem and settings of the steps.
    """

    compiled = True

    def __init__(self, problem: ChainProblem, settings: EngineSettings) -> None:
        self.problem, self.settings = problem, settings
        s = self._sequences = problem.sequences
        self.n = len(problem)
        pairs = s.S * s.P if problem.transitions else 0
        rows = len(problem.labels)
        count = problem.flat_size
        copies = 1 + 3 * settings.has_bounds + settings.averages
        require_memory(
            {
                f"weights of {problem.num_features:,} features": 8 * copies * count,
                f"marginals of {rows:,} words": 8 * s.P * rows,
                f"marginals of label pairs of {self.n:,} examples": 8 * self.n * pairs,
            },
            _MEMORY_HINT,
        )
        empty = np.zeros(0)
        w, mu = aligned_zeros(count, np.float64), aligned_zeros(rows * s.P, np.float64)
        low = high = empty
        if settings.has_bounds:
            lower, upper = expand_bounds(
                (settings.lower, settings.upper), problem.num_weights
            )
            low, high = problem.padded_weights(lower), problem.padded_weights(upper)
            # With all weight on gold outputs v = 0: w is 0 clipped to the bounds.
            w = np.clip(w, low, high)
        self._primal = kernels.Primal(
            w=w,
            v=aligned_zeros(count, np.float64) if settings.has_bounds else w,
            low=low,
            high=high,
            lag=aligned_zeros(count if settings.averages else 0, np.float64),
            boxed=settings.has_bounds,
            averaged=settings.averages,
        )
        mu.reshape(rows, s.P)[np.arange(rows), problem.labels] = 1
        self._duals = kernels.Duals(
            mu,
            aligned_zeros(self.n * pairs, np.float64),
            np.zeros(self.n),
            np.full(self.n, math.inf),
        )
        if pairs:
            self._add_transitions(problem.labels, 1.0)
        self._products = compute_gram_matrices(problem)
        self._counters = kernels.Counters(np.zeros(4, np.int64), np.zeros(1))
        stores_outputs = settings.uses_cache or settings.has_output_weights
        self.label_cache = LabelCache(problem) if stores_outputs else None
        # A binary tree of sums in heap order, leaves padded to a power of two: sampling
        # and updates take O(log n).
        self._tree = np.zeros(2 * 2 ** max(math.ceil(math.log2(self.n)), 0))
        # Infinite until the first certificate.
        self.last_gap = math.inf
        self.certificate_oracle_calls = 0
        self.num_certificates = 0

    def _add_transitions(self, labels: NDArray[np.int32], factor: float) -> None:
        """Add ``factor`` to the edge marginals at the transitions of a labelling."""
        s, labels = self._sequences, labels.astype(np.int64)
        example_index = np.repeat(np.arange(self.n), np.diff(s.offsets))
        first_positions = np.flatnonzero(example_index[1:] == example_index[:-1])
        cells = (
            example_index[first_positions] * s.S + labels[first_positions]
        ) * s.P + labels[first_positions + 1]
        # Cells may repeat: unbuffered addition.
        np.add.at(self._duals.edges, cells, factor)

    @property
    def kernel_structs(self) -> tuple[Any, Any, Any]:
        """Structs of data, weights and dual variables for kernels."""
        return self._sequences, self._primal, self._duals

    # state

    @property
    def gap_estimates(self) -> Floats:
        """Gaps ``(n,)`` at the last oracle call of each example."""
        return self._duals.gap_estimates

    @property
    def oracle_calls(self) -> int:
        """Oracle calls so far, including certificates."""
        return int(self._counters.counts[CALLS]) + self.certificate_oracle_calls

    @property
    def num_steps(self) -> int:
        """Number of steps so far."""
        return int(self._counters.counts[STEPS])

    @property
    def num_cache_hits(self) -> int:
        """Number of steps with a stored output in place of an oracle call."""
        return int(self._counters.counts[HITS])

    @property
    def dual(self) -> float:
        """Dual objective."""
        p, lam = self._primal, self.settings.lam
        norm = float(np.dot(p.w, p.w))
        cross = float(np.dot(p.v, p.w)) if p.boxed else norm
        return float(self._duals.ell.sum()) - lam * (cross - norm / 2)

    @property
    def w(self) -> Floats:
        """Weights to return: with averaging, those of the average."""
        return self.problem.plain_weights(self._averaged()[1])

    def _averaged(self) -> tuple[Floats, Floats, float]:
        """Unclipped weights, weights and expected cost of the point to return.

        Iterate k has weight k in the average: 2 / (k (k + 1)) times the weighted sum.
        """
        p, k = self._primal, self.num_steps
        ell = float(self._duals.ell.sum())
        if not p.averaged or k == 0:
            return p.v, p.w, ell
        last_weight = 2 / (k * (k + 1))
        v = p.v - last_weight * p.lag
        w = np.clip(v, p.low, p.high) if p.boxed else v
        return v, w, ell - last_weight * float(self._counters.lag[0])

    # steps

    def visit_in_order(self, order: NDArray[np.int64]) -> None:
        """Make one step for each example of ``order``."""
        # Kernels cannot allocate: they return if a buffer of outputs is full.
        num_done, last_or_estimated_gap = 0, self.last_or_estimated_gap
        while num_done < len(order):
            num_done += kernels.visit_in_order(
                order[num_done:], *self._kernel_arguments(last_or_estimated_gap)
            )
            if num_done < len(order) and self.label_cache is not None:
                self.label_cache.grow()

    def visit_by_gap(self, uniforms: Floats, gap_floor: float) -> int:
        """Sample examples by estimated gaps until these sum to ``gap_floor``.

        Returns the number of steps made.
        """
        kernels.fill_tree(self.gap_estimates, self._tree)
        num_done, last_or_estimated_gap = 0, self.last_or_estimated_gap
        while num_done < len(uniforms) and self._tree[1] > gap_floor:
            num_done += kernels.visit_by_gap(
                uniforms[num_done:],
                gap_floor,
                self._tree,
                *self._kernel_arguments(last_or_estimated_gap),
            )
            if (
                num_done < len(uniforms)
                and self._tree[1] > gap_floor
                and self.label_cache
            ):
                self.label_cache.grow()
        return num_done

    @property
    def last_or_estimated_gap(self) -> float:
        """The last exact gap; before any, the sum of the estimates."""
        if math.isinf(self.last_gap):
            return float(self.gap_estimates.sum())
        return self.last_gap

    def _kernel_arguments(self, last_or_estimated_gap: float) -> tuple[Any, ...]:
        settings = self.settings
        rules = kernels.StepRule(
            settings.lam, settings.step_rule, settings.uses_cache, settings.cache_local,
            settings.cache_global / self.n * last_or_estimated_gap, settings.cache_size,
        )  # fmt: skip
        buffers = (
            LabelCache.empty_buffers()
            if self.label_cache is None
            else self.label_cache.buffers
        )
        return (
            self._sequences,
            rules,
            self._primal,
            self._duals,
            self._products,
            buffers,
            self._counters,
        )

    def compute_certificate(self) -> tuple[float, float, float]:
        """Compute primal, dual and the exact gap of each example by n oracle calls."""
        lam = self.settings.lam
        self.hinges = np.empty(self.n)
        self._compute_gaps_at(self._primal.w, self._duals.gap_estimates, self.hinges)
        self.last_gap = gap = float(self._duals.gap_estimates.sum())
        self.num_certificates += 1
        if self._primal.averaged and self.num_steps:
            v, w, ell = self._averaged()
            hinges = np.empty(self.n)
            self._compute_gaps_at(w, np.empty(self.n), hinges)
            cross, norm = float(np.dot(v, w)), float(np.dot(w, w))
            primal = lam / 2 * norm + float(hinges.mean())
            dual = ell - lam * (cross - norm / 2)
            return primal, dual, primal - dual
        primal = lam / 2 * float(np.dot(self._primal.w, self._primal.w))
        return primal + float(self.hinges.mean()), self.dual, gap

    def _compute_gaps_at(self, w: Floats, gaps: Floats, hinges: Floats) -> None:
        s = self._sequences
        work = (len(s.indices) + len(s.labels) * s.S) * s.P // 8
        run_rows(kernels.exact_gaps, self.n, work, s, w, self._duals, gaps, hinges)
        self.certificate_oracle_calls += self.n

    def expected_costs_and_squared_norms(self) -> tuple[Floats, Floats]:
        """Expected costs, and ``|psi_i|^2`` of word features with all labels wrong.

        Transitions are left out, as all sequences share their features.
        """
        problem = self.problem
        example_index = np.repeat(
            np.arange(self.n), np.diff(problem.indptr[problem.offsets])
        )
        squared_norms = 2.0 * np.bincount(example_index, problem.values**2, self.n)
        scaled = problem.loss_scale**2 * squared_norms
        return self.n * self._duals.ell, np.asarray(scaled, dtype=np.float64)

    def rebuild_weights(self) -> None:
        """Recompute w from the dual variables, without accumulated rounding errors."""
        p = self._primal
        with defer_sigint():
            p.v[:] = 0
            kernels.primal_from_dual(
                0, self.n, self._sequences, self.settings.lam, self._duals, p.v
            )
            if p.boxed:
                np.clip(p.v, p.low, p.high, out=p.w)

    # another lambda

    def shrink_duals(self, rho: float) -> None:
        """``alpha <- rho alpha``; the gold labels get weight 1 - rho."""
        s, d = self._sequences, self._duals
        cells = np.arange(len(s.labels)), s.labels
        table = d.mu.reshape(-1, s.P)
        # 1 - rho (1 - x) is exactly 1 for x = 1; rho x + (1 - rho) is not.
        gold = 1 - rho * (1 - table[cells])
        d.mu[:] *= rho
        table[cells] = gold
        if len(d.edges):
            d.edges[:] *= rho
            self._add_transitions(s.labels, 1 - rho)
        d.ell[:] *= rho
        if self.label_cache is not None and self.settings.has_output_weights:
            self.label_cache.shrink_duals(rho)

    def scale_weights(self, factor: float) -> None:
        """``w <- factor w``, with the same dual variables."""
        p = self._primal
        p.v[:] *= factor
        if p.boxed:
            np.clip(p.v, p.low, p.high, out=p.w)

    def load_duals(self, state: dict[str, NDArray[Any]]) -> None:
        """Set dual variables and weights to those of a state."""
        self._require_matching_state(state)
        s, d = self._sequences, self._duals
        d.mu.reshape(-1, s.P)[:, : s.S] = state["mu"]
        if len(d.edges):
            d.edges.reshape(-1, s.P)[:, : s.S] = state["edges"].reshape(-1, s.S)
        d.ell[:] = state["ell"]
        v = state.get("v", state["w"])
        self._primal.v[:] = self.problem.padded_weights(v)
        if self._primal.boxed:
            np.clip(
                self._primal.v, self._primal.low, self._primal.high, out=self._primal.w
            )
        if self.label_cache is not None and self.settings.has_output_weights:
            if "store_alpha" not in state or not state["weighed"]:
                raise ValueError(
                    "start: expected a solution of a solver with the same kind of "
                    "steps: weights of labellings are missing"
                )
            self.label_cache.load(state)

    # saving

    def _require_matching_state(self, state: dict[str, NDArray[Any]]) -> None:
        expected = (len(self._sequences.labels), self._sequences.S)
        saved = np.shape(state["mu"]) if "mu" in state else ()
        if saved != expected or len(state["ell"]) != self.n:
            raise ValueError(
                f"state: expected marginals of {expected} as this problem has, got"
                f" {saved}"
            )

    def state(self) -> dict[str, NDArray[Any]]:
        """Arrays from which ``load`` continues the run."""
        s, d, p = self._sequences, self._duals, self._primal
        arrays = {
            "mu": d.mu.reshape(-1, s.P)[:, : s.S].copy(),
            "edges": d.edges.reshape(-1, s.S, s.P)[:, :, : s.S].copy(),
            "ell": d.ell.copy(),
            "estimates": d.gap_estimates.copy(),
            "w": self.w,
            "counts": self._counters.counts.copy(),
            "lag_ell": self._counters.lag.copy(),
            "last_gap": np.array(self.last_gap),
            "measured": np.array(
                [self.certificate_oracle_calls, self.num_certificates]
            ),
            "weighed": np.array(self.settings.has_output_weights),
        }
        if p.boxed or p.averaged:
            arrays["v"] = self.problem.plain_weights(p.v)
        if p.averaged:
            arrays["lag"] = self.problem.plain_weights(p.lag)
        if self.label_cache is not None:
            arrays.update(self.label_cache.state())
        return arrays

    def load(self, state: dict[str, NDArray[Any]]) -> None:
        """Restore the arrays of ``state``."""
        has_unweighted_cache = (
            self.label_cache is not None and not self.settings.has_output_weights
        )
        self.load_duals(state)
        if has_unweighted_cache and self.label_cache is not None:
            self.label_cache.load(state)
        self._duals.gap_estimates[:] = state["estimates"]
        self._counters.counts[:] = state["counts"]
        self._counters.lag[:] = state["lag_ell"]
        self.last_gap = float(state["last_gap"])
        self.certificate_oracle_calls, self.num_certificates = (
            int(x) for x in state["measured"]
        )
        if self._primal.averaged:
            self._primal.lag[:] = self.problem.padded_weights(state["lag"])


# Cost of one Gram entry, in feature entries read by a sparse product.
_GRAM_ENTRY_COST = 2


def compute_gram_matrices(problem: ChainProblem) -> kernels.GramCache:
    """Gram matrices of word features, for sequences where they are cheaper.

    A sequence of T words has T (T + 1) / 2 products; a norm without them reads the
    features of all its words.
    """
    s = problem.sequences
    if len(s.tied_index):
        # Hashed features share weights: norms are computed in weight space.
        empty = np.zeros(0)
        at, sums = (
            np.full(len(problem), -1),
            aligned_zeros(problem.flat_size, np.float64),
        )
        return kernels.GramCache(empty, at, empty.astype(np.int32), sums)
    lengths = np.diff(s.offsets)
    num_entries = s.indptr[s.offsets[1:]] - s.indptr[s.offsets[:-1]]
    pairs = lengths * (lengths + 1) // 2
    chosen = pairs <= _GRAM_ENTRY_COST * num_entries
    ends = np.cumsum(np.where(chosen, pairs, 0))
    # -1 marks sequences without Gram matrix.
    at = np.where(chosen, np.concatenate([[0], ends[:-1]]), -1)
    gram = np.zeros(int(ends[-1]))
    work = int(
        (pairs * np.maximum(num_entries // np.maximum(lengths, 1), 1))[chosen].sum()
    )
    run_rows(kernels.fill_gram, len(problem), work, s, at, gram)
    # Scratch of one sequence: slot of each of its features, and their rows.
    max_entries = int(num_entries[~chosen].max(initial=0))
    return kernels.GramCache(
        gram,
        at,
        np.full(problem.num_features if max_entries else 0, -1, np.int32),
        aligned_zeros(min(max_entries, problem.num_features) * s.P, np.float64),
    )


class LabelCache:
    """Stored labellings of each example, in growing buffers; initially gold only."""

    def __init__(self, problem: ChainProblem) -> None:
        self._problem = problem
        n = len(problem)
        words = 2 * _INITIAL_SLOTS * len(problem.labels)
        slots = 2 * _INITIAL_SLOTS * n
        fits_int16 = problem.num_labels <= 2**15
        self.buffers = kernels.WorkingSets(
            labels=np.zeros(words, np.int16 if fits_int16 else np.int32),
            alpha=np.zeros(slots),
            loss=np.zeros(slots),
            h=np.zeros(slots),
            word=_INITIAL_SLOTS * problem.offsets[:-1],
            slot=_INITIAL_SLOTS * np.arange(n),
            room=np.full(n, _INITIAL_SLOTS),
            size=np.ones(n, np.int64),
            used=np.array([_INITIAL_SLOTS * len(problem.labels), _INITIAL_SLOTS * n]),
        )
        buffers, offsets = self.buffers, problem.offsets
        lengths = np.diff(offsets)
        position = np.arange(len(problem.labels)) - np.repeat(offsets[:-1], lengths)
        buffers.labels[np.repeat(buffers.word, lengths) + position] = problem.labels
        buffers.alpha[buffers.slot] = 1

    @staticmethod
    @cache
    def empty_buffers() -> Any:
        """Empty arrays for solvers without stored outputs."""
        floats, ints = np.zeros(0), np.zeros(0, np.int64)
        return kernels.WorkingSets(
            np.zeros(0, np.int16), floats, floats, floats, ints, ints, ints, ints, ints
        )

    def grow(self) -> None:
        """Double the capacity of all buffers."""
        buffers = self.buffers
        doubled = {
            name: np.concatenate([pool, np.zeros_like(pool)])
            for name, pool in (
                ("labels", buffers.labels),
                ("alpha", buffers.alpha),
                ("loss", buffers.loss),
                ("h", buffers.h),
            )
        }
        self.buffers = buffers._replace(**doubled)

    def shrink_duals(self, rho: float) -> None:
        """``alpha <- rho alpha``; gold labels get weight 1 - rho."""
        done, s = 0, self._problem.sequences
        while done < len(self._problem):
            done = kernels.shrink_towards_gold(
                done, s, rho, NO_CACHE_LIMIT, self.buffers
            )
            if done < len(self._problem):
                self.grow()

    def state(self) -> dict[str, NDArray[Any]]:
        """Used parts of the buffers."""
        words, slots = self.buffers.used
        ends = {"labels": words, "alpha": slots, "loss": slots}
        arrays = self.buffers._asdict()
        del arrays["h"]
        return {f"store_{k}": v[: ends.get(k)].copy() for k, v in arrays.items()}

    def load(self, state: dict[str, NDArray[Any]]) -> None:
        """Restore the arrays of ``state``."""
        fields = {
            k: state[f"store_{k}"].copy() for k in self.buffers._fields if k != "h"
        }
        self.buffers = kernels.WorkingSets(h=np.zeros(len(fields["alpha"])), **fields)
