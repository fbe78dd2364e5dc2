"""Corpora of tagged words: the files of a folder, and their tags in one scheme."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from corpora.column_files import AS_USUAL, File, Layout, Sentence, read
from smoothsp.models.partial import possible
from smoothsp.schemes import PLAIN, convert

ENDINGS = ("", ".txt", ".conll", ".tsv", ".iob", ".bio")
FAMILIES = [
    ("eng.train", "eng.testa", "eng.testb"),
    ("NER-de-train.tsv", "NER-de-dev.tsv", "NER-de-test.tsv"),
    ("wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"),
    *(
        (f"train{ending}", f"{dev}{ending}", f"test{ending}")
        for ending in ENDINGS
        for dev in ("dev", "valid")
    ),
]


@dataclass(frozen=True)
class SplitFiles:
    train: Path
    dev: Path
    test: Path | None


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


def find_splits(folder: str | Path) -> SplitFiles:
    """The files of a corpus, by the names such files usually have.

    The first family of names of which ``folder`` holds both training and development
    file is taken; its test file may be missing.
    """
    folder = Path(folder)
    if not folder.is_dir():
        found = "a file" if folder.exists() else "nothing"
        raise FileNotFoundError(
            f"{folder}: expected a folder with a training and a development file,"
            f" got {found}. Give the folder that holds the files"
        )
    for names in FAMILIES:
        train, dev, test = (folder / name for name in names)
        if train.is_file() and dev.is_file():
            return SplitFiles(train, dev, test if test.is_file() else None)
    held = sorted(path.name for path in folder.iterdir())
    shown = ", ".join(held[:20]) + (", ..." if len(held) > 20 else "")
    endings = ", ".join(ending or "no ending" for ending in ENDINGS)
    raise FileNotFoundError(
        f"{folder}: expected a training and a development file, got"
        f" {shown or 'an empty folder'}. Looked for eng.train with eng.testa;"
        " NER-de-train.tsv with NER-de-dev.tsv; wnut17train.conll with"
        " emerging.dev.conll; train with dev or valid, both with the same ending"
        f" ({endings}). Rename the files to one of these"
    )


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
    raw = [[None if t == layout.unknown else t for t in s.tags] for s in file.sentences]
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
    unknown, found = layout.unknown, []
    for number, s in enumerate(file.sentences, 1):
        if unknown is None or unknown not in s.tags:
            tags = convert(s.tags, source=file.scheme, target=scheme, strict=False)
        elif not partial or scheme != "BIOES":
            raise ValueError(
                f"{path}: expected a tag for each word, got {unknown!r} in sentence"
                f" {number}; only training files may leave tags unknown"
            )
        else:
            tags = possible([t if t != unknown else None for t in s.tags], file.scheme)
        found.append(replace(s, tags=tags))
    return found, file.scheme
