"""Single runs of ``ocr_words.py``: a variant of BCFW, a path, a grid."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ocr.letters import Words
from runs.interrupts import whole
from smoothsp.linear import Certificate
from smoothsp.linear.problems import ChainProblem
from smoothsp.linear.solvers import (
    BCFW,
    GRID,
    PathPoint,
    RegularisationPath,
    grid_search,
)

Show = Callable[[str], Any]
Cell = dict[str, Any]


@dataclass(frozen=True)
class Variant:
    """One of the eight combinations."""

    sampling: str
    steps: str
    cache: bool

    def __str__(self) -> str:
        name = "BCPFW" if self.steps == "pairwise" else "BCFW"
        name += " + gap sampling" if self.sampling == "gap" else ""
        return name + (" + cache" if self.cache else "")

    @property
    def options(self) -> dict[str, Any]:
        return {"sampling": self.sampling, "steps": self.steps, "cache": self.cache}


VARIANTS = tuple(
    Variant(sampling, steps, cache)
    for sampling in ("uniform", "gap")
    for steps in ("fw", "pairwise")
    for cache in (False, True)
)
# what follows lambda, with the solver for cheap oracles and that for dear ones
SOLVERS = (Variant("gap", "fw", False), Variant("gap", "pairwise", True))
COURSES = (
    "path",
    "heuristic path",
    "grid, same weights",
    "grid, same duals",
    "grid, from nothing",
)
# the largest kappa that was accurate enough in the paper
HEURISTIC_KAPPA = 0.7
STARTS = {"grid, same weights": "primal", "grid, same duals": "dual"}


def variant_key(
    words: Words, setting: str, lam: float, variant: Variant, seed: int
) -> str:
    return f"{setting} {words.checksum} lambda={lam:.15g} {variant} seed={seed}"


def bounds_key(words: Words, setting: str, seed: int) -> str:
    return f"{setting} {words.checksum} least objectives seed={seed}"


def course_key(
    words: Words, setting: str, course: str, solver: Variant, seed: int
) -> str:
    return f"{setting} {words.checksum} {course}, {solver} seed={seed}"


def warm_up(problem: ChainProblem) -> None:
    """Compile, so that no run that is timed has to."""
    few = problem.subset(np.arange(min(3, len(problem))))
    for variant in VARIANTS:
        whole(BCFW(lam=1.0, max_passes=2, tol=0, **variant.options).solve(few))
    for certified in (False, True):
        whole(RegularisationPath(max_points=2, certified=certified).solve(few))


def train(
    variant: Variant,
    train: ChainProblem,
    test: ChainProblem,
    lam: float,
    seed: int,
    limits: dict[str, Any],
    show: Show,
) -> Cell:
    """From nothing to the gap, or to the end of a budget."""

    def callback(record: Certificate) -> None:
        show(f"gap {record.gap:.2e}")

    solver = BCFW(lam=lam, seed=seed, callback=callback, **limits, **variant.options)
    solution = whole(solver.solve(train))
    n = len(train)
    return {
        "history": [
            [r.passes, r.oracle_calls / n, r.seconds, r.gap] for r in solution.history
        ],
        "passes": solution.passes,
        "oracle_passes": solution.oracle_calls / n,
        "seconds": solution.seconds,
        "gap": solution.gap,
        "primal": solution.primal,
        "converged": solution.converged,
        **errors(test, solution.w),
    }


def errors(test: ChainProblem, w: np.ndarray) -> Cell:
    """Shares of wrong letters and of words with one, in percent."""
    wrong = test.decode(w) != test.labels
    words = np.add.reduceat(wrong, test.offsets[:-1]) > 0
    return {
        "letter_error": 100 * float(wrong.mean()),
        "word_error": 100 * float(words.mean()),
    }


def follow(
    course: str,
    solver: Variant,
    train: ChainProblem,
    test: ChainProblem,
    bounds: Sequence[float],
    eps: float,
    kappa: float,
    seed: int,
    max_seconds: float,
    show: Show,
) -> Cell:
    """Weights for lambda from large to small, and how good they are on the grid.

    ``bounds`` are from below the least objectives at the values of the grid.
    """

    def callback(point: PathPoint) -> None:
        show(f"lambda {point.lam:.3g}, gap {point.gap:.2e}")

    options = {"seed": seed, "callback": callback, "max_seconds": max_seconds}
    options |= solver.options
    if course.startswith("grid"):
        start = STARTS.get(course, "none")
        done = grid_search(train, tol=eps, warm_start=start, **options)
        weights = [point.w for point in done.points]
    else:
        certified = course == "path"
        done = RegularisationPath(
            eps=eps,
            kappa=kappa if certified else HEURISTIC_KAPPA,
            certified=certified,
            smallest=GRID[-1],
            stop_when_flat=False,
            **options,
        ).solve(train)
        weights = [done.evaluate(lam) for lam in GRID if lam >= done.ends_at]
    whole(done)
    n = len(train)
    primals = [train.primal(w, lam) for w, lam in zip(weights, GRID, strict=False)]
    scores = [errors(test, w)["letter_error"] for w in weights]
    above = [primal - bound for primal, bound in zip(primals, bounds, strict=False)]
    return {
        "points": [[p.lam, p.oracle_calls / n, p.seconds, p.gap] for p in done.points],
        "errors": scores,
        "oracle_passes": done.oracle_calls / n,
        "seconds": done.seconds,
        "largest_excess": max(above, default=None),
        "complete": len(weights) == len(GRID),
    }


def lower_bounds(
    train: ChainProblem, tol: float, seed: int, max_seconds: float, show: Show
) -> Cell:
    """Dual values within ``tol`` of the least objectives at the values of the grid."""
    done = grid_search(
        train,
        tol=tol,
        seed=seed,
        max_seconds=max_seconds,
        callback=lambda point: show(f"lambda {point.lam:.3g}, gap {point.gap:.2e}"),
        **SOLVERS[1].options,
    )
    whole(done)
    return {"bounds": [point.primal - point.gap for point in done.points]}
