"""Single runs of ``conll_linear.py``, each kept in a file once it is whole."""

import csv
import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from linear_tagging.data import Task
from linear_tagging.methods import Method
from runs import files
from runs.interrupts import whole
from smoothsp.linear import Certificate
from smoothsp.linear.solvers import BCFW

Row = dict[str, float]
Show = Callable[[str], Any]
# Oracle calls a sentence at which a run is looked at.
LOOKS = (2, 4, 6, 8, 10, 12, 16, 20, 24, 30, 36, 44, 52, 60, 70, 80, 90, 100)


class Store:
    """A folder with a file for each run: what is there is not run again.

    Names end in a digest of the settings and of the data.
    """

    def __init__(self, folder: Path, task: Task) -> None:
        self.folder, self.task = folder, task
        self.checksum = task.checksum

    def get(self, name: str, settings: Any, make: Callable[[], list[Row]]) -> list[Row]:
        """The rows of a run, made now if they are not there."""
        path = self.path(name, settings)
        if not path.is_file():
            rows = make()
            files.write_table(path, rows)
        try:
            with path.open(newline="") as file:
                rows = [
                    {key: float(value) for key, value in row.items()}
                    for row in csv.DictReader(file, strict=True)
                ]
            if not rows:
                raise ValueError("no rows")
            return rows
        except (TypeError, ValueError, csv.Error) as error:
            raise ValueError(
                f"{path}: expected the numbers of a run, got another file: {error}."
                " Remove it, and the run is made again"
            ) from error

    def path(self, name: str, settings: Any) -> Path:
        text = repr((settings, self.checksum)).encode()
        plain = re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")
        return self.folder / f"{plain}-{hashlib.sha256(text).hexdigest()[:10]}.csv"


def looks(calls: int) -> list[int]:
    """Even numbers up to a budget."""
    return [n for n in LOOKS if n < calls] + [calls]


def curve(
    store: Store, method: Method, c: float, seed: int, calls: int, show: Show
) -> list[Row]:
    """F, F1 and what they cost, from the start to ``calls`` a sentence."""
    at = looks(calls)
    solver = method.solver.__name__
    return store.get(
        f"{solver} c{c:g} seed{seed}",
        (solver, method.settings(c), c, seed, at),
        lambda: follow(store.task, method, c, seed, at, show),
    )


def follow(
    task: Task, method: Method, c: float, seed: int, at: list[int], show: Show
) -> list[Row]:
    """One run, stopped now and then to look at it, which takes no time of its clock."""
    rows: list[Row] = []
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
    return rows


def reference(store: Store, c: float, passes: int, show: Show) -> Row:
    """Two values with the least F between them, by a long run."""

    def keep(record: Certificate) -> None:
        show(f"lower bound, c {c:g}: gap {record.gap:.2e}")

    def run() -> list[Row]:
        lam = c / len(store.task.train)
        solver = BCFW(lam=lam, tol=1e-5, max_passes=passes, callback=keep)
        history = whole(solver.solve(store.task.train)).history
        return [
            {
                "F": min(record.primal for record in history),
                "bound": max(record.dual for record in history),
            }
        ]

    return store.get(f"reference c{c:g}", (c, passes), run)[0]


def warm_up(task: Task, methods: list[Method]) -> None:
    """Compile, so that no run that is timed has to."""
    few = task.train.subset(np.arange(min(3, len(task.train))))
    seen = []
    for method in methods:
        if method.solver not in seen:
            seen.append(method.solver)
            whole(method.make(1.0, 0.1, 0, 2).solve(few))
