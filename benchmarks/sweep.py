"""All that one process measures, on the threads that it was started with."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import torch

import cells
import fixed_cost
import gate
import peers
import timing
from methods import ours
from problems import (
    AGAINST_STATES,
    AGAINST_TIME,
    CASES,
    DTYPES,
    LARGE,
    RAGGED,
    SMALL,
    Case,
    Problem,
)
from questions import DECODE, NLL, QUESTIONS, TOP
from results import FIGURE, ORACLES, SCALING, Row

FULL_EFFORT = timing.Effort()


@dataclass(frozen=True)
class Plan:
    """What is measured, and how carefully."""

    cases: tuple[Case, ...] = CASES
    large: tuple[Case, ...] = LARGE
    figure: tuple[Case, ...] = tuple(dict.fromkeys(AGAINST_STATES + AGAINST_TIME))
    dtypes: tuple[str, ...] = tuple(DTYPES)
    questions: tuple[str, ...] = QUESTIONS
    effort: timing.Effort = FULL_EFFORT
    seed: int = 0


QUICK = Plan(
    cases=(SMALL, RAGGED[0]),
    large=LARGE[2:],
    figure=(*AGAINST_STATES[1:3], *AGAINST_TIME[:2]),
    dtypes=("float32",),
    questions=tuple(q for q in QUESTIONS if q not in (TOP[2], TOP[10])),
    effort=timing.Effort(5, 0.005, slow_seconds=0.5, limit_seconds=1.0),
)


def sweep(plan: Plan) -> Iterator[Row]:
    """Rows of this process, as they are measured."""
    alone = torch.get_num_threads() == 1
    yield from oracles(plan)
    if alone:
        yield from fixed_cost.rows(plan.effort)
        yield from figure(plan)
    else:
        yield from scaling(plan)


def oracles(plan: Plan) -> Iterator[Row]:
    """Every method at every shape, dtype and question."""
    builders = peers.builders()
    for case, dtype in pairs(plan.cases, plan.dtypes):
        problem = case.draw(DTYPES[dtype], plan.seed)
        questions = cells.methods_of(builders, problem)
        questions = cells.with_references(questions, case, problem, plan.seed)
        yield from ask(ORACLES, plan, plan.questions, case, problem, questions)


def scaling(plan: Plan) -> Iterator[Row]:
    """Ours with one thread and with all, where there is work for several."""
    for case, dtype in pairs(plan.large, plan.dtypes):
        problem = case.draw(DTYPES[dtype], plan.seed)
        questions = cells.methods_of({ours.NAME: ours.methods}, problem)
        questions = {
            question: {
                ours.NAME: candidates[ours.NAME],
                cells.ONE_THREAD: replace(candidates[ours.NAME], threads=1),
            }
            for question, candidates in questions.items()
        }
        yield from ask(SCALING, plan, plan.questions, case, problem, questions)


def figure(plan: Plan) -> Iterator[Row]:
    """NLL and decode in float32, against S and against T."""
    builders = peers.builders()
    plan = replace(plan, effort=replace(plan.effort, rounds=7, slow_seconds=3.0))
    for case in plan.figure:
        problem = case.draw(torch.float32, plan.seed)
        questions = cells.methods_of(builders, problem)
        yield from ask(FIGURE, plan, (NLL, DECODE), case, problem, questions)


def ask(
    section: str,
    plan: Plan,
    wanted: Iterable[str],
    case: Case,
    problem: Problem,
    questions: dict[str, cells.Candidates],
    stopwatch: timing.Stopwatch = timing.on_the_wall,
) -> Iterator[Row]:
    judge = gate.Gate()
    for question in wanted:
        began = time.perf_counter()
        rows = cells.rows_of(
            section,
            question,
            case,
            problem,
            questions[question],
            judge,
            plan.effort,
            stopwatch,
        )
        took = time.perf_counter() - began
        print(f"{progress(rows)} [{took:.0f} s]", flush=True)
        yield from rows


def progress(rows: list[Row]) -> str:
    """One line: what was asked, ours, and how many times slower the others are."""
    first = rows[0]
    found = [
        f"{row.method} {row.ratio:.3g}x" if row.measured else f"{row.method} {row.note}"
        for row in rows[1:]
    ]
    return (
        f"{first.threads} thread(s), {first.case} {first.dtype} {first.question}: "
        f"{first.median * 1e6:.3g} us; {', '.join(found)}"
    )


def pairs(cases: tuple[Case, ...], dtypes: tuple[str, ...]):
    return ((case, dtype) for case in cases for dtype in dtypes)
