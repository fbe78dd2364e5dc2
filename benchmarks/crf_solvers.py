"""CPU seconds until a CRF is certified, by L-BFGS and by dual coordinate ascent.

    python benchmarks/crf_solvers.py --conll2003 FILE --conll2000 FILE
    python benchmarks/crf_solvers.py --quick       # sentences that are drawn

Both solve the same problem on one thread, in turns. L-BFGS has a certificate at each
pass, so one run serves all tolerances; SDCA runs once for each. Prints a table and
writes ``results/crf_solvers.csv``.
"""

import argparse
import csv
import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from measuring import machine
from smoothsp.data import read_tagged
from smoothsp.linear import Certificate
from smoothsp.linear.features import Templates
from smoothsp.linear.problems import ChainProblem
from smoothsp.linear.solvers import LBFGS, SDCA, Tolerance
from training.recipe_data import toy_corpus

HERE = Path(__file__).parent
TEMPLATES = ("word[-1..1]", "shape(word)", "suffix(word, 1..3)")
GOALS = (1e-2, 1e-3, 1e-4)
NAMES = ("L-BFGS", "SDCA")
# sentences and C
CASES = {
    "CoNLL-2003": ((2000, 1.0), (2000, 10.0), (14_000, 1.0), (14_000, 10.0)),
    "CoNLL-2000": ((2000, 1.0), (8936, 1.0)),
}
Seconds = dict[tuple[str, float], float]


def main() -> None:
    options = parse()
    if os.environ.get("OMP_NUM_THREADS") != "1":
        # libraries read it when they are imported
        os.execve(sys.executable, [sys.executable, *sys.argv], machine.pinned(1))
    torch.set_num_threads(1)
    rows = []
    for name, C, problem in problems(options):
        found: list[Seconds] = []
        for _ in range(options.rounds):
            found.append(race(problem, C, options.most))
        for goal in GOALS:
            cells = {
                method: statistics.median(one[method, goal] for one in found)
                for method in NAMES
            }
            row = {
                "set": name,
                "sentences": len(problem),
                "tags": problem.num_labels,
                "C": C,
                "gap": goal,
                **{method: f"{seconds:.3g}" for method, seconds in cells.items()},
                "ratio": f"{cells['L-BFGS'] / cells['SDCA']:.1f}",
                "rounds": options.rounds,
            }
            rows.append(row)
            print("| " + " | ".join(map(str, row.values())) + " |", flush=True)
    where = machine.where_measured(0, "cpu")
    options.output.mkdir(parents=True, exist_ok=True)
    with (options.output / "crf_solvers.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, [*rows[0], *where], lineterminator="\n")
        table.writeheader()
        table.writerows(row | where for row in rows)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--conll2003", type=Path, help="file of tagged sentences")
    parser.add_argument("--conll2000", type=Path, help="file of tagged sentences")
    parser.add_argument("--quick", action="store_true", help="sentences that are drawn")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most", type=float, default=300, help="seconds of a run")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    if not (options.quick or options.conll2003 or options.conll2000):
        parser.error("--conll2003: expected a file, or --conll2000, or --quick")
    return options


def problems(options: argparse.Namespace) -> Iterator[tuple[str, float, ChainProblem]]:
    """Name, C and problem of each case."""
    if options.quick:
        corpus = toy_corpus.make(train=40, dev=1, test=1, scheme="BIO")
        rows = [[(word,) for word in s.words] for s in corpus.train]
        yield "drawn", 1.0, problem_of(rows, [s.tags for s in corpus.train])
        return
    files = {"CoNLL-2003": options.conll2003, "CoNLL-2000": options.conll2000}
    for name, cases in CASES.items():
        if files[name] is None:
            continue
        found = [s for s in read_tagged(files[name]) if s.words != ["-DOCSTART-"]]
        for size, C in cases:
            some = found[:size]
            words = [[(word,) for word in s.words] for s in some]
            yield name, C, problem_of(words, [s.tags for s in some])


def problem_of(words: list[list[tuple[str]]], tags: list[list[str]]) -> ChainProblem:
    """The CRF of words and tags."""
    place = {tag: n for n, tag in enumerate(sorted({t for y in tags for t in y}))}
    X = Templates(TEMPLATES, ("word",)).fit_transform(words)
    labels = [place[t] for y in tags for t in y]
    return ChainProblem(X, labels, lengths=[len(y) for y in tags])


def race(problem: ChainProblem, C: float, most: float) -> Seconds:
    """CPU seconds to each gap, relative to the dual; infinite if it was not reached."""
    found: Seconds = {
        (method, goal): float("inf") for method in NAMES for goal in GOALS
    }
    lam = 1 / (C * len(problem))
    shared = {"lam": lam, "max_passes": 10_000, "max_seconds": most}
    for kind in (LBFGS, SDCA):
        # compiles what it calls
        kind(lam=lam, max_passes=3).solve(problem)
    started = time.process_time()

    def look(at: Certificate) -> None:
        for goal in GOALS:
            if at.dual > 0 and at.gap <= goal * at.dual:
                spent = time.process_time() - started
                found["L-BFGS", goal] = min(found["L-BFGS", goal], spent)

    LBFGS(tol=Tolerance(GOALS[-1]), callback=look, **shared).solve(problem)
    for goal in GOALS:
        started = time.process_time()
        if SDCA(tol=Tolerance(goal), **shared).solve(problem).converged:
            found["SDCA", goal] = time.process_time() - started
    return found


if __name__ == "__main__":
    main()
