"""Block-coordinate Frank-Wolfe on chains: the state, and calls of compiled loops."""

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
# Slots of an example at the start.
_FIRST = 4
_REMEDY = "Fewer examples, labels or features take less."


class ChainEngine:
    """A dual point of a chain problem, its weights, and steps from there.

    Parameters
    ----------
    problem, plan
        What is solved, and how.
    """

    compiled = True

    def __init__(self, problem: ChainProblem, plan: EngineSettings) -> None:
        self.problem, self.plan = problem, plan
        s = self._s = problem.sequences
        self.n = len(problem)
        pairs = s.S * s.P if problem.transitions else 0
        rows = len(problem.labels)
        count = problem.flat_size
        copies = 1 + 3 * plan.boxed + plan.averaging
        require_memory(
            {
                f"weights of {problem.num_features:,} features": 8 * copies * count,
                f"marginals of {rows:,} words": 8 * s.P * rows,
                f"marginals of label pairs of {self.n:,} examples": 8 * self.n * pairs,
            },
            _REMEDY,
        )
        empty = np.zeros(0)
        w, mu = aligned_zeros(count, np.float64), aligned_zeros(rows * s.P, np.float64)
        low = high = empty
        if plan.boxed:
            lower, upper = expand_bounds((plan.lower, plan.upper), problem.num_weights)
            low, high = problem.padded_weights(lower), problem.padded_weights(upper)
            # bounds above 0 or below are the weights at the start
            w = np.clip(w, low, high)
        self._p = kernels.Primal(
            w=w,
            v=aligned_zeros(count, np.float64) if plan.boxed else w,
            low=low,
            high=high,
            lag=aligned_zeros(count if plan.averaging else 0, np.float64),
            boxed=plan.boxed,
            averaged=plan.averaging,
        )
        mu.reshape(rows, s.P)[np.arange(rows), problem.labels] = 1
        self._d = kernels.Duals(
            mu,
            aligned_zeros(self.n * pairs, np.float64),
            np.zeros(self.n),
            np.full(self.n, math.inf),
        )
        if pairs:
            self._count_pairs(problem.labels, 1.0)
        self._x = compute_gram_matrices(problem)
        self._c = kernels.Counters(np.zeros(4, np.int64), np.zeros(1))
        keeps = plan.cached or plan.weighed
        self.store = LabelCache(problem) if keeps else None
        self._tree = np.zeros(2 * 2 ** max(math.ceil(math.log2(self.n)), 0))
        # not measured yet
        self.last_gap = math.inf
        self.certificate_oracle_calls = 0
        self.num_certificates = 0

    def _count_pairs(self, labels: NDArray[np.int32], factor: float) -> None:
        """``edges += factor`` at the pairs of neighbouring labels."""
        s, labels = self._s, labels.astype(np.int64)
        owner = np.repeat(np.arange(self.n), np.diff(s.offsets))
        inside = np.flatnonzero(owner[1:] == owner[:-1])
        cells = (owner[inside] * s.S + labels[inside]) * s.P + labels[inside + 1]
        np.add.at(self._d.edges, cells, factor)

    @property
    def records(self) -> tuple[Any, Any, Any]:
        """Data, weights and dual variables as compiled loops take them."""
        return self._s, self._p, self._d

    # what is known

    @property
    def gap_estimates(self) -> Floats:
        """Gaps of the examples at their last oracle calls."""
        return self._d.gap_estimates

    @property
    def oracle_calls(self) -> int:
        """Calls so far, those of certificates included."""
        return int(self._c.counts[CALLS]) + self.certificate_oracle_calls

    @property
    def steps(self) -> int:
        """Visits so far."""
        return int(self._c.counts[STEPS])

    @property
    def hits(self) -> int:
        """Visits that the cache answered."""
        return int(self._c.counts[HITS])

    @property
    def dual(self) -> float:
        """The dual objective."""
        p, lam = self._p, self.plan.lam
        norm = float(np.dot(p.w, p.w))
        cross = float(np.dot(p.v, p.w)) if p.boxed else norm
        return float(self._d.ell.sum()) - lam * (cross - norm / 2)

    @property
    def w(self) -> Floats:
        """Weights: of the average, if there is one."""
        return self.problem.plain_weights(self._mean()[1])

    def _mean(self) -> tuple[Floats, Floats, float]:
        """Unclipped weights, weights and expected cost of what is returned."""
        p, k = self._p, self.steps
        ell = float(self._d.ell.sum())
        if not p.averaged or k == 0:
            return p.v, p.w, ell
        share = 2 / (k * (k + 1))
        v = p.v - share * p.lag
        w = np.clip(v, p.low, p.high) if p.boxed else v
        return v, w, ell - share * float(self._c.lag[0])

    # steps

    def visit_in_order(self, order: NDArray[np.int64]) -> None:
        """A step on each of ``order``."""
        done, known = 0, self.known_gap
        while done < len(order):
            done += kernels.visit_in_order(order[done:], *self._arguments(known))
            if done < len(order) and self.store is not None:
                self.store.double()

    def visit_by_gap(self, uniforms: Floats, floor: float) -> int:
        """Steps drawn by estimated gaps until these sum to ``floor``; how many."""
        kernels.fill_tree(self.gap_estimates, self._tree)
        done, known = 0, self.known_gap
        while done < len(uniforms) and self._tree[1] > floor:
            done += kernels.visit_by_gap(
                uniforms[done:], floor, self._tree, *self._arguments(known)
            )
            if done < len(uniforms) and self._tree[1] > floor and self.store:
                self.store.double()
        return done

    @property
    def known_gap(self) -> float:
        """The last exact gap; before any, the estimates' sum: infinite at first."""
        if math.isinf(self.last_gap):
            return float(self.gap_estimates.sum())
        return self.last_gap

    def _arguments(self, known_gap: float) -> tuple[Any, ...]:
        plan = self.plan
        rules = kernels.StepRule(
            plan.lam, plan.steps, plan.cached, plan.local,
            plan.overall / self.n * known_gap, plan.most,
        )  # fmt: skip
        store = LabelCache.none() if self.store is None else self.store.pools
        return self._s, rules, self._p, self._d, self._x, store, self._c

    def compute_certificate(self) -> tuple[float, float, float]:
        """Primal, dual and gap, with the exact gap of each example: n oracle calls."""
        lam = self.plan.lam
        self.hinges = np.empty(self.n)
        self._compute_gaps_at(self._p.w, self._d.gap_estimates, self.hinges)
        self.last_gap = gap = float(self._d.gap_estimates.sum())
        self.num_certificates += 1
        if self._p.averaged and self.steps:
            v, w, ell = self._mean()
            hinges = np.empty(self.n)
            self._compute_gaps_at(w, np.empty(self.n), hinges)
            cross, norm = float(np.dot(v, w)), float(np.dot(w, w))
            primal = lam / 2 * norm + float(hinges.mean())
            dual = ell - lam * (cross - norm / 2)
            return primal, dual, primal - dual
        primal = lam / 2 * float(np.dot(self._p.w, self._p.w))
        return primal + float(self.hinges.mean()), self.dual, gap

    def _compute_gaps_at(self, w: Floats, gaps: Floats, hinges: Floats) -> None:
        s = self._s
        work = (len(s.indices) + len(s.labels) * s.S) * s.P // 8
        run_rows(kernels.exact_gaps, self.n, work, s, w, self._d, gaps, hinges)
        self.certificate_oracle_calls += self.n

    def expected_costs_and_squared_norms(self) -> tuple[Floats, Floats]:
        """Expected cost of each example, and ``|psi_i|^2`` if no label is right.

        That of the words: transitions have the same features in all sequences.
        """
        problem = self.problem
        owner = np.repeat(np.arange(self.n), np.diff(problem.indptr[problem.offsets]))
        squares = 2.0 * np.bincount(owner, problem.values**2, self.n)
        weighted = problem.loss_scale**2 * squares
        return self.n * self._d.ell, np.asarray(weighted, dtype=np.float64)

    def rebuild_weights(self) -> None:
        """Weights anew from the dual variables: rounding does not add up."""
        p = self._p
        with defer_sigint():
            p.v[:] = 0
            kernels.primal_from_dual(0, self.n, self._s, self.plan.lam, self._d, p.v)
            if p.boxed:
                np.clip(p.v, p.low, p.high, out=p.w)

    # another lambda

    def shrink_duals(self, rho: float) -> None:
        """``alpha <- rho alpha``, the rest on the gold labels."""
        s, d = self._s, self._d
        cells = np.arange(len(s.labels)), s.labels
        table = d.mu.reshape(-1, s.P)
        # this way what is 1 stays 1
        gold = 1 - rho * (1 - table[cells])
        d.mu[:] *= rho
        table[cells] = gold
        if len(d.edges):
            d.edges[:] *= rho
            self._count_pairs(s.labels, 1 - rho)
        d.ell[:] *= rho
        if self.store is not None and self.plan.weighed:
            self.store.shrink_duals(rho)

    def scale_weights(self, factor: float) -> None:
        """``w <- factor w``, with the same dual variables."""
        p = self._p
        p.v[:] *= factor
        if p.boxed:
            np.clip(p.v, p.low, p.high, out=p.w)

    def load_duals(self, state: dict[str, NDArray[Any]]) -> None:
        """Start from the dual variables and weights of a state."""
        self._check(state)
        s, d = self._s, self._d
        d.mu.reshape(-1, s.P)[:, : s.S] = state["mu"]
        if len(d.edges):
            d.edges.reshape(-1, s.P)[:, : s.S] = state["edges"].reshape(-1, s.S)
        d.ell[:] = state["ell"]
        v = state.get("v", state["w"])
        self._p.v[:] = self.problem.padded_weights(v)
        if self._p.boxed:
            np.clip(self._p.v, self._p.low, self._p.high, out=self._p.w)
        if self.store is not None and self.plan.weighed:
            if "store_alpha" not in state or not state["weighed"]:
                raise ValueError(
                    "start: expected a solution of a solver with the same kind of "
                    "steps: weights of labellings are missing"
                )
            self.store.load(state)

    # saving

    def _check(self, state: dict[str, NDArray[Any]]) -> None:
        want = (len(self._s.labels), self._s.S)
        found = np.shape(state["mu"]) if "mu" in state else ()
        if found != want or len(state["ell"]) != self.n:
            raise ValueError(
                f"state: expected marginals of {want} as this problem has, got {found}"
            )

    def state(self) -> dict[str, NDArray[Any]]:
        """All that changes, as arrays."""
        s, d, p = self._s, self._d, self._p
        saved = {
            "mu": d.mu.reshape(-1, s.P)[:, : s.S].copy(),
            "edges": d.edges.reshape(-1, s.S, s.P)[:, :, : s.S].copy(),
            "ell": d.ell.copy(),
            "estimates": d.gap_estimates.copy(),
            "w": self.w,
            "counts": self._c.counts.copy(),
            "lag_ell": self._c.lag.copy(),
            "last_gap": np.array(self.last_gap),
            "measured": np.array(
                [self.certificate_oracle_calls, self.num_certificates]
            ),
            "weighed": np.array(self.plan.weighed),
        }
        if p.boxed or p.averaged:
            saved["v"] = self.problem.plain_weights(p.v)
        if p.averaged:
            saved["lag"] = self.problem.plain_weights(p.lag)
        if self.store is not None:
            saved.update(self.store.state())
        return saved

    def load(self, state: dict[str, NDArray[Any]]) -> None:
        """Go on from a saved state."""
        keeps = self.store is not None and not self.plan.weighed
        self.load_duals(state)
        if keeps and self.store is not None:
            self.store.load(state)
        self._d.gap_estimates[:] = state["estimates"]
        self._c.counts[:] = state["counts"]
        self._c.lag[:] = state["lag_ell"]
        self.last_gap = float(state["last_gap"])
        self.certificate_oracle_calls, self.num_certificates = (
            int(x) for x in state["measured"]
        )
        if self._p.averaged:
            self._p.lag[:] = self.problem.padded_weights(state["lag"])


