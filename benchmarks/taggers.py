"""A pass of L-BFGS over a tagger, and its predictions, next to python-crfsuite.

    python benchmarks/taggers.py --data DIR    # train.txt of CoNLL-2000
    python benchmarks/taggers.py --quick       # sentences that are drawn

Both have the features of the same templates, by name. A pass is one evaluation of
objective and gradient with all that is done for it; the objective is held against
crfsuite's first. Its log has the seconds of each pass, which are those of its process
on one core, and so are ours. Predicting takes lists of names for each word, as both
interfaces have it, and gives lists of tags. Writes ``results/taggers.csv`` and prints
the table.
"""

import argparse
import csv
import os
import re
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from measuring import machine
from report.results import shortened
from smoothsp.data import read_tagged
from smoothsp.linear import ChainCRF
from smoothsp.linear.features import Templates
from smoothsp.linear.problems import ChainProblem
from smoothsp.linear.solvers import LBFGS
from training.recipe_data import toy_corpus

HERE = Path(__file__).parent
C2, PASSES = 0.1, 15
SOURCES = (
    "word[-2..2]",
    "lower(word)[-1..1]",
    "shape(word)[-1..1]",
    "prefix(word, 1..3)",
    "suffix(word, 1..3)",
)
PAIRS = {False: "pairs that occur", True: "all pairs"}
Log = dict[str, list[float]]


def main() -> None:
    options = parse()
    if os.environ.get("OMP_NUM_THREADS") != "1":
        # libraries read it when they are imported
        os.execve(sys.executable, [sys.executable, *sys.argv], machine.pinned(1))
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    task = Task(*sentences(options.data))
    rows = []
    for question, races in (
        *((f"pass, {PAIRS[every]}", task.passes(every)) for every in PAIRS),
        ("predict", task.predictions()),
    ):
        spent: Log = {name: [] for name in races}
        for _ in range(options.rounds):
            for name, seconds in races.items():
                spent[name].append(seconds())
        medians = {name: statistics.median(x) for name, x in spent.items()}
        theirs = medians["crfsuite"]
        for name, median in medians.items():
            about = {"question": question, "method": name, "seconds": median}
            rows.append(about | {"ratio": median / theirs, "rounds": options.rounds})
            print(
                f"| {question} | {name} | {median:.3f} | {median / theirs:.2f} |",
                flush=True,
            )
    where = machine.where_measured(0, "cpu")
    options.output.mkdir(parents=True, exist_ok=True)
    with (options.output / "taggers.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, [*rows[0], *where], lineterminator="\n")
        table.writeheader()
        table.writerows(shortened(row) | where for row in rows)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, help="folder with train.txt")
    parser.add_argument("--quick", action="store_true", help="sentences that are drawn")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    if not options.quick and options.data is None:
        parser.error("--data: expected a folder with train.txt, or --quick")
    return options


def sentences(folder: Path | None) -> tuple[list[list[tuple[str, ...]]], Any]:
    """Words with part of speech, if there is any, and tags."""
    if folder is None:
        corpus = toy_corpus.make(train=60, dev=1, test=1, scheme="BIO")
        return [[(w,) for w in s.words] for s in corpus.train], [
            s.tags for s in corpus.train
        ]
    found = read_tagged(folder / "train.txt")
    return [s.rows for s in found], [s.tags for s in found]


