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

    from linear_tagging.settings import Config
    from runs import start

    start.read_options(Config)

import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from tqdm import tqdm

from linear_tagging import curves, report
from linear_tagging import data as linear_tagging_data
from linear_tagging import documents as linear_tagging_documents
from linear_tagging.data import Split, Task
from linear_tagging.methods import STUDIES, Method
from linear_tagging.settings import Config
from runs import arguments, options, terminal
from runs.interrupts import raise_if_interrupted
from runs.result_store import Result, ResultStore
from smoothsp.data.columns import Layout
from smoothsp.linear.solvers import SGD

# Passes, c and rate of the fast tagger, chosen on the last 15 % of eng.train.
TAGGER = {"passes": 30, "c": 3.0, "rate": 0.1}


def main(config: Config) -> dict[str, float]:
    """Run the studies; what comes back is F, gap and F1 at the end of each method."""
    for name in ("study", "seeds", "c"):
        if not getattr(config, name):
            raise ValueError(f"{name}: expected one value at least, got none")
    arguments.require_at_least(config, bound_passes=1, seeds=0)
    arguments.require_positive(config, "c")
    arguments.require_distinct(config, "study", "seeds", "c")
    if config.study == ("tagger",):
        return tagger(*load(config))
    with config.locked():
        return compare(config)


def load(config: Config) -> tuple[Split, Split]:
    layout = Layout(config.column, config.word_column, skip_bad=config.skip_bad)
    return linear_tagging_data.load(config.data, layout)


def compare(config: Config) -> dict[str, float]:
    train, dev = load(config)
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
