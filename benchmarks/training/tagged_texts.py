"""Sentences to tag, read or drawn, and one set of features for all taggers.

Attributes for a peer are the names of our own features, position by position, so that
both are given the same.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from smoothsp.linear.features import Templates
from smoothsp.linear.problems import ChainProblem
from smoothsp.metrics import span_f1
from training.recipe_data import column_files, conll, toy_corpus, unseen_labels

COLUMNS = ("word", "pos", "chunk")
TEMPLATES = (
    *(f"{source}[-2..2]" for source in ("word", "lower(word)", "shape(word)")),
    "prefix(word, 1..4)",
    "suffix(word, 1..4)",
)
OF_COLUMNS = "pos[-2..2]", "chunk[-2..2]"
DRAWN, CONLL = "drawn sentences", "CoNLL-2003"


@dataclass(frozen=True, eq=False)
class Sentences:
    """Tokens, one string a column, and tags."""

    tokens: list[list[tuple[str, ...]]]
    tags: list[list[str]]


@dataclass(frozen=True, eq=False)
class Texts:
    """To train on, and to count right spans in."""

    name: str
    train: Sentences
    dev: Sentences

    @property
    def columns(self) -> int:
        return len(self.train.tokens[0][0])

    def templates(self, hashing: int | None = None) -> Templates:
        more = OF_COLUMNS[: self.columns - 1]
        return Templates((*TEMPLATES, *more), COLUMNS[: self.columns], hashing=hashing)


@dataclass(frozen=True, eq=False)
class Task:
    """The same sentences as chain problems."""

    texts: Texts
    labels: list[str]
    names: list[str]  # of the features
    train: ChainProblem
    dev: ChainProblem
    seconds: float  # from sentences to the problem that a solver takes, dev apart

    def f1(self, w: np.ndarray) -> float:
        """Of exact spans of the development sentences, in percent."""
        return self.f1_of(self.labels[j] for j in self.dev.decode(w))

    def f1_of(self, found: Iterator[str]) -> float:
        gold = self.texts.dev.tags
        return 100 * span_f1(gold, [[next(found) for _ in tags] for tags in gold])[2]

    def attributes(self, problem: ChainProblem) -> Iterator[list[list[str]]]:
        """Names of the features, by position, a sentence at a time."""
        rows = problem.indptr
        for first, last in zip(problem.offsets, problem.offsets[1:], strict=False):
            yield [
                [self.names[j] for j in problem.indices[rows[t] : rows[t + 1]]]
                for t in range(first, last)
            ]


@cache
def texts(folder: Path | None, drawn: int = 400) -> Texts:
    """``eng.train`` and ``eng.testa`` of a folder; None draws."""
    if folder is None:
        corpus = toy_corpus.make(train=drawn, dev=drawn // 2, test=1, scheme="BIO")
        parts = [
            Sentences([[(w,) for w in s.words] for s in part], [s.tags for s in part])
            for part in (corpus.train, corpus.dev)
        ]
        return Texts(DRAWN, *parts)
    files = conll.find_splits(folder)
    return Texts(CONLL, read(files.train), read(files.dev))


def read(path: Path) -> Sentences:
    sentences = column_files.read(path).sentences
    return Sentences([s.rows for s in sentences], [s.tags for s in sentences])


@cache
def task(given: Texts) -> Task:
    return prepare(given)


def prepare(given: Texts) -> Task:
    """Problems of training and development sentences, the clock on the former."""
    labels = sorted({tag for tags in given.train.tags for tag in tags})
    held_out = (tag for tags in given.dev.tags for tag in tags)
    unseen_labels.warn("dev", held_out, labels)
    templates = given.templates()
    began = time.perf_counter()
    train = problem(templates.fit_transform(given.train.tokens), given.train, labels)
    taken = time.perf_counter() - began
    dev = problem(templates.transform(given.dev.tokens), given.dev, labels)
    return Task(given, labels, templates.names(), train, dev, taken)


def problem(matrix: Any, sentences: Sentences, labels: Sequence[str]) -> ChainProblem:
    number = {tag: n for n, tag in enumerate(labels)}
    # a tag that only development sentences have cannot be guessed
    flat = [number.get(tag, 0) for tags in sentences.tags for tag in tags]
    lengths = [len(tags) for tags in sentences.tags]
    return ChainProblem(matrix, np.array(flat), lengths=lengths, num_labels=len(labels))
