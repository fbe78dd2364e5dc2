"""Corpora of tagged words, with their tags in one scheme."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from smoothsp.data import TaggedSentence as Sentence
from smoothsp.data.columns import AS_USUAL, File, Layout, read
from smoothsp.data.splits import SplitFiles, find_splits
from smoothsp.models.partial import possible
from smoothsp.schemes import PLAIN, convert


@dataclass(frozen=True)
class Splits:
    """A corpus whose tags are all in one scheme."""

    train: list[Sentence]
    dev: list[Sentence]
    test: list[Sentence] | None
    scheme: str
    written: str = "BIO"
    """The scheme of the training file."""
    raw: list[list[str | None]] | None = None
    """Tags as they stand in the training file, None where unknown."""

    @property
    def given(self) -> list[list[str | None]]:
        """Tags of the training sentences in ``written``."""
        if self.raw is not None:
            return self.raw
        return [
            convert(s.tags, source=self.scheme, target=self.written) for s in self.train
        ]

    @property
    def labels(self) -> list[str]:
        """``O``, then every prefix of the scheme with every type seen in training.

        Of tags that write no spans, those that were seen.
        """
        tags = {one for s in self.train for tag in s.tags for one in tag.split("\t")}
        if self.written == PLAIN:
            return sorted(tags - {""})
        types = {tag.partition("-")[2] for tag in tags - {"O", ""}}
        prefixes = "BIES" if self.scheme == "BIOES" else "BI"
        of_types = [(p, kind) for kind in sorted(types) for p in prefixes]
        return ["O", *(f"{p}-{kind}" if kind else p for p, kind in of_types)]


def load(
    folder: str | Path, scheme: str = "BIOES", layout: Layout = AS_USUAL
) -> Splits:
    """The corpus in ``folder``, all tags converted to ``scheme``."""
    return load_files(find_splits(folder), scheme, layout)


def load_files(
    files: SplitFiles, scheme: str = "BIOES", layout: Layout = AS_USUAL
) -> Splits:
    """The corpus in these files, all tags converted to ``scheme``."""
    file = read(files.train, layout)
    train, written = converted(files.train, file, scheme, layout, partial=True)
    raw = [s.tags for s in file.sentences]
    dev, _ = read_as(files.dev, scheme, layout)
    test = read_as(files.test, scheme, layout)[0] if files.test else None
    return Splits(train, dev, test, scheme, written, raw)


def read_as(
    path: Path, scheme: str, layout: Layout = AS_USUAL
) -> tuple[list[Sentence], str]:
    """The sentences of a file with tags in ``scheme``, and the scheme of the file."""
    return converted(path, read(path, layout), scheme, layout)


def by_document(
    sentences: Sequence[Sentence], values: Sequence[list[Any]]
) -> list[list[Any]]:
    """A value of each sentence, and an empty list between two documents."""
    found: list[list[Any]] = []
    for number, (sentence, value) in enumerate(zip(sentences, values, strict=True)):
        if number and sentence.document != sentences[number - 1].document:
            found.append([])
        found.append(value)
    return found


def converted(
    path: Path, file: File, scheme: str, layout: Layout, partial: bool = False
) -> tuple[list[Sentence], str]:
    """The sentences of a file with tags in ``scheme``, and the scheme of the file.

    ``partial`` allows words without a tag, as ``layout.unknown`` says; in sentences
    that have one, tags are the labels that a word may have, as in ``possible``.
    """
    found = []
    for number, s in enumerate(file.sentences, 1):
        if None not in s.tags:
            tags = convert(s.tags, source=file.scheme, target=scheme, strict=False)
        elif not partial or scheme != "BIOES":
            raise ValueError(
                f"{path}: expected a tag for each word, got {layout.unknown!r} in"
                f" sentence {number}; only training files may leave tags unknown"
            )
        else:
            tags = possible(s.tags, file.scheme)
        found.append(replace(s, tags=tags))
    return found, file.scheme
