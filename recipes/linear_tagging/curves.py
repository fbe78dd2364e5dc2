"""Single runs of ``conll_linear.py``, each kept once it is whole."""

from collections.abc import Callable
from typing import Any

import numpy as np

from linear_tagging.data import Task
from linear_tagging.methods import Method
from runs.interrupts import raise_if_interrupted
from runs.result_store import Result
from smoothsp.linear import Certificate, Comparison
from smoothsp.linear import compare as compare_solvers
from smoothsp.linear.solvers import BCFW

ShowProgress = Callable[[str], Any]
# Oracle calls a sentence at which a run is looked at.
EVALUATION_CALLS = (2, 4, 6, 8, 10, 12, 16, 20, 24, 30, 36, 44, 52, 60, 70, 80, 90, 100)


def evaluation_calls(calls: int) -> list[int]:
    """Even numbers up to a budget."""
    return [n for n in EVALUATION_CALLS if n < calls] + [calls]


def run_key(method: Method, c: float, seed: int) -> str:
    """Of a run; methods of two studies that share their settings share it."""
    options = ", ".join(f"{k}={value}" for k, value in method.settings(c).items())
    return f"{method.solver.__name__}({options}), c={c:.15g}, seed={seed}"


def run_with_evaluations(
    task: Task,
    method: Method,
    c: float,
    seed: int,
    calls: list[int],
    show: ShowProgress,
) -> Result:
    """F, F1 and what they cost, from the start to the last of ``at`` calls a sentence.

    A run that diverges ends with an infinite F.
    """
    lam = c / len(task.train)
    comparison = compare_solvers(
        {method.name: lambda seed: method.make(c, lam, seed)},
        task.train,
        looks=calls,
        seeds=[seed],
        metrics={"F1": task.f1},
        objective=lambda w: task.train.primal(w, lam),
    )
    rows = [
        {"calls": row["calls"], "seconds": row["seconds"], "F": row["primal"]}
        # what diverges is part of the picture
        | {"F1": row["F1"] if np.isfinite(row["primal"]) else 0.0}
        for row in comparison.rows
    ]
    show(f"{method.name}, c {c:g}, seed {seed}: F {rows[-1]['F']:.4f}")
    return {"rows": rows}


def as_comparison(rows: list[dict[str, Any]]) -> Comparison:
    """Rows of one c as those of a comparison."""
    records = [
        row
        | {"solver": row["method"], "look": row["calls"], "primal": row["F"]}
        # F has one bound for all
        | {"dual": np.nan, "gap": np.nan}
        for row in rows
    ]
    return Comparison(records, ("F1",))


def bound_key(c: float) -> str:
    return f"lower bound, c={c:.15g}"


def lower_bound(task: Task, c: float, passes: int, show: ShowProgress) -> Result:
    """Two values with the least F between them, by a long run."""

    def watch(record: Certificate) -> None:
        show(f"lower bound, c {c:g}: gap {record.gap:.2e}")

    solver = BCFW(lam=c / len(task.train), tol=1e-5, max_passes=passes, callback=watch)
    history = raise_if_interrupted(solver.solve(task.train)).history
    return {
        "F": min(record.primal for record in history),
        "bound": max(record.dual for record in history),
    }
