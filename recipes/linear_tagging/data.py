"""Sentences of ``conll_linear.py``: tokens with their columns, tags, chain problems."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from corpora import toy_corpus
from smoothsp import schemes
from smoothsp.data import unseen_labels
from smoothsp.data.columns import DEFAULT_LAYOUT, Layout, read
from smoothsp.data.splits import find_splits
from smoothsp.linear.features import Templates
from smoothsp.linear.problems import ChainProblem, HashedChainProblem
from smoothsp.metrics import span_f1

COLUMNS = ("word", "pos", "chunk")
# a window of words, and what files of four columns tell besides
WINDOW = ("word[-2..2]", "pos", "chunk")
PAPER = (*WINDOW, "bias")
# the five words as one feature: what the formula of the paper says, read literally
JOINT = ("word[-2] & word[-1] & word & word[1] & word[2]", "pos", "chunk")
RICH = (
    *(f"{source}[-2..2]" for source in ("word", "lower(word)", "shape(word)")),
    *(f"{source}[-2..2]" for source in ("pos", "chunk")),
    "prefix(word, 1..4)",
    "suffix(word, 1..4)",
)


@dataclass(frozen=True)
class Split:
    """Tokens of sentences, one string a column, and their tags."""

    tokens: list[list[tuple[str, ...]]]
    tags: list[list[str]]
    documents: list[int] = field(default_factory=list, compare=False)
    """Number of the document of each sentence; empty if there are none."""

    @property
    def width(self) -> int:
        """Strings of a token."""
        return len(self.tokens[0][0])


@dataclass(frozen=True)
class Task:
    """Chains to train on, chains held out, and names of the labels of both."""

    train: ChainProblem
    dev: ChainProblem
    labels: list[str]
    tags: list[list[str]]
    features: Any
    """Sparse matrix of the tokens held out."""

    def f1(self, w: np.ndarray) -> float:
        """Exact-span F1 of the sentences held out, in percent."""
        return self.f1_of(self.dev.decode(w))

    def f1_of(self, labels: Any) -> float:
        """Exact-span F1 of labels of all tokens held out, in percent."""
        names = iter([self.labels[j] for j in labels])
        predicted = [[next(names) for _ in tags] for tags in self.tags]
        return 100 * span_f1(self.tags, predicted)[2]

    @property
    def checksum(self) -> str:
        """Of all that a run depends on."""
        return f"{self.train.checksum:08x}{self.dev.checksum:08x}"


def load(folder: Path | None, layout: Layout = DEFAULT_LAYOUT) -> tuple[Split, Split]:
    """Training and development sentences."""
    if folder is None:
        corpus = toy_corpus.make(train=300, dev=150, test=1, scheme="BIO")
        parts = (corpus.train, corpus.dev)
        first, second = (
            Split([[(w,) for w in s.words] for s in part], [s.tags for s in part])
            for part in parts
        )
        return first, second
    files = find_splits(folder)
    train, dev = (read_columns(path, layout) for path in (files.train, files.dev))
    if train.width > len(COLUMNS):
        raise ValueError(
            f"{files.train}: expected at most {len(COLUMNS) + 1} columns,"
            f" {', '.join(COLUMNS)} and the tag, got {train.width + 1}. Leave out the"
            " others"
        )
    if train.width != dev.width:
        raise ValueError(
            f"{files.dev}: expected {train.width + 1} columns as in {files.train}, got"
            f" {dev.width + 1}. Give both the same ones"
        )
    return train, dev


def read_columns(path: Path, layout: Layout = DEFAULT_LAYOUT) -> Split:
    """Sentences of a file with all columns but that of the tags."""
    file = read(path, layout)
    tags = [s.tags for s in file.sentences]
    if file.scheme == schemes.PLAIN:
        tags = [
            schemes.convert(row, source=file.scheme, target="BIOES") for row in tags
        ]
    documents = [s.document for s in file.sentences]
    return Split([s.rows for s in file.sentences], tags, documents)


def usable_templates(templates: tuple[str, ...], split: Split) -> list[str]:
    """Those whose column there is."""
    missing = COLUMNS[split.width :]
    return [t for t in templates if not t.startswith(tuple(missing) or ("?",))]


def build_task(
    names: tuple[str, ...], train: Split, dev: Split, **hashing: int | None
) -> Task:
    """Training and development sentences with one numbering of features and tags.

    ``hashing`` are options of ``Templates``.
    """
    columns = COLUMNS[: train.width]
    templates = Templates(usable_templates(names, train), columns, **hashing)
    problem_class = HashedChainProblem if templates.hash_with_label else ChainProblem
    labels = sorted({tag for tags in train.tags for tag in tags})
    number = {tag: n for n, tag in enumerate(labels)}
    unseen_labels.warn("dev", (tag for tags in dev.tags for tag in tags), labels)
    matrices = templates.fit_transform(train.tokens), templates.transform(dev.tokens)
    problems = []
    for matrix, split in zip(matrices, (train, dev), strict=True):
        # what stands in for a tag that training lacks is never scored
        flat = [number.get(tag, 0) for tags in split.tags for tag in tags]
        lengths = [len(tags) for tags in split.tags]
        problems.append(
            problem_class(
                matrix, np.array(flat), lengths=lengths, num_labels=len(labels)
            )
        )
    return Task(problems[0], problems[1], labels, dev.tags, matrices[1])
