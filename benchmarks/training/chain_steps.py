"""Which steps of BCFW: CPU seconds to a gap, on six sets of chains, at several C.

``ChainSVM`` takes by default what comes out here.
"""

import itertools
import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any, Protocol

import numpy as np

from report import tables
from smoothsp.linear import ChainSVM
from smoothsp.linear.features import Templates
from smoothsp.linear.problems import ChainProblem
from smoothsp.linear.solvers import BCFW, Record
from training.races import Entry, Goal
from training.recipe_data import ocr_letters, ocr_toy
from training.tagged_texts import COLUMNS, OF_COLUMNS, TEMPLATES, Sentences, texts

# The gap over the objective.
GAPS = (1e-2, 1e-3, 1e-4)
# By the names that tables have for them, as options of BCFW.
METHODS: dict[str, dict[str, Any]] = {
    "pairwise, cached": {"steps": "pairwise", "cache": True},
    "pairwise": {"steps": "pairwise"},
    "pairwise, cached, permutation": {
        "steps": "pairwise",
        "cache": True,
        "sampling": "permutation",
    },
    "away, cached": {"steps": "away", "cache": True},
    "safeguarded, cached": {"steps": "safeguarded", "cache": True},
    "best, cached": {"steps": "best", "cache": True},
    "fw": {},
    "fw, averaged": {"averaging": True},
}
NEVER = (math.inf,)
# File in the folder of corpora, column of the tag, sentences.
FILES = {
    "CoNLL-2003": ("conll2003/eng.train", -1, 300),
    "CoNLL-2000": ("conll2000/train.txt", -1, 150),
    "WNUT-17": ("wnut17/wnut17train.conll", -1, 300),
    "UD English EWT": ("ud_english_ewt/en_ewt-ud-train.conllu", 3, 150),
}
OCR, DRAWN_WORDS, DRAWN = "OCR letters", "drawn words", "drawn sentences"


@dataclass(frozen=True)
class Plan:
    """How much to measure."""

    data: Path | None = None  # the folder of corpora; None draws
    C: tuple[float, ...] = (0.1, 1.0, 10.0)
    methods: tuple[str, ...] = tuple(METHODS)
    drawn: int = 300
    words: int = 150  # of the OCR letters
    cap: float = 12.0  # CPU seconds of the first method
    patience: float = 4.0  # times these, if it ended before, of the others


QUICK = Plan(C=(1.0,), methods=("pairwise, cached", "fw"), drawn=40, cap=1.0)


class Plans(Protocol):
    """What is raced, and how long it may take."""

    C: tuple[float, ...]
    methods: tuple[str, ...]
    cap: float
    patience: float


def measure(plan: Plan) -> Iterator[Entry]:
    """All methods, problem after problem."""
    return races(problems(plan), plan)


def races(problems: Iterable[tuple[str, Any]], plan: Plans) -> Iterator[Entry]:
    """All methods at each C, problem after problem."""
    for name, problem in problems:
        few = problem.subset(np.arange(5))
        for method in plan.methods:
            # compiled code is loaded before a clock runs
            BCFW(lam=0.1, max_passes=12, **METHODS[method]).solve(few)
        for C in plan.C:
            case = f"{name}, n = {len(problem):,}, C = {C:g}"
            yield from race(case, problem, C, plan)


def problems(plan: Plan) -> Iterator[tuple[str, ChainProblem]]:
    """Those whose data there are, and drawn ones."""
    drawn = texts(None, plan.drawn)
    yield DRAWN, tagged(drawn.train, drawn.templates())
    if plan.data is None:
        yield DRAWN_WORDS, first(ocr_toy.draw(plan.drawn, seed=0), plan.words)
        return
    letters = plan.data / "ocr_letters"
    if letters.exists():
        yield OCR, first(ocr_letters.load(letters), plan.words)
    else:
        print(f"{OCR} are left out: {letters} is missing")
    for name, (file, column, count) in FILES.items():
        if (plan.data / file).exists():
            sentences = read(plan.data / file, column, count)
            width = len(sentences.tokens[0][0])
            names = (*TEMPLATES, *OF_COLUMNS[: width - 1])
            yield name, tagged(sentences, Templates(names, COLUMNS[:width]))
        else:
            print(f"{name} is left out: {plan.data / file} is missing")


def first(words: ocr_letters.Words, count: int) -> ChainProblem:
    whole = words.problem
    return whole.subset(np.arange(min(count, len(whole))))


def read(path: Path, column: int, count: int) -> Sentences:
    """The first sentences of a file of columns; of CoNLL-U, the words alone."""
    found = Sentences([], [])
    tokens: list[tuple[str, ...]] = []
    tags: list[str] = []
    with path.open(encoding="utf-8") as lines:
        for line in itertools.chain(lines, [""]):
            fields = line.strip().split("\t" if path.suffix == ".conllu" else None)
            if len(fields) < 2:
                if tokens and tokens[0][0] != "-DOCSTART-":
                    found.tokens.append(tokens)
                    found.tags.append(tags)
                tokens, tags = [], []
                if len(found.tags) == count:
                    break
            elif path.suffix != ".conllu":
                tokens.append(tuple(fields[:-1]))
                tags.append(fields[column])
            elif fields[0].isdigit():
                tokens.append((fields[1],))
                tags.append(fields[column])
    return found


