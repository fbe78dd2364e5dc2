"""Multiclass SVMs of Weston and Watkins, solved exactly: accuracy for each C.

    python recipes/multiclass_svm.py                                # digits, in seconds
    python recipes/multiclass_svm.py --data dna.scale letter.scale  # LIBSVM files
    python recipes/multiclass_svm.py --data FOLDER                  # MNIST's idx files

The test samples of ``NAME`` are those of ``NAME.t`` beside it (of ``NAME.train``, those
of ``NAME.test``; both may end in ``.gz``), or a fifth that is held out.

What does a looser tolerance cost? The recipe lists test accuracy for each C and
tolerance, relative to the duality gap after the first epoch, next to the paper's.

``cells.json`` is written after each fit, for ``--resume``. At the end the recipe writes
``metrics.json``, ``accuracy.csv`` and ``accuracy.png``.

Reproduces: Wang and Scott, "An Exact Solver for the Weston-Watkins SVM Subproblem",
tables 4 to 6. Results: ``docs/reproduction.md``.
"""

if __name__ == "__main__":
    from runs import sigint

    sigint.default_sigint()

    from multiclass.settings import Config
    from runs import start

    start.read_options(Config)

from collections import Counter
from typing import Any

from tqdm import tqdm

from multiclass import datasets as multiclass_sets
from multiclass import fits, report
from multiclass.datasets import Samples
from multiclass.settings import Config
from runs import arguments, options, terminal
from runs.result_store import ResultStore
from smoothsp.data import unseen_labels


def main(config: Config) -> dict[str, float]:
    """Fit and report; the chief numbers come back."""
    check(config)
    with config.locked():
        return compare(config)


def compare(config: Config) -> dict[str, float]:
    sets = [multiclass_sets.load(path) for path in config.data]
    sets = sets or [multiclass_sets.digits()]
    for samples in sets:
        print(samples)
        test = samples.y_test.tolist()
        unseen_labels.warn(f"{samples.name}, test", test, samples.y.tolist())
    name, count = Counter(samples.name for samples in sets).most_common(1)[0]
    if count > 1:
        raise ValueError(
            "data: expected sets of different names, which are those of files up to the"
            f" first dot, got {count} called {name}. Rename one, or give it to another"
            " run"
        )
    store = ResultStore(config.checkpoint, settings_of(config, sets), config.resume)
    fits.warm_up(sets[0])
    with store.print_resume_hint():
        fill(config, store, sets)
    return store.reraise_with_path(lambda: report.write(config, sets, store))


def check(config: Config) -> None:
    arguments.require_at_least(config, seed=0)
    arguments.require_distinct(config, "log2_c", "tolerances")
    for name in ("log2_c", "tolerances"):
        if not getattr(config, name):
            raise ValueError(f"{name}: expected one value at least, got none")
    for power in config.log2_c:
        if abs(power) > 1000:
            raise ValueError(f"log2_c: expected -1000 to 1000, got {power}")
    for tolerance in config.tolerances:
        if not 0 < tolerance < 1:
            raise ValueError(
                f"tolerances: expected shares between 0 and 1, got {tolerance}"
            )
    if not config.limit > 0:
        raise ValueError(f"limit: expected a positive number, got {config.limit}")


def settings_of(config: Config, sets: list[Samples]) -> dict[str, Any]:
    """What decides a cell, besides its own name."""
    return {
        "data": ", ".join(f"{x.name} with checksum {x.checksum}" for x in sets),
        "seed": config.seed,
        "limit": config.limit,
        "tolerances": config.tolerances,
    }


def fill(config: Config, store: ResultStore, sets: list[Samples]) -> None:
    """Compute the cells that are not there yet."""
    bar = tqdm(disable=None, unit="fit")
    bar.total = len(sets) * len(config.log2_c) * len(config.tolerances)
    with bar:
        for samples in sets:
            for tolerance in sorted(config.tolerances, reverse=True):
                for log2_c in sorted(config.log2_c):
                    score(config, store, samples, log2_c, tolerance, bar)


def score(
    config: Config,
    store: ResultStore,
    samples: Samples,
    log2_c: int,
    tolerance: float,
    bar,
) -> None:
    """Test accuracy of a fit; of none if an easier one was given up."""
    bar.set_description(f"{samples.name}, C = 2^{log2_c}, tolerance {tolerance:g}")
    bar.update()
    key = samples.score_key(log2_c, tolerance)
    if key in store:
        return
    easier = (
        samples.score_key(c, t)
        for t in config.tolerances
        for c in config.log2_c
        if c <= log2_c and t >= tolerance
    )
    others = (store[name] for name in easier if name in store)
    if any(cell.get("accuracy", 0) is None for cell in others):
        store.put(key, {"accuracy": None})
        return
    about = 2.0**log2_c, tolerance, config.seed, config.limit, bar.set_postfix_str
    store.put(key, fits.score(samples, *about))


def command_line() -> None:
    terminal.run(lambda: main(options.read(Config)))


if __name__ == "__main__":
    command_line()
