"""Linear named-entity taggers: the solvers of ``smoothsp.linear`` side by side.

Minimises F(w) = lambda / 2 |w|^2 + mean structured hinge, lambda = c / n, of a chain
over hashed indicator features, and records F, its gap to the best certified lower bound
(the dual of BCFW), and the exact-span F1 of held-out sentences, against oracle calls
and seconds.

    python recipes/conll_linear.py                            # invented corpus
    python recipes/conll_linear.py --data DIR --c 0.01 0.1 1 10 --calls 100
    python recipes/conll_linear.py --data DIR --study mu k warm-start smoothing
    python recipes/conll_linear.py --data DIR --study tagger  # a good tagger, fast

``cells.json`` is written after each run, for ``--resume``. At the end the recipe writes
``STUDY.csv`` and figures. Results: ``docs/reproduction.md``.

Reproduces: figures 2 and 5 of Pillutla et al., "A Smoother Way to Train Structured
Prediction Models", on these solvers; settings as their authors published them.
"""

if __name__ == "__main__":
    from runs import sigint

    sigint.default_sigint()

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from tqdm import tqdm

from linear_tagging import curves, report
from linear_tagging import data as linear_tagging_data
from linear_tagging import documents as linear_tagging_documents
from linear_tagging.data import Split, Task
from linear_tagging.methods import STUDIES, Method
from runs import arguments, options, terminal
from runs.interrupts import raise_if_interrupted
from runs.result_store import Result, ResultStore
from runs.run_options import FitsOptions
from smoothsp.data.columns import Layout
from smoothsp.linear.solvers import SGD

Features = Literal["hashed", "hashed-with-label", "joint-with-label"]
Study = Literal["solvers", "rates", "mu", "k", "warm-start", "smoothing", "tagger"]
# Passes, c and rate of the fast tagger, chosen on the last 15 % of eng.train.
TAGGER = {"passes": 30, "c": 3.0, "rate": 0.1}


@dataclass(frozen=True)
class Data:
    """Input files."""

    data: Path | None = None
    """Folder of CoNLL files; default: an invented corpus."""
    column: str | None = None
    """Column of the tags, by number or name; detected if not given."""
    word_column: str | None = None
    """Column of the words, by number or name; detected if not given."""
    skip_bad: bool = False
    """Leave out sentences that cannot be read, with a warning that counts them."""


@dataclass(frozen=True)
class Model:
    """Architecture and features."""

    features: Features = "hashed"
    """Hash features alone, or with the tag as in the paper; words apart or joined."""
    hashing: int = 2**16 - 1
    """Number of hashed columns; if hashed with the tag, number of weights."""


@dataclass(frozen=True)
class Training:
    """Training and evaluation."""

    study: tuple[Study, ...] = ("solvers",)
    """Setting to vary, or tagger to train a good tagger."""
    c: tuple[float, ...] = (1.0,)
    """Values of c, where lambda = c / n; not used by the tagger."""
    calls: int = 20
    """Oracle calls per sentence in each run; an even number."""
    seeds: tuple[int, ...] = (0, 1)
    """Seeds of the runs; curves show mean and standard deviation."""
    bound_passes: int = 80
    """Passes of the BCFW run for each c, whose dual is the lower bound."""


@dataclass(frozen=True)
class Output(FitsOptions):
    """Output files."""

    out: Path = Path("runs/conll_linear")
    """Folder of the numbers and the figures."""


@dataclass(frozen=True)
class Config(Output, Training, Model, Data):
    """Train linear taggers and compare how fast their solvers converge."""

    @property
    def layout(self) -> Layout:
        return Layout(self.column, self.word_column, skip_bad=self.skip_bad)

    def __post_init__(self) -> None:
        if self.calls < 2 or self.calls % 2:
            raise ValueError(
                f"calls: expected an even number, at least 2, got {self.calls}"
            )
        if "tagger" in self.study and len(self.study) > 1:
            raise ValueError(
                f"study: expected the tagger alone, got {', '.join(self.study)}. Give"
                " it a run of its own"
            )


def main(config: Config) -> dict[str, float]:
    """Run the studies; what comes back is F, gap and F1 at the end of each method."""
    for name in ("study", "seeds", "c"):
        if not getattr(config, name):
            raise ValueError(f"{name}: expected one value at least, got none")
    arguments.require_at_least(config, bound_passes=1, seeds=0)
    arguments.require_positive(config, "c")
    arguments.require_distinct(config, "study", "seeds", "c")
    if config.study == ("tagger",):
        return tagger(*linear_tagging_data.load(config.data, config.layout))
    with config.locked():
        return compare(config)