def tagged(sentences: Sentences, templates: Templates) -> ChainProblem:
    kinds = sorted({tag for tags in sentences.tags for tag in tags})
    return ChainProblem(
        templates.fit_transform(sentences.tokens),
        np.array([kinds.index(tag) for tags in sentences.tags for tag in tags]),
        lengths=[len(tags) for tags in sentences.tags],
        num_labels=len(kinds),
    )


@dataclass
class Run:
    """CPU seconds to each gap that was reached, the record there; those of the last."""

    reached: dict[float, tuple[float, Record]]
    last: Record
    seconds: float


def race(case: str, problem: Any, C: float, plan: Plans) -> Iterable[Entry]:
    """A fit of each method to each gap, larger ones first, until one takes the cap."""
    lam = 1 / (C * len(problem))
    runs: dict[str, Run] = {}
    cap = plan.cap
    objective = below(problem, lam, METHODS[plan.methods[0]], cap)
    for method in plan.methods:
        runs[method] = run(problem, lam, METHODS[method], objective, cap)
        if method == plan.methods[0]:
            cap = min(cap, plan.patience * runs[method].seconds)
    for gap in GAPS:
        for method, found in runs.items():
            seconds, record = found.reached.get(gap, (math.inf, found.last))
            least = min(x.reached.get(gap, NEVER)[0] for x in runs.values())
            yield Entry(
                section=f"gap {gap:g}",
                case=case,
                method=method,
                dtype="float64",
                threads=1,
                seconds=seconds,
                # of what did not get there: how long it tried
                median=min(seconds, found.seconds),
                rounds=1,
                objective=record.primal,
                epochs=record.passes,
                ratio=seconds / least if math.isfinite(seconds) else math.inf,
            )


def below(problem: Any, lam: float, options: dict[str, Any], cap: float) -> float:
    """A bound below the objective: near it, if there is time."""
    began = time.process_time()

    def near(record: Record) -> bool:
        late = time.process_time() - began > cap
        return late or record.gap <= min(GAPS) * record.primal

    solver = BCFW(lam=lam, tol=0.0, max_passes=10**9, callback=near, **options)
    return max(solver.solve(problem).dual, 0.0)


def run(
    problem: Any, lam: float, options: dict[str, Any], objective: float, cap: float
) -> Run:
    """Fits to ``tol``, which tells them when a certificate is worth its price."""
    reached: dict[float, tuple[float, Record]] = {}
    for gap in GAPS:
        began = time.process_time()

        def late(_: Record, began: float = began) -> bool:
            return time.process_time() - began > cap

        tol = gap * objective
        solver = BCFW(lam=lam, tol=tol, max_passes=10**9, callback=late, **options)
        last = solver.solve(problem).history[-1]
        taken = time.process_time() - began
        if last.gap > tol:
            break
        reached[gap] = taken, last
    return Run(reached, last, taken)


def table(entries: list[Entry]) -> str:
    """A line a method: where it reached a gap, and how much longer it took."""
    gaps = list(dict.fromkeys(entry.section for entry in entries))
    methods = list(dict.fromkeys(entry.method for entry in entries))
    found = [["steps of BCFW", *gaps]]
    for method in methods:
        cells = []
        for gap in gaps:
            mine = [e for e in entries if (e.section, e.method) == (gap, method)]
            reached = sum(math.isfinite(e.seconds) for e in mine)
            over = factors(entries, gap, method)
            mean = f", x{geometric_mean(over):.2f}" if over else ""
            cells.append(f"{reached} of {len(over)}{mean}")
        found.append([method, *cells])
    return tables.markdown(found)


def factors(entries: list[Entry], gap: str, method: str) -> list[float]:
    """CPU time over the fastest's, or at least so much; where one got there."""
    mine = [e for e in entries if e.section == gap]
    found = []
    for entry in mine:
        least = min(e.seconds for e in mine if e.case == entry.case)
        if entry.method == method and math.isfinite(least):
            found.append(entry.median / least)
    return found


def goals(entries: list[Entry], estimator: Any = ChainSVM) -> list[Goal]:
    """What an estimator takes by default is about the fastest."""
    options = estimator.DEFAULTS["bcfw"]
    names = [name for name, given in METHODS.items() if given == options]
    found = []
    for gap in (f"gap {gap:g}" for gap in GAPS):
        over = [(factors(entries, gap, m), m) for m in names]
        values = [(geometric_mean(x), m) for x, m in over if x]
        found.append(
            Goal(f"{gap}: the default over the fastest, CPU time", 1.5, values)
        )
    return found
