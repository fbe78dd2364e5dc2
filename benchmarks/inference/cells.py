"""One question at one problem: first calls, the gate, then the clock."""

from dataclasses import asdict, replace

import torch

from inference import gate
from inference.problems import DTYPES, Case, Problem
from inference.questions import DECODE, TOP, Method, Refusal
from measuring import timing
from methods import ours, peers
from report.results import Row

ONE_THREAD = "smoothsp, one thread"
FULL = "smoothsp, full batch"
ONE_BEST = "smoothsp, 1-best"
LONG = 5.0  # seconds: then a first call that compiles nothing tells enough

Candidates = dict[str, Method | Refusal]


def methods_of(
    builders: dict[str, peers.Builder], problem: Problem
) -> dict[str, Candidates]:
    """For each question, the methods that answer it; ours first."""
    questions: dict[str, Candidates] = {}
    for name, build in builders.items():
        for question, method in build(problem).items():
            questions.setdefault(question, {})[name] = method
    return questions


def with_references(
    questions: dict[str, Candidates], case: Case, problem: Problem, seed: int
) -> dict[str, Candidates]:
    """Add ours with one thread, ours without padding, and our decode beside top-k."""
    dtype = problem.emissions.dtype
    padded = problem.lengths is not None
    full = ours.methods(case.full().draw(dtype, seed)) if padded else {}
    extended = {}
    for question, candidates in questions.items():
        mine = candidates[ours.NAME]
        extra: Candidates = {}
        if torch.get_num_threads() > 1:
            extra[ONE_THREAD] = replace(mine, threads=1)
        if full:
            extra[FULL] = full[question]
        if question in TOP.values():
            extra[ONE_BEST] = questions[DECODE][ours.NAME]
        extended[question] = candidates | extra
    return extended


def time_cell(
    candidates: Candidates,
    judge: gate.Gate,
    dtype: torch.dtype,
    effort: timing.Effort,
    stopwatch: timing.Stopwatch = timing.on_the_wall,
) -> tuple[dict[str, timing.Summary], dict[str, str], timing.Measured]:
    """Summaries of the methods that were timed, and why the others were not."""
    refused: dict[str, str] = {}
    seconds: dict[str, float] = {}
    timed: dict[str, Method] = {}
    for name, method in candidates.items():
        if isinstance(method, Refusal):
            refused[name] = method.reason
            continue
        once = judged_call(name, method, judge, dtype, stopwatch)
        if once > effort.limit_seconds:
            refused[name] = f"over {effort.limit_seconds:.0f} s"
        else:
            timed[name], seconds[name] = method, once
    measured = timing.measure(timed, seconds, effort, stopwatch)
    return timing.summarise(measured, ours.NAME), refused, measured


def judged_call(
    name: str,
    method: Method,
    judge: gate.Gate,
    dtype: torch.dtype,
    stopwatch: timing.Stopwatch,
) -> float:
    """About how many seconds a call takes that gives the right answer."""
    answers: list[object] = []
    with timing.threads(method.threads):
        first = stopwatch(lambda: answers.append(method.call()), 1)
    # read before it is called again: some give the same memory each time
    judge.check(name, method, method.read(answers.pop()), dtype)
    if first > LONG and not method.compiles:
        return first
    with timing.threads(method.threads):
        return stopwatch(method.call, 1)


def rows_of(
    section: str,
    question: str,
    case: Case,
    problem: Problem,
    candidates: Candidates,
    judge: gate.Gate,
    effort: timing.Effort,
    stopwatch: timing.Stopwatch = timing.on_the_wall,
) -> list[Row]:
    dtype = problem.emissions.dtype
    summaries, refused, measured = time_cell(
        candidates, judge, dtype, effort, stopwatch
    )
    dtype_name = next(name for name, known in DTYPES.items() if known == dtype)
    full_positions = case.full().batch * case.full().time
    rows = []
    for name in candidates:
        threads = 1 if name == ONE_THREAD else torch.get_num_threads()
        row = Row(section, question, str(case), dtype_name, threads, name)
        positions = full_positions if name == FULL else problem.positions
        if name in refused:
            rows.append(replace(row, note=refused[name], positions=positions))
            continue
        rows.append(
            replace(
                row,
                **asdict(summaries[name]),
                rounds=len(measured.disturbed),
                disturbed=sum(measured.disturbed),
                positions=positions,
            )
        )
    return rows
