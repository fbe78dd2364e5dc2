"""Linear named-entity taggers: the solvers of ``smoothsp.linear`` side by side.

Minimises F(w) = lambda / 2 |w|^2 + mean structured hinge, lambda = c / n, of a chain
over hashed indicator features, and follows F, its distance to the best lower bound that
is proved (the dual of BCFW), and the exact-span F1 of held-out sentences, against
oracle calls, passes and seconds.

    python recipes/conll_linear.py                            # invented corpus
    python recipes/conll_linear.py --data DIR --c 0.1 1 10 --passes 20
    python recipes/conll_linear.py --data DIR --study mu      # or k, warm-start
    python recipes/conll_linear.py --data DIR --study tagger  # a good tagger, fast

Writes ``STUDY.csv`` and ``STUDY.png`` to ``--out``. ``README.md`` has the results.

Reproduces: figures 2 and 5 of Pillutla et al., "A Smoother Way to Train Structured
Prediction Models", on these solvers; settings as their authors published them.
"""

import functools
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro

import conll
import linear_report
import toy_corpus
from smoothsp.linear.features import Templates
from smoothsp.linear.problems import ChainProblem
from smoothsp.linear.solvers import BCFW, SGD, SVRG, CasimirSVRG
from smoothsp.metrics import span_f1

Study = Literal["solvers", "mu", "k", "warm-start", "tagger"]
COLUMNS = ("word", "pos", "chunk")
# a window of words, and what files of four columns tell besides
PAPER = ("word[-2..2]", "pos", "chunk", "bias")
RICH = (
    *(f"{source}[-2..2]" for source in ("word", "lower(word)", "shape(word)")),
    *(f"{source}[-2..2]" for source in ("pos", "chunk")),
    "prefix(word, 1..4)",
    "suffix(word, 1..4)",
)
# Passes, c and rate of the fast tagger, chosen on the last 15 % of eng.train.
TAGGER = {"passes": 30, "c": 3.0, "rate": 0.1}


@dataclass(frozen=True)
class Config:
    """Train linear taggers and compare how fast they get there."""

    data: Path | None = None
    """Folder of CoNLL files; default: an invented corpus."""
    study: Study = "solvers"
    """What is varied."""
    c: tuple[float, ...] = (0.1, 1.0)
    """lambda is c / n; the tagger has its own."""
    passes: int = 10
    """Of the variance-reduced solvers; the others get twice as many."""
    seeds: tuple[int, ...] = (0, 1)
    """A run for each; curves show mean and standard deviation."""
    hashing: int = 2**16 - 1
    """Columns that features are hashed to."""
    out: Path = Path("runs/conll_linear")
    """Folder of the numbers and the figure."""


@dataclass(frozen=True)
class Method:
    """A solver with settings, and how many oracle calls a pass of it is."""

    solver: Any
    options: dict[str, Any]
    calls: int = 2

    def make(self, c: float, lam: float, seed: int, passes: int) -> Any:
        options = {
            name: value(c) if callable(value) else value
            for name, value in self.options.items()
        }
        return self.solver(lam=lam, seed=seed, max_passes=passes, tol=0.0, **options)


CONST = {"schedule": "const", "smoothness": 32.0, "warm_start": "prev-iterate"}
ADAPT = {"schedule": "adapt", "rate": 0.02, "mu": 2.0, "warm_start": "extrapolation"}
METHODS = {
    "solvers": {
        "BCFW": Method(
            BCFW,
            {"sampling": "uniform", "averaging": True, "refresh_every": 1},
            calls=1,
        ),
        "SGD": Method(
            SGD,
            {"rate": lambda c: 0.02 if c >= 1 else 0.04, "period": 10.0},
            calls=1,
        ),
        "SVRG": Method(SVRG, {"rate": 0.02}),
        "Casimir-SVRG-const": Method(CasimirSVRG, CONST),
        "Casimir-SVRG-adapt": Method(CasimirSVRG, ADAPT),
    },
    "mu": {
        f"{name}, mu = {mu:g}": Method(CasimirSVRG, {**options, "mu": mu})
        for name, options in (("const", CONST), ("adapt", ADAPT))
        for mu in (0.0, 1.0, 8.0, 32.0)
    },
    "k": {
        f"{name}, K = {k}": Method(CasimirSVRG, {**options, "k": k})
        for name, options in (("const", CONST), ("adapt", ADAPT))
        for k in (2, 5, 10)
    },
    "warm-start": {
        f"{name}, {start}": Method(CasimirSVRG, {**options, "warm_start": start})
        for name, options in (
            ("const", {**CONST, "smoothness": 128.0}),
            ("adapt", {**ADAPT, "rate": 0.01}),
        )
        for start in ("prox-center", "extrapolation", "prev-iterate")
    },
}


@dataclass(frozen=True)
class Split:
    """Tokens of sentences, one string a column, and their tags."""

    tokens: list[list[tuple[str, ...]]]
    tags: list[list[str]]


def main(config: Config) -> dict[str, float]:
    """Run the study; what comes back is F, gap and F1 at the end of each method."""
    train, dev = load(config.data)
    if config.study == "tagger":
        return tagger(train, dev)
    templates = Templates(
        usable(PAPER, train), COLUMNS[: width(train)], hashing=config.hashing
    )
    problems, labels = problems_of(templates, train, dev)
    rows: list[dict[str, Any]] = []
    for c in config.c:
        for name, method in METHODS[config.study].items():
            for seed in config.seeds:
                rows += follow(config, method, c, seed, problems, labels, dev, name)
            print(linear_report.line(rows[-1]), flush=True)
    bound = {c: lower_bound(problems[0], c, config) for c in config.c}
    for row in rows:
        row["gap"] = row["F"] - bound[row["c"]]
    return linear_report.write(config.out, config.study, rows)