def compare(config: Config) -> dict[str, float]:
    train, dev = linear_tagging_data.load(config.data, config.layout)
    if config.features == "hashed":
        names, hashing = linear_tagging_data.PAPER, "hashing"
    else:
        joint = config.features == "joint-with-label"
        names = linear_tagging_data.JOINT if joint else linear_tagging_data.WINDOW
        hashing = "hash_with_label"
    task = linear_tagging_data.build_task(
        names, train, dev, **{hashing: config.hashing}
    )
    store = ResultStore(config.checkpoint, run_settings(config, task), config.resume)
    with store.print_resume_hint():
        run_missing(config, store, task)
    return store.reraise_with_path(lambda: write(config, store))


def selected_methods(config: Config) -> list[tuple[str, Method]]:
    """Methods of each study."""
    return [(study, method) for study in config.study for method in STUDIES[study]]


def run_settings(config: Config, task: Task) -> dict[str, Any]:
    """What decides a single run, besides its method, c and seed."""
    names = ("features", "hashing", "calls", "bound_passes")
    data = f"{len(task.train)} sentences with checksum {task.checksum}"
    return {"data": data} | {name: getattr(config, name) for name in names}


def run_missing(config: Config, store: ResultStore, task: Task) -> None:
    """Compute the cells that are not there yet."""
    todo = selected_methods(config)
    total = len(config.c) * (1 + len(config.seeds) * len(todo))
    with tqdm(total=total, unit=" runs", smoothing=0.05) as bar:
        # a study that is stopped early has whole seeds
        for seed in config.seeds:
            for c in config.c:
                for _, method in todo:
                    run = functools.partial(
                        curves.run_with_evaluations, task, method, c, seed
                    )
                    key = curves.run_key(method, c, seed)
                    run_with_progress(
                        bar, store, key, run, curves.evaluation_calls(config.calls)
                    )
        for c in config.c:
            run = functools.partial(curves.lower_bound, task, c)
            key = curves.bound_key(c)
            run_with_progress(bar, store, key, run, config.bound_passes)


def write(config: Config, store: ResultStore) -> dict[str, float]:
    """Write tables and figures; what comes back is how each method ends."""
    rows = [
        {"study": study, "method": method.name, "c": c, "seed": seed} | row
        for seed in config.seeds
        for c in config.c
        for study, method in selected_methods(config)
        for row in store[curves.run_key(method, c, seed)]["rows"]
    ]
    references = {c: store[curves.bound_key(c)] for c in config.c}
    for row in rows:
        row["gap"] = row["F"] - references[row["c"]]["bound"]
    for study in config.study:
        study_rows = [row for row in rows if row["study"] == study]
        report.write(config.out / f"{study}.csv", study_rows)
        print(f"\n{study}\n{report.table(study_rows)}", flush=True)
        if study == "solvers":
            for c, reference in references.items():
                rows_of_c = [row for row in study_rows if row["c"] == c]
                path = config.out / f"solvers_{c:g}.png"
                curves.as_comparison(rows_of_c).draw(path, reference["bound"])
    print(f"numbers and figures are in {config.out}")
    return report.final_means(rows)


def run_with_progress(
    bar: tqdm, store: ResultStore, key: str, run: Callable[..., Result], amount: Any
) -> None:
    """Run what has no cell yet; the bar tells how far it is, and moves on after it."""
    if key not in store:
        store.put(key, run(amount, bar.set_postfix_str))
    bar.update()


def tagger(train: Split, dev: Split) -> dict[str, float]:
    """Train the fast tagger, and time it."""
    start = time.perf_counter()
    task = linear_tagging_data.build_task(linear_tagging_data.RICH, train, dev)
    ready = time.perf_counter()
    n = len(task.train)
    make = functools.partial(
        SGD,
        lam=TAGGER["c"] / n,
        rate=TAGGER["rate"],
        average_after=1,
        evaluate_every=1000,
    )
    # compiled code is loaded before the clock runs
    raise_if_interrupted(make(max_passes=1).solve(task.train.subset(np.arange(1))))
    begun = time.perf_counter()
    passes = int(TAGGER["passes"])
    solution = raise_if_interrupted(make(max_passes=passes).solve(task.train))
    seconds = time.perf_counter() - begun
    result = {
        "F1": task.f1(solution.w),
        "seconds": seconds,
        "feature_seconds": ready - start,
    }
    documents = len(set(dev.documents))
    if documents > 1:
        begun = time.perf_counter()
        labels, proven = linear_tagging_documents.decode(task, solution.w, dev)
        result["document_seconds"] = time.perf_counter() - begun
        result["document_F1"] = task.f1_of(labels)
    print(
        f"{n} sentences, {task.train.num_features:,} features in"
        f" {result['feature_seconds']:.1f} s; {passes} passes in {seconds:.1f} s; span"
        f" F1 {result['F1']:.2f}"
    )
    if documents > 1:
        print(
            f"{documents} documents decoded whole, {100 * proven:.1f} % with a proof,"
            f" in {result['document_seconds']:.1f} s; span F1"
            f" {result['document_F1']:.2f}"
        )
    return result


def command_line() -> None:
    terminal.run(lambda: main(options.read(Config)))


if __name__ == "__main__":
    command_line()
