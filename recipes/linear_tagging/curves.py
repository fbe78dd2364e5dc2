"""Single runs of ``conll_linear.py``, each kept once it is whole."""

from collections.abc import Callable
from typing import Any

import numpy as np

from linear_tagging.data import Task
from linear_tagging.methods import Method
from runs.cells import Cell
from runs.interrupts import whole
from smoothsp.linear import Certificate
from smoothsp.linear.solvers import BCFW

Show = Callable[[str], Any]
# Oracle calls a sentence at which a run is looked at.
LOOKS = (2, 4, 6, 8, 10, 12, 16, 20, 24, 30, 36, 44, 52, 60, 70, 80, 90, 100)


def looks(calls: int) -> list[int]:
    """Even numbers up to a budget."""
    return [n for n in LOOKS if n < calls] + [calls]


def key_of(method: Method, c: float, seed: int) -> str:
    """Of a run; methods of two studies that share their settings share it."""
    options = ", ".join(f"{k}={value}" for k, value in method.settings(c).items())
    return f"{method.solver.__name__}({options}), c={c:.15g}, seed={seed}"


def follow(
    task: Task, method: Method, c: float, seed: int, at: list[int], show: Show
) -> Cell:
    """F, F1 and what they cost, from the start to the last of ``at`` calls a sentence.

    The run is stopped now and then to look at it, which takes no time of its clock.
    """
    rows: list[dict[str, float]] = []
    state = None
    for calls in at:
        solver = method.make(c, c / len(task.train), seed, calls)
        try:
            solution = whole(solver.solve(task.train, resume=state))
        except FloatingPointError:
            # what diverges is part of the picture
            rows.append({"calls": calls, "seconds": np.nan, "F": np.inf, "F1": 0.0})
            break
        state = solution.state
        F = solution.primal
        if method.smooths:
            F = task.train.primal(solution.w, c / len(task.train))
        rows.append(
            {
                "calls": calls,
                # as it was before F was evaluated
                "seconds": float(state["seconds"]),
                "F": F,
                "F1": task.f1(solution.w),
            }
        )
        show(f"{method.name}, c {c:g}, seed {seed}: F {rows[-1]['F']:.4f}")
    return {"rows": rows}


def key_of_reference(c: float) -> str:
    return f"lower bound, c={c:.15g}"


def reference(task: Task, c: float, passes: int, show: Show) -> Cell:
    """Two values with the least F between them, by a long run."""

    def watch(record: Certificate) -> None:
        show(f"lower bound, c {c:g}: gap {record.gap:.2e}")

    solver = BCFW(lam=c / len(task.train), tol=1e-5, max_passes=passes, callback=watch)
    history = whole(solver.solve(task.train)).history
    return {
        "F": min(record.primal for record in history),
        "bound": max(record.dual for record in history),
    }


def warm_up(task: Task, methods: list[Method]) -> None:
    """Compile, so that no run that is timed has to."""
    few = task.train.subset(np.arange(min(3, len(task.train))))
    seen = []
    for method in methods:
        if method.solver not in seen:
            seen.append(method.solver)
            whole(method.make(1.0, 0.1, 0, 2).solve(few))
