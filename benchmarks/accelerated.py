"""Four ways to train by accelerated gradients, two memories, on four problems.

    python benchmarks/accelerated.py --ocr FILE --figures DIR    # letter.data
    python benchmarks/accelerated.py --figures DIR               # words are drawn

The paper promises experiments and has none. Two classes with a free bias, a max-margin
Markov network of words, F1 of a set of which few samples are positive, and boosting on
the simplex: for each the certified gap over evaluations of the risk, by each scheme
that takes it, with infinite and with one memory, and for two classes with the
Lipschitz constant of the spectral norm too. Prints evaluations to a hundredth and to a
thousandth of the objective, writes ``results/accelerated.csv`` and draws a figure.
"""

import argparse
import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from smoothsp.linear.problems import (
    BinaryProblem,
    F1Problem,
    LPBoostProblem,
)
from smoothsp.linear.solvers import AGM
from training.recipe_data import ocr_letters, ocr_toy

HERE = Path(__file__).parent
SCHEMES = ("primal-smoothing", "dual-smoothing", "dual", "decreasing")
GOALS = (1e-2, 1e-3)


@dataclass(frozen=True)
class Task:
    """A problem, and what its solvers have in common."""

    name: str
    problem: Any
    lam: float
    settings: dict[str, Any]


@dataclass(frozen=True)
class Course:
    """Evaluations of the risk, and the least gap so far over the objective."""

    scheme: str
    memory: str
    adaptive: bool
    evaluations: list[float]
    gaps: list[float]


def main() -> None:
    options = parse()
    rows, drawn = [], []
    for task in tasks(options):
        courses = list(race(task, options.passes))
        drawn.append((task, courses))
        for found in courses:
            constant = "adaptive" if found.adaptive else "fixed"
            about = [task.name, found.scheme, found.memory, constant]
            rows.append([*about, *reached(found), f"{found.gaps[-1]:.2e}"])
            print("  ".join(rows[-1]), flush=True)
    options.output.mkdir(parents=True, exist_ok=True)
    with (options.output / "accelerated.csv").open("w", newline="") as file:
        head = ["problem", "scheme", "memory", "constant"]
        head += [f"evaluations to {goal:g}" for goal in GOALS] + ["gap at the end"]
        csv.writer(file).writerows([head, *rows])
    if options.figures is not None:
        draw(drawn, options.figures / "accelerated_schemes.png")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--ocr", type=Path, help="letter.data, or its folder")
    parser.add_argument("--quick", action="store_true", help="small problems")
    parser.add_argument("--passes", type=int, help="iterations of each, at most")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    parser.add_argument("--figures", type=Path, help="where to draw")
    options = parser.parse_args()
    options.passes = options.passes or (40 if options.quick else 400)
    return options


def tasks(options: argparse.Namespace) -> Iterator[Task]:
    rng = np.random.default_rng(0)
    n = 60 if options.quick else 1000
    X = rng.normal(size=(n, 20)) * 10 ** rng.uniform(-1, 0.5, 20)
    direction = rng.normal(size=20)
    scores = X @ direction + 0.5 * rng.normal(size=n) * np.std(X @ direction)
    y = np.where(scores > 0.3 * scores.std(), 1, -1)
    yield Task("two classes, free bias", BinaryProblem(X, y, bias=True), 1e-2, {})
    words = (
        ocr_toy.draw(200, seed=0)
        if options.ocr is None
        else ocr_letters.load(options.ocr)
    )
    some = words.problem.subset(np.arange(12 if options.quick else 200))
    yield Task(f"M3N, {len(some)} words", some, 1e-2, {})
    few = np.where(scores > 1.6 * scores.std(), 1, -1)
    yield Task("F1, few positives", F1Problem(X, few), 1e-2, {})
    votes = np.sign(rng.normal(size=(n // 4, 40)) + 0.3)
    simplex = {"domain": "simplex", "cap": 0.1}
    yield Task("boosting, entropy", LPBoostProblem(votes), 0.1, simplex)


def race(task: Task, passes: int) -> Iterator[Course]:
    binary = isinstance(task.problem, BinaryProblem)
    for scheme in SCHEMES:
        for memory in ("infinite", "one"):
            for adaptive in (True, False):
                # a constant that is known before, and excessive gaps, for two classes
                if not binary and (not adaptive or scheme == "decreasing"):
                    continue
                if scheme == "decreasing" and memory == "one":
                    continue
                yield course(task, scheme, memory, adaptive, passes)


def course(task: Task, scheme: str, memory: str, adaptive: bool, passes: int) -> Course:
    problem, w = task.problem, np.zeros(task.problem.num_weights)
    if "domain" in task.settings:
        w += 1 / len(w)
    tol = 0.5 * GOALS[-1] * abs(float(problem.risk(w)[0]))
    solver = AGM(
        lam=task.lam,
        scheme=scheme,
        memory=memory,
        adaptive=adaptive,
        tol=tol,
        max_passes=passes,
        certify_every=1,
        **task.settings,
    )
    history = solver.solve(problem).history
    # one evaluation of each is the certificate's
    evaluations = [
        max(at.oracle_calls / len(problem) - number, at.passes)
        for number, at in enumerate(history, 1)
    ]
    least = np.minimum.accumulate([at.gap for at in history])
    scale = max(abs(history[-1].primal), 1e-300)
    return Course(scheme, memory, adaptive, evaluations, (least / scale).tolist())


def reached(found: Course) -> list[str]:
    """Evaluations to each goal."""
    pairs = list(zip(found.evaluations, found.gaps, strict=True))
    return [
        next((f"{calls:.0f}" for calls, gap in pairs if gap <= goal), "-")
        for goal in GOALS
    ]


def draw(drawn: list[tuple[Task, list[Course]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 2, figsize=(11, 8), layout="constrained")
    for axis, (task, courses) in zip(axes.flat, drawn, strict=True):
        for found in courses:
            axis.loglog(
                found.evaluations,
                np.maximum(found.gaps, 1e-8),
                color=f"C{SCHEMES.index(found.scheme)}",
                linestyle="-" if found.memory == "infinite" else "--",
                linewidth=_width(found),
                alpha=0.4 if found.scheme == "dual-smoothing" else 1.0,
            )
        axis.set_title(task.name)
        axis.set_xlabel("evaluations of the risk")
        axis.set_ylabel("least gap so far over the objective")
        axis.grid(alpha=0.3)
    lines = [
        pyplot.Line2D(
            [],
            [],
            color=f"C{number}",
            label=scheme,
            linewidth=4 if scheme == "dual-smoothing" else 1.6,
            alpha=0.4 if scheme == "dual-smoothing" else 1.0,
        )
        for number, scheme in enumerate(SCHEMES)
    ]
    black = {"color": "k"}
    lines += [
        pyplot.Line2D([], [], linestyle="--", label="one memory", **black),
        pyplot.Line2D([], [], linewidth=0.7, label="constant not adaptive", **black),
    ]
    figure.legend(handles=lines, ncols=6, fontsize=8, loc="outside lower center")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    print(f"{path} is drawn")


def _width(found: Course) -> float:
    """Of a line; that of smoothing in the dual lies under that of the dual."""
    if found.scheme == "dual-smoothing":
        return 4.0 if found.adaptive else 2.5
    return 1.6 if found.adaptive else 0.7


if __name__ == "__main__":
    main()
