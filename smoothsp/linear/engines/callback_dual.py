r"""Block-coordinate Frank-Wolfe on any max oracle, in plain numpy.

.. math:: w = \sum_i w_i, \qquad
    w_i = \frac{1}{\lambda n} \sum_y \alpha_i(y) \, \psi_i(y), \qquad
    \ell_i = \frac1n \sum_y \alpha_i(y) \, L_i(y)

The vectors w_i are dense or sparse like the features of outputs. Stored outputs are one
list per example. With equal random numbers the iterates equal those of
``compiled_dual``.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp._kernels.compilation.interrupts import defer_sigint
from smoothsp._kernels.linear.working_sets import TIE_TOLERANCE
from smoothsp.linear.engines.run_monitor import (
    STEP_RULES,
    EngineSettings,
    expand_bounds,
)
from smoothsp.linear.engines.stored_outputs import (
    Step,
    StoredOutput,
    argmax_score,
    argmin_score,
    gold_output,
    load_outputs,
    save_outputs,
)
from smoothsp.linear.inputs.vectors import (
    SparseVectorStore,
    Vector,
    add,
    as_vector,
    dot,
    make_vector_store,
    squared_norm,
)
from smoothsp.linear.problems import Corner
from smoothsp.linear.problems.callback import BatchLinearProblem

Floats = NDArray[np.float64]


class CallbackEngine:
    """Dual variables of a problem with an oracle in Python, and their steps."""

    compiled = False

    def __init__(self, problem: BatchLinearProblem, settings: EngineSettings) -> None:
        self.problem, self.settings = problem, settings
        self.rows = make_vector_store(problem)
        self.sparse = isinstance(self.rows, SparseVectorStore)
        self.n = n = len(problem)
        d = problem.num_weights
        self._low, self._high = expand_bounds((settings.lower, settings.upper), d)
        self.unclipped_w, self.average_lag, self.average_lag_ell = (
            np.zeros(d),
            np.zeros(d),
            0.0,
        )
        self._clip()
        self.blocks, self.ell = self.rows.zeros(n), np.zeros(n)
        self.gap_estimates = np.full(n, math.inf)
        # Infinite until the first certificate.
        self.last_gap = self._last_or_estimated_gap = math.inf
        self.num_steps = self.num_cache_hits = self.num_drop_steps = (
            self.step_oracle_calls
        ) = 0
        self.certificate_oracle_calls = self.num_certificates = 0
        self.output_cache = [[gold_output(self.rows.zero_vector())] for _ in range(n)]

    def _clip(self, change: Any = None) -> None:
        """Clip weights to their bounds, only at the columns of a sparse change."""
        if not (self.sparse and change is not None):
            self.current_w = np.clip(self.unclipped_w, self._low, self._high)
            return
        columns = change.columns
        self.current_w[columns] = np.clip(
            self.unclipped_w[columns], self._low[columns], self._high[columns]
        )

    @property
    def oracle_calls(self) -> int:
        """Oracle calls so far, including certificates."""
        return self.step_oracle_calls + self.certificate_oracle_calls

    @property
    def dual(self) -> float:
        """Dual objective."""
        return self._compute_dual(
            self.unclipped_w, self.current_w, float(self.ell.sum())
        )

    def _compute_dual(self, v: Floats, w: Floats, ell: float) -> float:
        # Appendix H; without bounds v = w, and it is l - lambda / 2 |w|^2.
        return ell - self.settings.lam * float(np.dot(v, w) - np.dot(w, w) / 2)

    @property
    def w(self) -> Floats:
        """Weights to return: with averaging, those of the average."""
        return self._averaged()[1].copy()

    def _averaged(self) -> tuple[Floats, Floats, float]:
        k, ell = self.num_steps, float(self.ell.sum())
        if not self.settings.averages or k == 0:
            return self.unclipped_w, self.current_w, ell
        # Iterate j has weight 2 j / (k (k + 1)); see ``_apply_step`` for the lag.
        last_weight = 2 / (k * (k + 1))
        v = self.unclipped_w - last_weight * self.average_lag
        return (
            v,
            np.clip(v, self._low, self._high),
            ell - last_weight * self.average_lag_ell,
        )

    # steps

    def visit_in_order(self, order: NDArray[np.int64]) -> None:
        """Make one step for each example of ``order``."""
        size = self.settings.batch_size
        self._update_gap_estimate()
        for start in range(0, len(order), size):
            self.visit_batch([int(i) for i in order[start : start + size]])

    def visit_by_gap(self, uniforms: Floats, gap_floor: float) -> int:
        """Sample examples by estimated gaps until these sum to ``gap_floor``.

        Returns the number of steps made.
        """
        self._update_gap_estimate()
        for first in range(0, len(uniforms), self.settings.batch_size):
            sums = np.cumsum(self.gap_estimates)
            if sums[-1] <= gap_floor:
                return first
            # Inverse of the cumulative distribution. Rounding may give the total:
            # ``last`` is the last example of positive probability.
            drawn = uniforms[first : first + self.settings.batch_size] * sums[-1]
            last = int(np.flatnonzero(self.gap_estimates)[-1])
            chosen = np.minimum(np.searchsorted(sums, drawn, side="right"), last)
            self.visit_batch([int(i) for i in chosen])
        return len(uniforms)

    def _update_gap_estimate(self) -> None:
        """Set the gap of the cache rule: the last exact gap or the sum of estimates."""
        self._last_or_estimated_gap = self.last_gap
        if math.isinf(self.last_gap):
            self._last_or_estimated_gap = float(self.gap_estimates.sum())

    def visit_batch(self, chosen: list[int]) -> None:
        """Make one step for each example, with outputs at the weights before the batch.

        The oracle is called once for the whole batch. Line searches use the current
        weights, so that the dual never decreases.
        """
        missing = [i for i in dict.fromkeys(chosen) if not self._is_cache_hit(i)]
        corners = dict(zip(missing, self._call_oracle_batch(missing), strict=True))
        for position, i in enumerate(chosen):
            if position:
                self._refresh_scores(i)
            is_repeated = i in chosen[:position]
            with defer_sigint():
                self._visit_example(i, corners.get(i), is_repeated)

    def _refresh_scores(self, i: int) -> None:
        for output in self.output_cache[i]:
            output.augmented_score = self._augmented_score(output.corner)

    def _is_cache_hit(self, i: int) -> bool:
        """Whether a stored output has a gap large enough to replace an oracle call."""
        self._refresh_scores(i)
        settings = self.settings
        if not settings.uses_cache:
            return False
        gap = self._make_frank_wolfe_step(
            i, argmax_score(self.output_cache[i]).corner
        ).gap
        # Algorithm 5: max(F g_i, nu / n g) bounds the gap of a hit from below.
        global_threshold = settings.cache_global / self.n * self._last_or_estimated_gap
        return bool(
            gap > 0
            and gap
            >= max(settings.cache_local * self.gap_estimates[i], global_threshold)
        )

    def _visit_example(self, i: int, corner: Corner | None, is_repeated: bool) -> None:
        settings = self.settings
        if corner is None:
            output = argmax_score(self.output_cache[i])
        else:
            self.step_oracle_calls += not is_repeated
            self.gap_estimates[i] = max(self._make_frank_wolfe_step(i, corner).gap, 0.0)
            stores_outputs = settings.uses_cache or settings.has_output_weights
            output = (
                self._store_output(i, corner)
                if stores_outputs
                else StoredOutput(corner)
            )
        self.num_cache_hits += corner is None
        self.num_steps += 1
        self._take_step(i, output)

    def _call_oracle_batch(self, examples: list[int]) -> list[Corner]:
        batch_oracle = getattr(self.problem, "worst_many", None)
        if batch_oracle is None or len(examples) < 2:
            return [self._call_oracle(i) for i in examples]
        corners = batch_oracle(examples, self.current_w)
        return [corner._replace(psi=as_vector(corner.psi)) for corner in corners]

    def _call_oracle(self, i: int) -> Corner:
        corner = self.problem.worst(i, self.current_w)
        return corner._replace(psi=as_vector(corner.psi))

    def _augmented_score(self, corner: Corner) -> float:
        return corner.loss - dot(corner.psi, self.current_w)

    def _dual_vertex(self, corner: Corner) -> tuple[Vector, float]:
        return corner.psi / (self.settings.lam * self.n), corner.loss / self.n

    def _make_step(self, kind: str, w: Vector, ell: float, max_step: float) -> Step:
        # <-grad f, delta> = l_d - lambda <w_d, w> for a direction with image (w_d,
        # l_d).
        gap = ell - self.settings.lam * dot(w, self.current_w)
        return Step(kind, w, ell, gap, max_step)

    def _make_frank_wolfe_step(self, i: int, corner: Corner) -> Step:
        w, ell = self._dual_vertex(corner)
        return self._make_step("fw", w - self.blocks[i], ell - self.ell[i], 1.0)

    def _store_output(self, i: int, corner: Corner) -> StoredOutput:
        outputs, settings = self.output_cache[i], self.settings
        new_output = StoredOutput(corner, 0.0, self._augmented_score(corner))
        # A stored output of equal score is a maximiser, too: reuse saves memory.
        for output in outputs:
            if (
                settings.has_output_weights
                and output.augmented_score >= new_output.augmented_score - TIE_TOLERANCE
            ):
                return output
        for output in outputs:
            if output.is_same_output(corner):
                return output
        unweighted = [
            s for s in outputs if not settings.has_output_weights or s.alpha == 0
        ]
        # Evict the smallest score, but no output with weight: w_i is their combination.
        if len(outputs) >= settings.cache_size and unweighted:
            outputs[
                outputs.index(
                    min(unweighted, key=lambda output: output.augmented_score)
                )
            ] = new_output
        else:
            outputs.append(new_output)
        return new_output

    def _take_step(self, i: int, new_output: StoredOutput) -> None:
        settings, outputs, lam = self.settings, self.output_cache[i], self.settings.lam
        fw_step = self._make_frank_wolfe_step(i, new_output.corner)
        if not settings.has_output_weights:
            self._apply_step(i, fw_step, new_output.corner)
            return
        away_output = argmin_score([output for output in outputs if output.alpha > 0])
        away_w, away_ell = self._dual_vertex(away_output.corner)
        new_w, new_ell = self._dual_vertex(new_output.corner)
        away_weight = away_output.alpha
        pairwise_step = self._make_step(
            "pairwise", new_w - away_w, new_ell - away_ell, away_weight
        )
        # Away steps end where the weight of the output is 0: alpha (1 + gamma) = gamma.
        max_away_step = away_weight / (1 - away_weight) if away_weight < 1 else 0.0
        away_step = self._make_step(
            "away", self.blocks[i] - away_w, self.ell[i] - away_ell, max_away_step
        )
        candidates = {
            "pairwise": [pairwise_step],
            "away": [fw_step if fw_step.gap > away_step.gap else away_step],
            "safeguarded": [fw_step, pairwise_step],
            "best": [fw_step, pairwise_step, away_step],
        }[STEP_RULES[settings.step_rule]]
        chosen = max(candidates, key=lambda step: step.gain(lam))
        gamma = self._apply_step(i, chosen, new_output.corner)
        is_drop_step = gamma > 0 and gamma == chosen.max_step
        if chosen.kind == "fw":
            for output in outputs:
                output.alpha *= 1 - gamma
            new_output.alpha += gamma
        elif gamma > 0 and chosen.kind == "pairwise":
            new_output.alpha += gamma
            away_output.alpha = 0.0 if is_drop_step else away_weight - gamma
        elif gamma > 0:
            for output in outputs:
                output.alpha *= 1 + gamma
            away_output.alpha = 0.0 if is_drop_step else away_output.alpha - gamma
        # Algorithm 3 sets the weight to exactly 0. Recomputing w_i removes its rounding
        # error.
        if is_drop_step and chosen.kind != "fw":
            self.num_drop_steps += 1
            self._recompute_block(i)
        if not settings.uses_cache:
            self._drop_zero_weight_outputs(i)

    def _apply_step(self, i: int, step: Step, corner: Corner) -> float:
        gamma = step.size(self.settings.lam)
        # Frank-Wolfe steps never decrease the dual; rounding can make the gap negative.
        if gamma == 0 or (step.kind == "fw" and step.gap <= 0):
            return 0.0
        change = gamma * step.w
        add(self.unclipped_w, change)
        self.blocks[i] = self.blocks[i] + change
        self.ell[i] += gamma * step.ell
        # A full step replaces the block: no rounding of (1 - 1) w_i remains.
        if step.kind == "fw" and gamma == 1:
            self.blocks[i], self.ell[i] = self._dual_vertex(corner)
        self._clip(change)
        if self.settings.averages:
            # lag = v - average: iterates before this step lack its change.
            previous_weight_sum = self.num_steps * (self.num_steps - 1) / 2
            add(self.average_lag, previous_weight_sum * gamma * step.w)
            self.average_lag_ell += previous_weight_sum * gamma * step.ell
        return gamma

    def _recompute_block(self, i: int) -> None:
        total = sum(output.alpha for output in self.output_cache[i])
        self.blocks[i], self.ell[i] = self.rows.zero_vector(), 0
        for output in self.output_cache[i]:
            output.alpha /= total
            w, ell = self._dual_vertex(output.corner)
            self.blocks[i] = self.blocks[i] + output.alpha * w
            self.ell[i] += output.alpha * ell

    def _drop_zero_weight_outputs(self, i: int) -> None:
        outputs = self.output_cache[i]
        for k in range(len(outputs) - 1, -1, -1):
            if outputs[k].alpha == 0:
                outputs[k] = outputs[-1]
                outputs.pop()

    # certificates

    def compute_certificate(self) -> tuple[float, float, float]:
        """Compute primal, dual and the exact gap of each example by n oracle calls."""
        self.certificate_oracle_calls += self.n
        if self.sparse:
            # The problem computes hinges of all examples in one call.
            self.hinges = self.problem.hinges(self.current_w)
            # g_i = max_y H_i / n - (l_i - lambda <w_i, w>): eq. (7).
            gaps = self.hinges / self.n - self.compute_expected_hinges()
        else:
            corners = [self._call_oracle(i) for i in range(self.n)]
            self.hinges = np.array(
                [max(self._augmented_score(c), 0.0) for c in corners]
            )
            gaps = np.array(
                [self._make_frank_wolfe_step(i, c).gap for i, c in enumerate(corners)]
            )
        self.gap_estimates = np.maximum(gaps, 0.0)
        self.last_gap = gap = float(self.gap_estimates.sum())
        self.num_certificates += 1
        lam = self.settings.lam
        if self.settings.averages and self.num_steps:
            v, w, ell = self._averaged()
            primal = self.problem.primal(w, lam)
            self.certificate_oracle_calls += self.n
            dual = self._compute_dual(v, w, ell)
            return primal, dual, primal - dual
        primal = lam / 2 * float(np.dot(self.current_w, self.current_w))
        return primal + float(self.hinges.mean()), self.dual, gap

    def compute_expected_hinges(self) -> Floats:
        """``ell_i - lambda <w_i, w>`` of each example; needs no oracle call."""
        return self.ell - self.settings.lam * self.rows.dot_products(
            self.blocks, self.current_w
        )

    def expected_costs_and_squared_norms(self) -> tuple[Floats, Floats]:
        """Expected costs, and squared norms of expected features, under alpha_i."""
        expected_features = self.rows.scale(self.blocks, self.settings.lam * self.n)
        return self.n * self.ell, np.array(
            [squared_norm(row) for row in expected_features]
        )

    def rebuild_weights(self) -> None:
        """Recompute w as the sum of w_i, without accumulated rounding errors."""
        self.unclipped_w = self.rows.sum(self.blocks)
        self._clip()

    # another lambda

    def shrink_duals(self, rho: float) -> None:
        """``alpha <- rho alpha``, plus 1 - rho on gold outputs; for a smaller lambda.

        w_i is proportional to alpha / lambda and gold features are 0, so that the
        weights do not change (proposition 1).
        """
        self.ell *= rho
        for outputs in self.output_cache:
            for output in outputs:
                output.alpha *= rho
            gold = gold_output(self.rows.zero_vector())
            stored_gold = [
                output for output in outputs if output.is_same_output(gold.corner)
            ]
            if not stored_gold:
                gold.alpha = 0.0
                outputs.append(gold)
            (stored_gold or outputs[-1:])[0].alpha += 1 - rho

    def scale_weights(self, factor: float) -> None:
        """``w <- factor w``, with the same dual variables."""
        self.blocks = self.rows.scale(self.blocks, factor)
        self.unclipped_w = self.unclipped_w * factor
        self._clip()

    def load_duals(self, state: dict[str, NDArray[Any]]) -> None:
        """Set dual variables and weights to those of a state."""
        saved, expected = (
            self.rows.shape("blocks", state),
            (self.n, len(self.unclipped_w)),
        )
        if saved != expected:
            raise ValueError(
                f"state: expected blocks of {expected} as this problem has, got {saved}"
            )
        self.blocks, self.ell = self.rows.load("blocks", state), state["ell"].copy()
        self.unclipped_w = state.get("v", state["w"]).copy()
        self._clip()
        if self.settings.has_output_weights and not state["weighed"]:
            raise ValueError(
                "start: expected a solution of a solver with the same kind of steps: "
                "weights of labellings are missing"
            )
        # Plain Frank-Wolfe steps need no outputs, only w_i and l_i.
        if self.settings.uses_cache or self.settings.has_output_weights:
            self.output_cache = load_outputs(state, self.rows)

    # saving

    def state(self) -> dict[str, NDArray[Any]]:
        """Arrays from which ``load`` continues the run."""
        counters = [
            self.num_steps,
            self.num_cache_hits,
            self.num_drop_steps,
            self.step_oracle_calls,
        ]
        unclipped = {}
        if self.settings.has_bounds or self.settings.averages:
            unclipped = {"v": self.unclipped_w.copy()}
        return {
            **self.rows.save("blocks", self.blocks),
            "ell": self.ell.copy(),
            "estimates": self.gap_estimates.copy(),
            "w": self.w,
            **unclipped,
            "lag": self.average_lag.copy(),
            "lag_ell": np.array(self.average_lag_ell),
            "counts": np.array(counters),
            "measured": np.array(
                [self.certificate_oracle_calls, self.num_certificates]
            ),
            "last_gap": np.array(self.last_gap),
            "weighed": np.array(self.settings.has_output_weights),
            **save_outputs(self.output_cache, self.rows),
        }

    def load(self, state: dict[str, NDArray[Any]]) -> None:
        """Restore the arrays of ``state``."""
        self.load_duals(state)
        self.gap_estimates = state["estimates"].copy()
        self.average_lag, self.average_lag_ell = (
            state["lag"].copy(),
            float(state["lag_ell"]),
        )
        (
            self.num_steps,
            self.num_cache_hits,
            self.num_drop_steps,
            self.step_oracle_calls,
        ) = map(int, state["counts"])
        self.certificate_oracle_calls, self.num_certificates = map(
            int, state["measured"]
        )
        self.last_gap = float(state["last_gap"])
