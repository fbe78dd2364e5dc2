"""L-BFGS for linear models with a smooth loss."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import daxpy

from smoothsp.linear.engines.compiled_objective import Loss
from smoothsp.linear.engines.lbfgs_step import Iterate, VectorPool, next_iterate
from smoothsp.linear.engines.objective_factory import AnyObjective, make_objective
from smoothsp.linear.engines.run_monitor import RunMonitor, Tolerance, check_limits
from smoothsp.linear.engines.solution import Bounds, Callback, Solution
from smoothsp.linear.inputs import checks, states
from smoothsp.linear.problems import LinearProblem

State = dict[str, NDArray[Any]]
Floats = NDArray[np.float64]
# Share of the weights from which on the vectors hold those that are not used, too.
_MOST = 0.75


class LBFGS:
    r"""L-BFGS on the whole objective, for the likelihood or a smoothed hinge.

    .. math:: P(w) = \tfrac{\lambda}{2} \|w\|^2 + \tfrac{1}{n} \sum_i f_i(w),
        \qquad P(w) - \min P \le \frac{\|\nabla P(w)\|^2}{2 \lambda}

    Parameters
    ----------
    lam
        lambda, positive.
    loss
        ``"likelihood"``, ``"hinge-entropy"`` or ``"hinge-l2"``, as in :class:`SGD`.
    mu, k
        Strength of the smoothing, and number of outputs of ``"hinge-l2"``.
    memory
        Number of pairs of differences that are stored.
    tol
        The gap at which to stop: the bound above.
    max_passes, max_seconds, callback, progress
        As in :class:`SGD`. A pass is one evaluation of objective and gradient.

    Notes
    -----
    With a smoothed hinge, certificates cost a call an example for ``primal``. The
    weights of features that do not occur, and of pairs that
    ``all_pairs=False`` excludes, stay 0. If they are at least a quarter of all weights,
    they take no memory in the pairs. A budget that ends within a line search returns
    the iterate before it, and a resumed run repeats that search.

    Source: Liu and Nocedal, "On the limited memory BFGS method for large scale
    optimization" (1989); steps by ``scipy.optimize.line_search``.

    Examples
    --------
    >>> import numpy as np
    >>> from smoothsp.linear.problems import ChainProblem
    >>> problem = ChainProblem(np.eye(3), [0, 1, 1], lengths=[2, 1])
    >>> LBFGS(lam=0.1, tol=1e-8).solve(problem).converged
    True
    """

    def __init__(
        self,
        *,
        lam: float,
        loss: str = "likelihood",
        mu: float = 1.0,
        k: int = 5,
        memory: int = 6,
        tol: float | Tolerance = 1e-4,
        max_passes: int = 500,
        max_seconds: float | None = None,
        callback: Callback | None = None,
        progress: bool | None = None,
    ) -> None:
        self.lam = checks.as_positive("lam", lam)
        checks.require_choice("loss", loss, ("likelihood", "hinge-entropy", "hinge-l2"))
        self.loss = Loss(loss, checks.as_positive("mu", mu), k)
        self.memory = checks.as_positive_int("memory", memory)
        self._limits = check_limits(
            "L-BFGS", tol, max_passes, max_seconds, callback, progress
        )

    def solve(
        self,
        problem: LinearProblem,
        start: Solution | NDArray[np.float64] | None = None,
        resume: State | None = None,
    ) -> Solution:
        """Minimise until the gap is small enough, or the budget is used up.

        Parameters
        ----------
        problem
            What to solve; a :class:`CallbackProblem` with ``"hinge-l2"``.
        start
            A solution, or weights, to start from.
        resume
            The ``state`` of a solution of this solver; the run continues bit for bit.

        Returns
        -------
        Solution
            The objective falls from iterate to iterate. Ctrl-C does not raise; it
            returns the current weights.
        """
        objective = make_objective(problem, self.loss, self.lam)
        budget = RunMonitor(self._limits, problem)
        settings = f"LBFGS lam={self.lam!r} loss={self.loss} memory={self.memory}"
        run = _Run(objective, budget, self.memory, settings)
        if resume is not None:
            if start is not None:
                raise ValueError("start: expected None when there is a state to resume")
            with states.open_state(resume) as given:
                budget.load(given, settings)
                run.load(given)
        elif start is not None:
            run.start(objective.as_start_weights(start))
        with budget.running():
            run.follow()
        return run.solution()


class _Done(Exception):
    """A budget is used up, or the gap is small enough."""


class _Run:
    """Objective and gradient on the weights that matter, and the iterates."""

    def __init__(
        self, objective: AnyObjective, budget: RunMonitor, memory: int, settings: str
    ) -> None:
        self.objective, self.budget, self.memory = objective, budget, memory
        self.settings = settings
        used = objective.used()
        self.flat = objective.zero_buffer()
        # most are used: vectors hold all, as compiled loops take them
        self.whole = len(used) >= _MOST * len(self.flat)
        self.used: Any = slice(None) if self.whole else used
        self.G = np.zeros(0) if self.whole else objective.zero_buffer()
        size = len(used)
        self.vectors = VectorPool(
            objective.zero_buffer
            if self.whole
            else lambda: np.empty(size, dtype=np.float64)
        )
        self.begin(self.flat[self.used].copy())
        self.closest: Iterate | None = None

    def start(self, flat: Floats) -> None:
        """Start from padded weights, of which those that are not used become 0."""
        used = self.objective.used()
        self.flat[used] = flat[used]
        self.begin(self.flat[self.used].copy())

    def begin(self, x: Floats) -> None:
        """Start from x, not yet evaluated."""
        self.at = Iterate(x, math.nan, np.zeros(len(x)), (), ())
        # passes, certificates and oracle calls for these at ``at``
        self.known = (0, 0, 0)
        self.looked = 0

    def follow(self) -> None:
        """Iterates until the budget is used up."""
        budget = self.budget
        self._look()
        if budget.over:
            return
        try:
            if math.isnan(self.at.value):
                slope = self.vectors.take()
                value = self.evaluate(self.at.x, slope)
                self._keep(self.at._replace(value=value, slope=slope))
            while not budget.over:
                before = self.at
                following = next_iterate(
                    before, self.evaluate, self.memory, self.vectors
                )
                if following is None:
                    budget.over = True
                    budget.status = (
                        "no step lowers the objective any more: it is rounding"
                    )
                else:
                    self._keep(following)
                    self.vectors.give_all_but(following, before)
        except _Done:
            # within a line search: as before it, or a point that is good enough
            self._certify(self.closest or self.at)

    def _keep(self, reached: Iterate) -> None:
        # the certificate that follows included
        looked = self.looked + self._calls_for_certificate
        known = (self.budget.passes, len(self.budget.history) + 1, looked)
        self.at, self.known = reached, known
        self._certify(reached)
        self._look()

    @property
    def _calls_for_certificate(self) -> int:
        objective = self.objective
        return 0 if objective.loss.name == "likelihood" else objective.n

    @property
    def calls(self) -> int:
        """Oracle calls so far."""
        return self.budget.passes * self.objective.n + self.looked

    def _look(self) -> None:
        self.budget.look(self.calls, lambda: self._plain(self.at.x))

    def _certify(self, reached: Iterate) -> None:
        budget, objective = self.budget, self.objective
        gap = float(np.dot(reached.slope, reached.slope)) / (2 * objective.lam)
        value = reached.value
        found = Bounds(value, value - gap, gap)
        if self._calls_for_certificate:
            self.looked += self._calls_for_certificate
            self._place(reached.x)
            primal = float(objective.losses(self.flat, 0.0).mean())
            primal += objective.lam / 2 * float(np.dot(reached.x, reached.x))
            found = found._replace(primal=primal, smoothed_primal=value)
        budget.certify(self.calls, found, self._copied, lambda: self._plain(reached.x))
        budget.show(gap)

    def _place(self, x: Floats) -> None:
        self.flat[self.used] = x

    def _plain(self, x: Floats) -> Floats:
        """Weights without padding, a copy."""
        self._place(x)
        return self.objective.unpad(self.flat)

    def evaluate(self, x: Floats, slope: Floats) -> float:
        """Value at x, and the gradient into ``slope``."""
        objective, budget = self.objective, self.budget
        started = not math.isnan(self.at.value)
        if started and budget.spent():
            raise _Done
        mu = objective.loss.mu
        if self.whole:
            mean, _, _ = objective.gradient(x, mu, slope)
        else:
            self._place(x)
            mean, _, _ = objective.gradient(self.flat, mu, self.G)
            np.take(self.G, self.used, out=slope, mode="clip")
        if len(x):  # BLAS takes no empty vectors
            daxpy(x, slope, a=objective.lam)
        value = mean + objective.lam / 2 * float(np.dot(x, x))
        budget.passes += 1
        gap = float(np.dot(slope, slope)) / (2 * objective.lam)
        if started and gap <= budget.goal:
            self.closest = Iterate(x, value, slope, (), ())
            raise _Done
        return value

    def solution(self) -> Solution:
        """The last iterate."""
        budget = self.budget
        # no gradient comes after this
        self.G = np.zeros(0)
        state = self._state(list(self.at.steps), list(self.at.turns))
        w = self._plain((self.closest or self.at).x)
        return budget.solution(w, self.calls, state)

    def _copied(self) -> State:
        at = self.at
        state = self._state(list(at.steps), list(at.turns))
        self.at = at
        return {**state, "slope": at.slope.copy()}

    def _state(self, steps: list[Floats], turns: list[Floats]) -> State:
        """All that changes; nothing of the pairs is left here nor in the lists."""
        self.at = at = self.at._replace(steps=(), turns=())
        passes, certificates, looked = self.known
        known = self.budget.state(self.settings)
        return {
            **known,
            # evaluations of a line search that did not end are discarded
            "passes": np.array(passes),
            "history": known["history"][:certificates],
            "looked": np.array(looked),
            "w": self._plain(at.x),
            "value": np.array(at.value),
            "slope": at.slope,
            "pair_steps": _moved(steps, len(at.x)),
            "pair_turns": _moved(turns, len(at.x)),
        }

    def load(self, state: State) -> None:
        """Go on from a state."""
        (slope,) = checks.fill_from_state(state, slope=np.empty(len(self.at.x)))
        x = self.objective.as_start_weights(state["w"])[self.used].copy()
        self.looked = int(state["looked"])
        self.at = Iterate(
            x,
            float(state["value"]),
            slope,
            tuple(row.copy() for row in state["pair_steps"]),
            tuple(row.copy() for row in state["pair_turns"]),
        )
        self.known = (self.budget.passes, len(self.budget.history), self.looked)


def _moved(rows: list[NDArray[np.float64]], size: int) -> NDArray[np.float64]:
    """Rows as a matrix; each is freed once it is copied, so that one fits in memory."""
    matrix = np.empty((len(rows), size))
    for k in range(len(rows)):
        matrix[k] = rows.pop(0)
    return matrix
