"""What is measured, in parts: each in a process, on the threads it was started with."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import torch

from inference import cells, gate
from inference.problems import (
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
from inference.questions import DECODE, NLL, QUESTIONS, TOP
from measuring import timing
from methods import ours, peers
from report.results import FIGURE, ORACLES, SCALING, Row

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


@dataclass(frozen=True)
class Part:
    """What one process measures: its peers may leave much memory behind."""

    section: str
    case: Case = SMALL
    dtype: str = "float32"


def parts(plan: Plan, threads: int) -> list[Part]:
    """All that is measured on so many threads."""
    found = [Part(ORACLES, *pair) for pair in pairs(plan.cases, plan.dtypes)]
    if threads > 1:
        return found + [Part(SCALING, *pair) for pair in pairs(plan.large, plan.dtypes)]
    return [*found, *(Part(FIGURE, case) for case in plan.figure)]


def sweep(plan: Plan, part: Part) -> Iterator[Row]:
    """Rows of a part, as they are measured; on several threads not every k."""
    if torch.get_num_threads() > 1:
        kept = (q for q in plan.questions if q not in (TOP[2], TOP[10]))
        plan = replace(plan, questions=tuple(kept))
    measure = {ORACLES: oracles, SCALING: scaling, FIGURE: figure}[part.section]
    return measure(plan, part.case, part.case.draw(DTYPES[part.dtype], plan.seed))


def oracles(plan: Plan, case: Case, problem: Problem) -> Iterator[Row]:
    """Every method at every question."""
    questions = cells.methods_of(peers.builders(), problem)
    questions = cells.with_references(questions, case, problem, plan.seed)
    return ask(ORACLES, plan, plan.questions, case, problem, questions)


def scaling(plan: Plan, case: Case, problem: Problem) -> Iterator[Row]:
    """Ours with one thread and with all, where there is work for several."""
    questions = cells.methods_of({ours.NAME: ours.methods}, problem)
    both = {
        question: {
            ours.NAME: candidates[ours.NAME],
            cells.ONE_THREAD: replace(candidates[ours.NAME], threads=1),
        }
        for question, candidates in questions.items()
    }
    return ask(SCALING, plan, plan.questions, case, problem, both)


def figure(plan: Plan, case: Case, problem: Problem) -> Iterator[Row]:
    """NLL and decode, against S and against T."""
    plan = replace(plan, effort=replace(plan.effort, rounds=7))
    questions = cells.methods_of(peers.builders(), problem)
    return ask(FIGURE, plan, (NLL, DECODE), case, problem, questions)


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
