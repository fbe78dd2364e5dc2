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
# Above this fraction of used weights, vectors store all weights.
_DENSE_FRACTION = 0.75


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
    With a smoothed hinge, certificates cost one call per example for ``primal``. The
    weights of features that do not occur, and of pairs that ``all_pairs=False``
    excludes, stay 0. If they are at least a quarter of all weights, difference pairs
    omit them. If a budget is used up within a line search, the iterate before it is
    returned, and a resumed run repeats that search.

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
            Problem to solve; a :class:`CallbackProblem` needs ``"hinge-l2"``.
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
        monitor = RunMonitor(self._limits, problem)
        settings = f"LBFGS lam={self.lam!r} loss={self.loss} memory={self.memory}"
        run = _LBFGSRun(objective, monitor, self.memory, settings)
        if resume is not None:
            if start is not None:
                raise ValueError("start: expected None when there is a state to resume")
            with states.open_state(resume) as opened:
                monitor.load(opened, settings)
                run.load(opened)
        elif start is not None:
            run.start(objective.as_start_weights(start))
        with monitor.guard_run():
            run.run_loop()
        return run.solution()


class _StopRun(Exception):
    """Ends a line search: a limit is reached, or the gap is small enough."""


class _LBFGSRun:
    """Run of L-BFGS on the used weights: iterates, objective and gradient."""

    def __init__(
        self, objective: AnyObjective, monitor: RunMonitor, memory: int, settings: str
    ) -> None:
        self.objective, self.monitor, self.memory = objective, monitor, memory
        self.settings = settings
        used_weights = objective.active_weights()
        self.padded_w = objective.zero_buffer()
        # Kernels take vectors of all weights: no copies if most are used.
        self.uses_all_weights = len(used_weights) >= _DENSE_FRACTION * len(
            self.padded_w
        )
        self.used_weights: Any = slice(None) if self.uses_all_weights else used_weights
        self.gradient_buffer = (
            np.zeros(0) if self.uses_all_weights else objective.zero_buffer()
        )
        size = len(used_weights)
        self.vector_pool = VectorPool(
            objective.zero_buffer
            if self.uses_all_weights
            else lambda: np.empty(size, dtype=np.float64)
        )
        self.begin(self.padded_w[self.used_weights].copy())
        self.converged_iterate: Iterate | None = None

    def start(self, padded_w: Floats) -> None:
        """Start from padded weights; unused weights become 0."""
        used_weights = self.objective.active_weights()
        self.padded_w[used_weights] = padded_w[used_weights]
        self.begin(self.padded_w[self.used_weights].copy())

    def begin(self, x: Floats) -> None:
        """Set the iterate to x, without evaluating it."""
        self.iterate = Iterate(x, math.nan, np.zeros(len(x)), (), ())
        # Passes, certificates, and oracle calls of certificates at ``iterate``.
        self.counts_at_iterate = (0, 0, 0)
        self.certificate_oracle_calls = 0

    def run_loop(self) -> None:
        """Make steps until a stopping rule holds."""
        monitor = self.monitor
        self._report_to_observer()
        if monitor.has_stopped:
            return
        try:
            if math.isnan(self.iterate.value):
                gradient = self.vector_pool.acquire()
                value = self.evaluate(self.iterate.x, gradient)
                self._accept_and_certify(
                    self.iterate._replace(value=value, gradient=gradient)
                )
            while not monitor.has_stopped:
                previous = self.iterate
                following = next_iterate(
                    previous, self.evaluate, self.memory, self.vector_pool
                )
                if following is None:
                    monitor.has_stopped = True
                    monitor.status = (
                        "no step decreases the objective by more than rounding error"
                    )
                else:
                    self._accept_and_certify(following)
                    self.vector_pool.release_unshared(following, previous)
        except _StopRun:
            # The line search ended early: certify the converged or the last iterate.
            self._certify(self.converged_iterate or self.iterate)

    def _accept_and_certify(self, iterate: Iterate) -> None:
        # Counts include the certificate computed below.
        certificate_oracle_calls = (
            self.certificate_oracle_calls + self._calls_for_certificate
        )
        counts = (
            self.monitor.passes,
            len(self.monitor.history) + 1,
            certificate_oracle_calls,
        )
        self.iterate, self.counts_at_iterate = iterate, counts
        self._certify(iterate)
        self._report_to_observer()

    @property
    def _calls_for_certificate(self) -> int:
        objective = self.objective
        return 0 if objective.loss.name == "likelihood" else objective.n

    @property
    def calls(self) -> int:
        """Oracle calls so far."""
        return self.monitor.passes * self.objective.n + self.certificate_oracle_calls

    def _report_to_observer(self) -> None:
        self.monitor.report_to_observer(self.calls, lambda: self._unpad(self.iterate.x))

    def _certify(self, iterate: Iterate) -> None:
        monitor, objective = self.monitor, self.objective
        gap = float(np.dot(iterate.gradient, iterate.gradient)) / (2 * objective.lam)
        value = iterate.value
        bounds = Bounds(value, value - gap, gap)
        if self._calls_for_certificate:
            self.certificate_oracle_calls += self._calls_for_certificate
            self._scatter(iterate.x)
            primal = float(objective.losses(self.padded_w, 0.0).mean())
            primal += objective.lam / 2 * float(np.dot(iterate.x, iterate.x))
            bounds = bounds._replace(primal=primal, smoothed_primal=value)
        monitor.record_certificate(
            self.calls, bounds, self._copy_state, lambda: self._unpad(iterate.x)
        )
        monitor.update_progress(gap)

    def _scatter(self, x: Floats) -> None:
        self.padded_w[self.used_weights] = x

    def _unpad(self, x: Floats) -> Floats:
        """Copy of the weights without padding."""
        self._scatter(x)
        return self.objective.unpad(self.padded_w)

    def evaluate(self, x: Floats, gradient: Floats) -> float:
        """Return the objective at x and fill ``gradient``; raise to end the run."""
        objective, monitor = self.objective, self.monitor
        has_started = not math.isnan(self.iterate.value)
        if has_started and monitor.is_exhausted():
            raise _StopRun
        mu = objective.loss.mu
        if self.uses_all_weights:
            mean, _, _ = objective.gradient(x, mu, gradient)
        else:
            self._scatter(x)
            mean, _, _ = objective.gradient(self.padded_w, mu, self.gradient_buffer)
            # mode="clip" writes into ``out`` directly; the default "raise" buffers it.
            np.take(self.gradient_buffer, self.used_weights, out=gradient, mode="clip")
        if len(x):  # BLAS fails on empty vectors
            daxpy(x, gradient, a=objective.lam)
        value = mean + objective.lam / 2 * float(np.dot(x, x))
        monitor.passes += 1
        gap = float(np.dot(gradient, gradient)) / (2 * objective.lam)
        if has_started and gap <= monitor.gap_threshold:
            self.converged_iterate = Iterate(x, value, gradient, (), ())
            raise _StopRun
        return value

    def solution(self) -> Solution:
        """Solution of the run; frees the pairs."""
        monitor = self.monitor
        # No gradient is computed after this: free the buffer.
        self.gradient_buffer = np.zeros(0)
        state = self._pop_state(
            list(self.iterate.iterate_diffs), list(self.iterate.gradient_diffs)
        )
        w = self._unpad((self.converged_iterate or self.iterate).x)
        return monitor.solution(w, self.calls, state)

    def _copy_state(self) -> State:
        at = self.iterate
        state = self._pop_state(list(at.iterate_diffs), list(at.gradient_diffs))
        self.iterate = at
        return {**state, "slope": at.gradient.copy()}

    def _pop_state(
        self, iterate_diffs: list[Floats], gradient_diffs: list[Floats]
    ) -> State:
        """Arrays of the state; empties the lists of pairs to limit peak memory."""
        self.iterate = iterate = self.iterate._replace(
            iterate_diffs=(), gradient_diffs=()
        )
        passes, certificates, certificate_oracle_calls = self.counts_at_iterate
        monitor_state = self.monitor.state(self.settings)
        return {
            **monitor_state,
            # Evaluations of an unfinished line search are not counted.
            "passes": np.array(passes),
            "history": monitor_state["history"][:certificates],
            "looked": np.array(certificate_oracle_calls),
            "w": self._unpad(iterate.x),
            "value": np.array(iterate.value),
            "slope": iterate.gradient,
            "pair_steps": _stack_and_free(iterate_diffs, len(iterate.x)),
            "pair_turns": _stack_and_free(gradient_diffs, len(iterate.x)),
        }

    def load(self, state: State) -> None:
        """Restore the arrays of ``state``."""
        (gradient,) = checks.fill_from_state(state, slope=np.empty(len(self.iterate.x)))
        x = self.objective.as_start_weights(state["w"])[self.used_weights].copy()
        self.certificate_oracle_calls = int(state["looked"])
        self.iterate = Iterate(
            x,
            float(state["value"]),
            gradient,
            tuple(row.copy() for row in state["pair_steps"]),
            tuple(row.copy() for row in state["pair_turns"]),
        )
        self.counts_at_iterate = (
            self.monitor.passes,
            len(self.monitor.history),
            self.certificate_oracle_calls,
        )


def _stack_and_free(rows: list[NDArray[np.float64]], size: int) -> NDArray[np.float64]:
    """Stack rows to a matrix; frees each row after its copy to limit peak memory."""
    matrix = np.empty((len(rows), size))
    for k in range(len(rows)):
        matrix[k] = rows.pop(0)
    return matrix