def follow(
    config: Config,
    method: Method,
    c: float,
    seed: int,
    problems: tuple[ChainProblem, ChainProblem],
    labels: list[str],
    dev: Split,
    name: str,
) -> list[dict[str, Any]]:
    """One run, stopped after every pass to look at it."""
    problem, other = problems
    passes = config.passes * (2 if method.calls == 1 else 1)
    rows, state = [], None
    for number in range(1, passes + 1):
        solver = method.make(c, c / len(problem), seed, number)
        try:
            solution = solver.solve(problem, resume=state)
        except FloatingPointError:
            # what diverges is part of the picture
            break
        state = solution.state
        rows.append(
            {
                "method": name,
                "c": c,
                "seed": seed,
                "pass": number,
                "calls": number * method.calls,
                "seconds": solution.seconds,
                "F": solution.primal,
                "F1": 100 * f1_of(other, solution.w, labels, dev),
            }
        )
    return rows


def lower_bound(problem: ChainProblem, c: float, config: Config) -> float:
    """The best dual value of BCFW: F is nowhere below it."""
    solver = BCFW(lam=c / len(problem), tol=1e-4, max_passes=10 * config.passes)
    return max(record.dual for record in solver.solve(problem).history)


def f1_of(problem: ChainProblem, w: Any, labels: list[str], split: Split) -> float:
    found = iter([labels[j] for j in problem.decode(w)])
    predicted = [[next(found) for _ in tags] for tags in split.tags]
    return span_f1(split.tags, predicted)[2]


def tagger(train: Split, dev: Split) -> dict[str, float]:
    """Train the fast tagger, and time it."""
    start = time.perf_counter()
    templates = Templates(usable(RICH, train), COLUMNS[: width(train)])
    problems, labels = problems_of(templates, train, dev)
    ready = time.perf_counter()
    n = len(problems[0])
    make = functools.partial(SGD, lam=TAGGER["c"] / n, average_after=1)
    once = make(rate=TAGGER["rate"], max_passes=1, evaluate_every=1000)
    # compiled code is loaded before the clock runs
    once.solve(problems[0].subset(np.arange(1)))
    begun = time.perf_counter()
    passes = int(TAGGER["passes"])
    solver = make(rate=TAGGER["rate"], max_passes=passes, evaluate_every=1000)
    solution = solver.solve(problems[0])
    seconds = time.perf_counter() - begun
    result = {
        "F1": 100 * f1_of(problems[1], solution.w, labels, dev),
        "seconds": seconds,
        "feature_seconds": ready - start,
    }
    print(
        f"{n} sentences, {templates.num_features:,} features in"
        f" {result['feature_seconds']:.1f} s; {passes} passes in {seconds:.1f} s; span"
        f" F1 {result['F1']:.2f}"
    )
    return result


def problems_of(
    templates: Templates, train: Split, dev: Split
) -> tuple[tuple[ChainProblem, ChainProblem], list[str]]:
    """Training and development sentences with one numbering of tags."""
    labels = sorted({tag for tags in train.tags for tag in tags})
    number = {tag: n for n, tag in enumerate(labels)}
    matrices = templates.fit_transform(train.tokens), templates.transform(dev.tokens)
    found = []
    for matrix, split in zip(matrices, (train, dev), strict=True):
        # a tag that only the development sentences have cannot be guessed
        flat = [number.get(tag, 0) for tags in split.tags for tag in tags]
        lengths = [len(tags) for tags in split.tags]
        found.append(
            ChainProblem(
                matrix, np.array(flat), lengths=lengths, num_labels=len(labels)
            )
        )
    return (found[0], found[1]), labels


def width(split: Split) -> int:
    """Strings of a token."""
    return len(split.tokens[0][0])


def usable(templates: tuple[str, ...], split: Split) -> list[str]:
    """Those whose column there is."""
    missing = COLUMNS[width(split) :]
    return [t for t in templates if not t.startswith(tuple(missing) or ("?",))]


def load(folder: Path | None) -> tuple[Split, Split]:
    """Training and development sentences."""
    if folder is None:
        corpus = toy_corpus.make(train=300, dev=150, test=1, scheme="BIO")
        parts = (corpus.train, corpus.dev)
        first, second = (
            Split([[(w,) for w in s.words] for s in part], [s.tags for s in part])
            for part in parts
        )
        return first, second
    files = conll.find_splits(folder)
    return columns_of(files.train), columns_of(files.dev)


def columns_of(path: Path) -> Split:
    """Sentences of a file with all columns but that of the tags."""
    sentences = conll.read(path)
    lines = path.read_text(encoding="utf-8-sig").split("\n")
    fields = [line.split() for line in lines]
    rows = iter([f for f in fields if f and f[0] != "-DOCSTART-"])
    tokens = [[tuple(next(rows)[:-1]) for _ in s.words] for s in sentences]
    return Split(tokens, [s.tags for s in sentences])


if __name__ == "__main__":
    main(tyro.cli(Config))