class Task:
    """One corpus: four fifths to train on, one to tag."""

    def __init__(self, tokens: list[list[tuple[str, ...]]], tags: Any) -> None:
        columns = ("word", "pos")[: len(tokens[0][0])]
        templates = Templates((*SOURCES, "pos[-2..2]")[: 4 + len(columns)], columns)
        self.X, self.tags = templates.fit_transform(tokens), tags
        self.names, self.labels = (
            templates.names(),
            sorted({t for y in tags for t in y}),
        )
        self.sizes = [len(y) for y in tags]
        self.named = self._named()

    def _named(self) -> list[list[list[str]]]:
        """Names of the features of each word."""
        names, indptr, rows = self.names, self.X.indptr, []
        for first, last in pairwise(indptr):
            rows.append([names[j] for j in self.X.indices[first:last]])
        ends = np.cumsum([0, *self.sizes])
        return [rows[a:b] for a, b in pairwise(ends)]

    def passes(self, every: bool) -> dict[str, Callable[[], float]]:
        """Seconds of a pass with all pairs, or with those that occur."""
        import pycrfsuite

        trainer = pycrfsuite.Trainer(algorithm="lbfgs", verbose=False)
        for x, y in zip(self.named, self.tags, strict=True):
            trainer.append(x, y)
        settings = dict.fromkeys(("possible_states", "possible_transitions"), every)
        trainer.set_params({f"feature.{name}": v for name, v in settings.items()})
        trainer.set_params({"c2": C2, "max_iterations": PASSES})
        number = {tag: n for n, tag in enumerate(self.labels)}
        labels = [number[tag] for y in self.tags for tag in y]
        problem = ChainProblem(
            self.X, labels, lengths=self.sizes, boundaries=False, all_pairs=every
        )
        self._judge(trainer, problem)
        solver = {"lam": 2 * C2 / len(problem), "tol": 0.0, "max_passes": PASSES}

        def ours() -> float:
            at: list[tuple[float, int]] = []

            def look(record: Any) -> None:
                at.append((time.process_time(), record.passes))

            LBFGS(**solver, callback=look, progress=False).solve(problem)
            (began, first), (ended, last) = at[0], at[-1]
            return (ended - began) / (last - first)

        return {"crfsuite": lambda: seconds_of(trained(trainer)[0]), "smoothsp": ours}

    def _judge(self, trainer: Any, problem: ChainProblem) -> None:
        """Crfsuite's objective at its weights is ours."""
        log, model = trained(trainer)
        w = np.zeros((problem.num_rows, problem.num_labels))
        column = {name: n for n, name in enumerate(self.names)}
        row = {tag: n for n, tag in enumerate(self.labels)}
        for (name, tag), weight in model.state_features.items():
            w[column[name], row[tag]] = weight
        for (first, second), weight in model.transitions.items():
            w[problem.num_features + row[first], row[second]] = weight
        flat = w.ravel()
        found = len(problem) * problem.likelihood(flat)[0] + C2 * float(flat @ flat)
        theirs = float(re.findall(r"Loss: ([\d.]+)", log)[-1])
        np.testing.assert_allclose(found, theirs, rtol=1e-4)

    def predictions(self) -> dict[str, Callable[[], float]]:
        """Seconds of tagging the last fifth with models of the rest."""
        import pycrfsuite

        cut = len(self.tags) * 4 // 5
        train, held_out = self.named[:cut], self.named[cut:]
        trainer = pycrfsuite.Trainer(algorithm="lbfgs", verbose=False)
        for x, y in zip(train, self.tags, strict=False):
            trainer.append(x, y)
        trainer.set_params({"c2": C2, "max_iterations": PASSES})
        tagger = pycrfsuite.Tagger()
        with tempfile.TemporaryDirectory() as folder:
            trainer.train(f"{folder}/model")
            tagger.open(f"{folder}/model")
        models = {
            f"smoothsp, {PAIRS[every]}": ChainCRF(
                C=1 / (2 * C2), max_passes=PASSES, tol=0.0, all_pairs=every
            ).fit(train, self.tags[:cut])
            for every in PAIRS
        }
        calls: dict[str, Callable[[], Any]] = {
            "crfsuite": lambda: [tagger.tag(x) for x in held_out]
        }
        for name, model in models.items():
            # as lists, which is what crfsuite gives
            calls[name] = lambda m=model: [y.tolist() for y in m.predict(held_out)]
        right = [tag for y in self.tags[cut:] for tag in y]
        for name, call in calls.items():
            # the first call, which is not timed, sorts the names
            found = [tag for y in call() for tag in y]
            same = np.mean([a == b for a, b in zip(found, right, strict=True)])
            print(f"{name}: {100 * same:.1f} % of the tags are right")
        return {name: lambda c=call: spent_by(c) for name, call in calls.items()}


def trained(trainer: Any) -> tuple[str, Any]:
    """The log of a training of crfsuite, and its model."""
    import pycrfsuite

    lines: list[str] = []
    trainer.message, trainer.verbose = lines.append, True
    with tempfile.TemporaryDirectory() as folder:
        trainer.train(f"{folder}/model")
        tagger = pycrfsuite.Tagger()
        tagger.open(f"{folder}/model")
        return "".join(lines), tagger.info()


def seconds_of(log: str) -> float:
    """Of one evaluation of the objective, by the log of a training."""
    spent = re.findall(r"Seconds required for this iteration: ([\d.]+)", log)
    trials = re.findall(r"Line search trials: (\d+)", log)
    return sum(map(float, spent)) / sum(map(int, trials))


def spent_by(call: Callable[[], Any]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


if __name__ == "__main__":
    main()
