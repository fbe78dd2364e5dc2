"""Block-coordinate Frank-Wolfe on any max oracle, in plain numpy.

Step for step what ``compiled_dual`` does in compiled loops: given the same random
numbers, the same iterates. Here ``w_i``, the share of example i in the weights, is a
vector, dense or sparse as the corners of the problem are, and what an example has met
is a list of outputs.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp._kernels.compilation.interrupts import defer_sigint
from smoothsp._kernels.linear.working_sets import TIE
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
    """A dual point of a problem with an oracle in Python, and steps from there."""

    compiled = False

    def __init__(self, problem: BatchLinearProblem, plan: EngineSettings) -> None:
        self.problem, self.plan = problem, plan
        self.rows = make_vector_store(problem)
        self.sparse = isinstance(self.rows, SparseVectorStore)
        self.n = n = len(problem)
        d = problem.num_weights
        self._low, self._high = expand_bounds((plan.lower, plan.upper), d)
        self.v, self.lag, self.lag_ell = np.zeros(d), np.zeros(d), 0.0
        self._clip()
        self.blocks, self.ell = self.rows.zeros(n), np.zeros(n)
        self.gap_estimates = np.full(n, math.inf)
        # not measured yet
        self.last_gap = self._known_gap = math.inf
        self.steps = self.hits = self.drops = self.calls = 0
        self.certificate_oracle_calls = self.num_certificates = 0
        self.store = [[gold_output(self.rows.zero_vector())] for _ in range(n)]

    def _clip(self, moved: Any = None) -> None:
        """Weights from what is unclipped, where it ``moved`` if that is known."""
        if not (self.sparse and moved is not None):
            self.w_now = np.clip(self.v, self._low, self._high)
            return
        at = moved.columns
        self.w_now[at] = np.clip(self.v[at], self._low[at], self._high[at])

    @property
    def oracle_calls(self) -> int:
        """Calls so far, those of certificates included."""
        return self.calls + self.certificate_oracle_calls

    @property
    def dual(self) -> float:
        """The dual objective."""
        return self._dual(self.v, self.w_now, float(self.ell.sum()))

    def _dual(self, v: Floats, w: Floats, ell: float) -> float:
        return ell - self.plan.lam * float(np.dot(v, w) - np.dot(w, w) / 2)

    @property
    def w(self) -> Floats:
        """Weights: of the average, if there is one."""
        return self._mean()[1].copy()

    def _mean(self) -> tuple[Floats, Floats, float]:
        k, ell = self.steps, float(self.ell.sum())
        if not self.plan.averaging or k == 0:
            return self.v, self.w_now, ell
        share = 2 / (k * (k + 1))
        v = self.v - share * self.lag
        return v, np.clip(v, self._low, self._high), ell - share * self.lag_ell

    # steps

    def visit_in_order(self, order: NDArray[np.int64]) -> None:
        """A step on each of ``order``."""
        size = self.plan.batch
        self._look_at_gaps()
        for at in range(0, len(order), size):
            self.visit([int(i) for i in order[at : at + size]])

    def visit_by_gap(self, uniforms: Floats, floor: float) -> int:
        """Steps drawn by estimated gaps until these sum to ``floor``; how many."""
        self._look_at_gaps()
        for done in range(0, len(uniforms), self.plan.batch):
            sums = np.cumsum(self.gap_estimates)
            if sums[-1] <= floor:
                return done
            drawn = uniforms[done : done + self.plan.batch] * sums[-1]
            last = int(np.flatnonzero(self.gap_estimates)[-1])
            at = np.minimum(np.searchsorted(sums, drawn, side="right"), last)
            self.visit([int(i) for i in at])
        return len(uniforms)

    def _look_at_gaps(self) -> None:
        """Find the last exact gap; before any, the estimates' sum."""
        self._known_gap = self.last_gap
        if math.isinf(self.last_gap):
            self._known_gap = float(self.gap_estimates.sum())

    def visit(self, chosen: list[int]) -> None:
        """A step on each example, towards answers of the oracle at the weights before.

        All oracles are called at once; sizes of steps are those that are best when they
        are taken, so that the dual never falls.
        """
        asked = [i for i in dict.fromkeys(chosen) if not self._is_known(i)]
        corners = dict(zip(asked, self._worst_of(asked), strict=True))
        for place, i in enumerate(chosen):
            if place:
                self._look_again(i)
            again = i in chosen[:place]
            with defer_sigint():
                self._visit(i, corners.get(i), again)

    def _look_again(self, i: int) -> None:
        for slot in self.store[i]:
            slot.h = self._violation(slot.corner)

    def _is_known(self, i: int) -> bool:
        """Whether the cache answers for example i."""
        self._look_again(i)
        plan = self.plan
        if not plan.cached:
            return False
        gap = self._towards(i, argmax_score(self.store[i]).corner).num
        least = plan.overall / self.n * self._known_gap
        return bool(gap > 0 and gap >= max(plan.local * self.gap_estimates[i], least))

    def _visit(self, i: int, corner: Corner | None, again: bool) -> None:
        plan = self.plan
        if corner is None:
            own = argmax_score(self.store[i])
        else:
            self.calls += not again
            self.gap_estimates[i] = max(self._towards(i, corner).num, 0.0)
            keeps = plan.cached or plan.weighed
            own = self._put(i, corner) if keeps else StoredOutput(corner)
        self.hits += corner is None
        self.steps += 1
        self._take_step(i, own)

    def _worst_of(self, asked: list[int]) -> list[Corner]:
        many = getattr(self.problem, "worst_many", None)
        if many is None or len(asked) < 2:
            return [self._worst(i) for i in asked]
        found = many(asked, self.w_now)
        return [corner._replace(psi=as_vector(corner.psi)) for corner in found]

    def _worst(self, i: int) -> Corner:
        found = self.problem.worst(i, self.w_now)
        return found._replace(psi=as_vector(found.psi))

    def _violation(self, corner: Corner) -> float:
        return corner.loss - dot(corner.psi, self.w_now)

    def _image(self, corner: Corner) -> tuple[Vector, float]:
        return corner.psi / (self.plan.lam * self.n), corner.loss / self.n

    def _step(self, kind: str, w: Vector, ell: float, largest: float) -> Step:
        num = ell - self.plan.lam * dot(w, self.w_now)
        return Step(kind, w, ell, num, largest)

    def _towards(self, i: int, corner: Corner) -> Step:
        w, ell = self._image(corner)
        return self._step("fw", w - self.blocks[i], ell - self.ell[i], 1.0)

    def _put(self, i: int, corner: Corner) -> StoredOutput:
        store, plan = self.store[i], self.plan
        new = StoredOutput(corner, 0.0, self._violation(corner))
        for slot in store:
            if plan.weighed and slot.h >= new.h - TIE:
                return slot
        for slot in store:
            if slot.holds(corner):
                return slot
        free = [s for s in store if not plan.weighed or s.alpha == 0]
        if len(store) >= plan.most and free:
            store[store.index(min(free, key=lambda slot: slot.h))] = new
        else:
            store.append(new)
        return new

    def _take_step(self, i: int, own: StoredOutput) -> None:
        plan, store, lam = self.plan, self.store[i], self.plan.lam
        straight = self._towards(i, own.corner)
        if not plan.weighed:
            self._move(i, straight, own.corner)
            return
        other = argmin_score([slot for slot in store if slot.alpha > 0])
        there, loss = self._image(other.corner)
        here, cost = self._image(own.corner)
        mass = other.alpha
        pair = self._step("pairwise", here - there, cost - loss, mass)
        furthest = mass / (1 - mass) if mass < 1 else 0.0
        away = self._step("away", self.blocks[i] - there, self.ell[i] - loss, furthest)
        allowed = {
            "pairwise": [pair],
            "away": [straight if straight.num > away.num else away],
            "safeguarded": [straight, pair],
            "best": [straight, pair, away],
        }[STEP_RULES[plan.steps]]
        chosen = max(allowed, key=lambda step: step.gain(lam))
        gamma = self._move(i, chosen, own.corner)
        dropped = gamma > 0 and gamma == chosen.largest
        if chosen.kind == "fw":
            for slot in store:
                slot.alpha *= 1 - gamma
            own.alpha += gamma
        elif gamma > 0 and chosen.kind == "pairwise":
            own.alpha += gamma
            other.alpha = 0.0 if dropped else mass - gamma
        elif gamma > 0:
            for slot in store:
                slot.alpha *= 1 + gamma
            other.alpha = 0.0 if dropped else other.alpha - gamma
        if dropped and chosen.kind != "fw":
            self.drops += 1
            self._sum_slots(i)
        if not plan.cached:
            self._forget_weightless(i)

    def _move(self, i: int, step: Step, corner: Corner) -> float:
        gamma = step.size(self.plan.lam)
        if gamma == 0 or (step.kind == "fw" and step.num <= 0):
            return 0.0
        move = gamma * step.w
        add(self.v, move)
        self.blocks[i] = self.blocks[i] + move
        self.ell[i] += gamma * step.ell
        if step.kind == "fw" and gamma == 1:
            self.blocks[i], self.ell[i] = self._image(corner)
        self._clip(move)
        if self.plan.averaging:
            older = self.steps * (self.steps - 1) / 2
            add(self.lag, older * gamma * step.w)
            self.lag_ell += older * gamma * step.ell
        return gamma

    def _sum_slots(self, i: int) -> None:
        total = sum(slot.alpha for slot in self.store[i])
        self.blocks[i], self.ell[i] = self.rows.zero_vector(), 0
        for slot in self.store[i]:
            slot.alpha /= total
            w, ell = self._image(slot.corner)
            self.blocks[i] = self.blocks[i] + slot.alpha * w
            self.ell[i] += slot.alpha * ell

    def _forget_weightless(self, i: int) -> None:
        store = self.store[i]
        for k in range(len(store) - 1, -1, -1):
            if store[k].alpha == 0:
                store[k] = store[-1]
                store.pop()

    # certificates

    def compute_certificate(self) -> tuple[float, float, float]:
        """Primal, dual and gap, with the exact gap of each example: n oracle calls."""
        self.certificate_oracle_calls += self.n
        if self.sparse:
            # many examples at once
            self.hinges = self.problem.hinges(self.w_now)
            gaps = self.hinges / self.n - self.expected_hinges()
        else:
            found = [self._worst(i) for i in range(self.n)]
            self.hinges = np.array([max(self._violation(c), 0.0) for c in found])
            gaps = np.array([self._towards(i, c).num for i, c in enumerate(found)])
        self.gap_estimates = np.maximum(gaps, 0.0)
        self.last_gap = gap = float(self.gap_estimates.sum())
        self.num_certificates += 1
        lam = self.plan.lam
        if self.plan.averaging and self.steps:
            v, w, ell = self._mean()
            primal = self.problem.primal(w, lam)
            self.certificate_oracle_calls += self.n
            dual = self._dual(v, w, ell)
            return primal, dual, primal - dual
        primal = lam / 2 * float(np.dot(self.w_now, self.w_now))
        return primal + float(self.hinges.mean()), self.dual, gap

    def expected_hinges(self) -> Floats:
        """``ell_i - lambda <w_i, w>`` of each example, without a call of the oracle."""
        return self.ell - self.plan.lam * self.rows.dot_products(
            self.blocks, self.w_now
        )

    def expected_costs_and_squared_norms(self) -> tuple[Floats, Floats]:
        """Expected cost of each example, and ``|psi_i|^2`` of what it expects."""
        sizes = self.rows.scale(self.blocks, self.plan.lam * self.n)
        return self.n * self.ell, np.array([squared_norm(row) for row in sizes])

    def rebuild_weights(self) -> None:
        """Weights anew from the blocks: rounding does not add up."""
        self.v = self.rows.sum(self.blocks)
        self._clip()

    # another lambda

    def shrink_duals(self, rho: float) -> None:
        """``alpha <- rho alpha``, the rest on the gold outputs; for a smaller lambda.

        ``w_i`` is divided by lambda, so it stays as it is.
        """
        self.ell *= rho
        for store in self.store:
            for slot in store:
                slot.alpha *= rho
            gold = gold_output(self.rows.zero_vector())
            known = [slot for slot in store if slot.holds(gold.corner)]
            if not known:
                gold.alpha = 0.0
                store.append(gold)
            (known or store[-1:])[0].alpha += 1 - rho

    def scale_weights(self, factor: float) -> None:
        """``w <- factor w``, with the same dual variables."""
        self.blocks = self.rows.scale(self.blocks, factor)
        self.v = self.v * factor
        self._clip()

    def load_duals(self, state: dict[str, NDArray[Any]]) -> None:
        """Start from the dual variables and weights of a state."""
        found, want = self.rows.shape("blocks", state), (self.n, len(self.v))
        if found != want:
            raise ValueError(
                f"state: expected blocks of {want} as this problem has, got {found}"
            )
        self.blocks, self.ell = self.rows.load("blocks", state), state["ell"].copy()
        self.v = state.get("v", state["w"]).copy()
        self._clip()
        if self.plan.weighed and not state["weighed"]:
            raise ValueError(
                "start: expected a solution of a solver with the same kind of steps: "
                "weights of labellings are missing"
            )
        if self.plan.cached or self.plan.weighed:
            self.store = load_outputs(state, self.rows)

    # saving

    def state(self) -> dict[str, NDArray[Any]]:
        """All that changes, as arrays."""
        numbers = [self.steps, self.hits, self.drops, self.calls]
        apart = {}
        if self.plan.boxed or self.plan.averaging:
            apart = {"v": self.v.copy()}
        return {
            **self.rows.save("blocks", self.blocks),
            "ell": self.ell.copy(),
            "estimates": self.gap_estimates.copy(),
            "w": self.w,
            **apart,
            "lag": self.lag.copy(),
            "lag_ell": np.array(self.lag_ell),
            "counts": np.array(numbers),
            "measured": np.array(
                [self.certificate_oracle_calls, self.num_certificates]
            ),
            "last_gap": np.array(self.last_gap),
            "weighed": np.array(self.plan.weighed),
            **save_outputs(self.store, self.rows),
        }

    def load(self, state: dict[str, NDArray[Any]]) -> None:
        """Go on from a saved state."""
        self.load_duals(state)
        self.gap_estimates = state["estimates"].copy()
        self.lag, self.lag_ell = state["lag"].copy(), float(state["lag_ell"])
        self.steps, self.hits, self.drops, self.calls = map(int, state["counts"])
        self.certificate_oracle_calls, self.num_certificates = map(
            int, state["measured"]
        )
        self.last_gap = float(state["last_gap"])