# A product of two rows of D costs as much as adding so many entries of features up.
_ENTRIES = 2


def compute_gram_matrices(problem: ChainProblem) -> kernels.GramCache:
    """Products for the sequences that are short compared with their features."""
    s = problem.sequences
    if len(s.tied_index):
        # parts that share weights are added up where these are
        none = np.zeros(0)
        at, sums = (
            np.full(len(problem), -1),
            aligned_zeros(problem.flat_size, np.float64),
        )
        return kernels.GramCache(none, at, none.astype(np.int32), sums)
    lengths = np.diff(s.offsets)
    entries = s.indptr[s.offsets[1:]] - s.indptr[s.offsets[:-1]]
    pairs = lengths * (lengths + 1) // 2
    chosen = pairs <= _ENTRIES * entries
    ends = np.cumsum(np.where(chosen, pairs, 0))
    at = np.where(chosen, np.concatenate([[0], ends[:-1]]), -1)
    gram = np.zeros(int(ends[-1]))
    work = int((pairs * np.maximum(entries // np.maximum(lengths, 1), 1))[chosen].sum())
    run_rows(kernels.fill_gram, len(problem), work, s, at, gram)
    largest = int(entries[~chosen].max(initial=0))
    return kernels.GramCache(
        gram,
        at,
        np.full(problem.num_features if largest else 0, -1, np.int32),
        aligned_zeros(min(largest, problem.num_features) * s.P, np.float64),
    )


class LabelCache:
    """The store of ``_kernels.linear.stored_outputs``: at the start the gold labels."""

    def __init__(self, problem: ChainProblem) -> None:
        self._problem = problem
        n = len(problem)
        words = 2 * _FIRST * len(problem.labels)
        slots = 2 * _FIRST * n
        small = problem.num_labels <= 2**15
        self.pools = kernels.WorkingSets(
            labels=np.zeros(words, np.int16 if small else np.int32),
            alpha=np.zeros(slots),
            loss=np.zeros(slots),
            h=np.zeros(slots),
            word=_FIRST * problem.offsets[:-1],
            slot=_FIRST * np.arange(n),
            room=np.full(n, _FIRST),
            size=np.ones(n, np.int64),
            used=np.array([_FIRST * len(problem.labels), _FIRST * n]),
        )
        q, offsets = self.pools, problem.offsets
        lengths = np.diff(offsets)
        within = np.arange(len(problem.labels)) - np.repeat(offsets[:-1], lengths)
        q.labels[np.repeat(q.word, lengths) + within] = problem.labels
        q.alpha[q.slot] = 1

    @staticmethod
    @cache
    def none() -> Any:
        """Empty arrays for solvers without stored outputs."""
        floats, ints = np.zeros(0), np.zeros(0, np.int64)
        return kernels.WorkingSets(
            np.zeros(0, np.int16), floats, floats, floats, ints, ints, ints, ints, ints
        )

    def double(self) -> None:
        """Twice as much room in all pools."""
        q = self.pools
        longer = {
            name: np.concatenate([pool, np.zeros_like(pool)])
            for name, pool in (
                ("labels", q.labels),
                ("alpha", q.alpha),
                ("loss", q.loss),
                ("h", q.h),
            )
        }
        self.pools = q._replace(**longer)

    def shrink_duals(self, rho: float) -> None:
        """``alpha <- rho alpha``, the rest on the gold labels of each example."""
        done, s = 0, self._problem.sequences
        while done < len(self._problem):
            done = kernels.shrink_towards_gold(done, s, rho, NO_CACHE_LIMIT, self.pools)
            if done < len(self._problem):
                self.double()

    def state(self) -> dict[str, NDArray[Any]]:
        """The pools as arrays, without what is not used."""
        words, slots = self.pools.used
        ends = {"labels": words, "alpha": slots, "loss": slots}
        saved = self.pools._asdict()
        del saved["h"]
        return {f"store_{k}": v[: ends.get(k)].copy() for k, v in saved.items()}

    def load(self, state: dict[str, NDArray[Any]]) -> None:
        """Go on from a saved state."""
        fields = {k: state[f"store_{k}"].copy() for k in self.pools._fields if k != "h"}
        self.pools = kernels.WorkingSets(h=np.zeros(len(fields["alpha"])), **fields)
