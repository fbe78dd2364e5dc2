"""Readers of tagged sentences: columns, JSON lines, texts with character spans."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from smoothsp.data import columns, offsets
from smoothsp.data.examples import TaggedSentence
from smoothsp.data.splits import SplitFiles, find_splits
from smoothsp.data.text_files import as_path, print_stderr
from smoothsp.data.word_tokenizers import TREEBANK, check_tokenizer

__all__ = ["Splits", "by_document", "read_splits", "read_tagged"]

# Largest number of spans without tags that are printed one by one.
MAX_LISTED_SPANS = 10


class Splits(NamedTuple):
    """Sentences of the training, development and test set.

    Examples
    --------
    >>> splits = read_splits("corpus")  # doctest: +SKIP
    >>> len(splits.train)  # doctest: +SKIP
    14041
    """

    train: list[TaggedSentence]
    dev: list[TaggedSentence]
    test: list[TaggedSentence]
    """Empty if the corpus has no test file."""


def by_document(sentences: Sequence[TaggedSentence]) -> list[list[str]]:
    """Return the words of each sentence, and an empty list between two documents."""
    rows: list[list[str]] = []
    for number, sentence in enumerate(sentences):
        if number and sentence.document != sentences[number - 1].document:
            rows.append([])
        rows.append(sentence.words)
    return rows


def read_tagged(
    path: str | Path,
    *,
    column: str | int | None = None,
    word_column: str | int | None = None,
    encoding: str | None = None,
    skip_bad: bool = False,
    unknown: str | None = None,
    tokenizer: str = TREEBANK,
) -> list[TaggedSentence]:
    """Read sentences with a tag for each word.

    Formats: columns of words and tags (CoNLL-2003, CoNLL-2000, CoNLL-U, CoNLL-U
    Plus, GermEval, CSV and TSV), JSON lines of words and tags, and texts with character
    spans: JSON lines of doccano and Prodigy, JSON of Label Studio, and brat's ``.ann``
    beside ``.txt`` files. The file may be compressed by gzip. The detected format, and
    spans that are no whole words, are printed to standard error.

    Parameters
    ----------
    path
        The file; for brat also a folder.
    column, word_column
        Columns of tags and words: a number from 1 (from the end if negative), a name,
        or a key of the last column of CoNLL-U. Detected by default.
    encoding
        Encoding of the file; by default UTF-8, or else latin-1.
    skip_bad
        Leave out sentences that cannot be read, with a warning that counts them.
    unknown
        Tag that stands for an unknown tag; it becomes None.
    tokenizer
        Word tokenizer of texts with character spans: ``"treebank"`` or ``"blanks"``.

    Returns
    -------
    list
        Sentences with tags in the scheme of the file, written as ``B-PER`` and ``O``.

    Raises
    ------
    ValueError
        For the first sentence that cannot be read, with file and line.
    """
    path = as_path(path)
    check_tokenizer(tokenizer)
    if column is word_column is encoding is None and offsets.has_character_spans(path):
        texts = offsets.read_spans(path)
        sentences, unaligned = offsets.tag_words(texts, tokenizer=tokenizer)
        for span in unaligned[:MAX_LISTED_SPANS]:
            text = texts[span.record]
            start, end, label = span.span
            shown = text.text[max(start, 0) : max(end, 0)][:60]
            print_stderr(
                f"warning: {text.name}: no tags for {label} from {start} to {end}"
                f" ({shown!r}), which {span.reason}"
            )
        total = sum(len(x.spans) + len(x.faults) for x in texts)
        print_stderr(
            f"{path}: read as {len(texts)} texts with {total} spans, of which"
            f" {len(unaligned)} have no tags"
        )
        return sentences
    layout = columns.Layout(
        columns.as_column_name("column", column),
        columns.as_column_name("word_column", word_column),
        encoding,
        skip_bad,
        unknown,
    )
    return columns.read(path, layout).sentences


def read_splits(
    folder: str | Path | SplitFiles,
    *,
    column: str | int | None = None,
    word_column: str | int | None = None,
    encoding: str | None = None,
    skip_bad: bool = False,
    unknown: str | None = None,
    tokenizer: str = TREEBANK,
) -> Splits:
    """Read the files of a corpus for training, development and test.

    Parameters
    ----------
    folder
        Folder whose files have common names (see ``find_splits``), or the files.
    column, word_column, encoding, skip_bad, unknown, tokenizer
        As for ``read_tagged``; only the training file may have unknown tags.
    """
    files = folder if isinstance(folder, SplitFiles) else find_splits(folder)

    def read(path: Path | None, unknown: str | None = None) -> list[TaggedSentence]:
        if path is None:
            return []
        return read_tagged(
            path,
            column=column,
            word_column=word_column,
            encoding=encoding,
            skip_bad=skip_bad,
            unknown=unknown,
            tokenizer=tokenizer,
        )

    return Splits(read(files.train, unknown), read(files.dev), read(files.test))
