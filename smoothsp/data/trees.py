"""Constituency trees: bracketed files, and nested entities in tag columns.

Nested entities form a tree whose root is the whole sentence, labelled TOP. The level of
an entity is 1 plus the number of entities that contain it.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from smoothsp.data.columns import Layout, ParsedFile, parse_sentences, read_levels
from smoothsp.data.examples import ConstituencyTree, Span
from smoothsp.data.text_files import decode_lines, display_name, read_content
from smoothsp.schemes import PLAIN, convert

__all__ = [
    "TOP",
    "entities",
    "join_unary_chains",
    "levels",
    "nest_entities",
    "parse",
    "read_folder",
]
__all__ += [
    "read_sentences",
    "read_trees",
    "split_unary_chains",
    "to_brackets",
    "to_level_columns",
]

TOP, TRACE = "TOP", "-NONE-"
BRACKETED_SUFFIXES = (".mrg", ".txt", ".ptb")
# Deeper than any sentence, and below Python's recursion limit.
MAX_DEPTH = 400
# Two opening brackets, with or without a label between, or a bracketed tag and word.
# One bracket is not enough: a plain sentence may begin with it.
TREE_START = re.compile(r"\(\s*\(|\([^\s()]+\s*\(|\([^\sa-z()]+\s+[^\s()]+\s*\)")


def read_trees(
    path: str | Path, *, columns: Sequence[str | int] = (), skip_bad: bool = False
) -> list[ConstituencyTree]:
    """Read the trees of a file: bracketed, or columns of tags of nested entities.

    Traces, empty constituents and label suffixes after ``-`` or ``=`` are removed from
    bracketed trees. The first column has the outermost entities.

    Parameters
    ----------
    path
        The file, which may be compressed by gzip.
    columns
        Names or numbers of the tag columns; by default all with tags of spans.
    skip_bad
        Leave out sentences of columns that cannot be read, with a warning.

    Raises
    ------
    ValueError
        For the first malformed tree, with file and line.
    """
    content = read_content(path, "a file of trees")
    lines = decode_lines(content, path, strict=False)
    begin = "\n".join(lines).lstrip()
    bracketed = begin.startswith("(") and not (columns or "\t" in begin.split("\n")[0])
    if bracketed or TREE_START.match(begin):
        return parse(content, str(path))
    return _merge_levels(read_levels(path, columns, Layout(skip_bad=skip_bad)))


def read_folder(
    folder: str | Path, num_dev_files: int
) -> tuple[list[ConstituencyTree], list[ConstituencyTree]]:
    """Read the bracketed files of a folder as training and development trees.

    The last ``num_dev_files`` files by name are the development set.
    """
    folder = Path(folder)
    if not folder.is_dir():
        state = "a file" if folder.exists() else "nothing"
        raise FileNotFoundError(
            f"{folder}: expected a folder of bracketed files, got {state}. Give the"
            " folder that holds the files"
        )
    paths = sorted(p for p in folder.iterdir() if p.suffix in BRACKETED_SUFFIXES)
    if len(paths) <= num_dev_files:
        raise ValueError(
            f"{folder}: expected more than {num_dev_files} files that end in"
            f" {', '.join(BRACKETED_SUFFIXES)}, got {len(paths)}. Hold out fewer"
        )
    trees = [parse(read_content(p, "a bracketed file"), str(p)) for p in paths]
    num_train = len(paths) - num_dev_files
    return list(chain(*trees[:num_train])), list(chain(*trees[num_train:]))


def read_sentences(
    source: str | Path, bad: Callable[[str], None]
) -> list[list[str]] | list[str]:
    """Read sentences to be parsed: bracketed trees, columns, or running text.

    Text, one sentence a line, is returned as strings. ``bad`` receives each error.
    """
    content = read_content(source, "a file of sentences", stdin=True)
    name = display_name(source)
    lines = decode_lines(content, name, strict=False)
    if TREE_START.match("\n".join(lines).lstrip()):
        return [t.words for t in _parse_lines(decode_lines(content, name), name, bad)]
    file = parse_sentences(lines, name)
    for fault in file.bad:
        bad(f"{name}, {fault}")
    return file.texts or [s.words for s in file.sentences]


def parse(content: bytes, name: str) -> list[ConstituencyTree]:
    """Parse the content of a bracketed file; ``name`` begins error messages."""
    return _parse_lines(decode_lines(content, name), name)


def _parse_lines(
    lines: Sequence[str], name: str, on_error: Callable[[str], None] | None = None
) -> list[ConstituencyTree]:
    tokens = _iter_tokens(lines, name)
    trees, num_faults = [], 0
    for location, token in tokens:
        try:
            tree = _parse_tree(tokens, location, token)
        except ValueError as error:
            if on_error is None:
                raise
            num_faults += 1
            on_error(str(error))
            continue
        if tree is not None:
            trees.append(tree)
    if not trees and not num_faults:
        raise ValueError(
            f"{name}: expected at least one tree, got none. Is this the right file, and"
            " was it copied whole?"
        )
    return trees


def _parse_tree(
    tokens: Iterator[tuple[str, str]], location: str, token: str
) -> ConstituencyTree | None:
    """Parse the tree that begins with ``token``; None if it has no words."""
    if token != "(":
        raise ValueError(
            f"{location}: expected a tree that begins with (, got {token!r}. Is this a"
            " file of trees?"
        )
    node = _parse_node(tokens, location)
    words: list[str] = []
    tags: list[str] = []
    spans: list[Any] = []
    _collect_constituents(node, words, tags, spans, location)
    if not words:
        return None
    full_span = (0, len(words) - 1)
    if not any(span[1:] == full_span for _, span in spans):
        spans.insert(0, (-1, (TOP, *full_span)))
    # Sorting by the order of opening brackets puts outer constituents first.
    return ConstituencyTree(words, join_unary_chains(s for _, s in sorted(spans)), tags)


def _parse_node(
    tokens: Iterator[tuple[str, str]], start_location: str, depth: int = 1
) -> list[Any]:
    """Parse a bracket as a nested list of tokens, up to its closing bracket."""
    if depth > MAX_DEPTH:
        raise ValueError(
            f"{start_location}: expected trees of at most {MAX_DEPTH} nested brackets,"
            " got more. Is this a file of trees?"
        )
    children: list[Any] = []
    for location, token in tokens:
        if token == ")":
            return children
        children.append(
            _parse_node(tokens, location, depth + 1) if token == "(" else token
        )
    raise ValueError(
        f"{start_location}: expected a ) to this (, got the end of the file. Was it"
        " copied whole?"
    )


def _collect_constituents(
    node: list[Any], words: list[str], tags: list[str], spans: list[Any], location: str
) -> None:
    if len(node) == 2 and isinstance(node[0], str) and isinstance(node[1], str):
        if node[0] != TRACE:
            words.append(node[1])
            tags.append(node[0])
        return
    label = node[0] if node and isinstance(node[0], str) else ""
    children = node[1:] if label else node
    if not children or any(isinstance(child, str) for child in children):
        raise ValueError(
            f"{location}: expected (LABEL (..) ..) or (TAG word) in this tree, got"
            f" {str(node)[:60]}"
        )
    number, first = len(spans), len(words)
    spans.append(None)
    for child in children:
        _collect_constituents(child, words, tags, spans, location)
    # A leading hyphen is part of the label, as in -LRB-.
    plain = re.split(r"(?<!^)[-=]", label)[0] or TOP
    empty = len(words) == first or not label
    spans[number] = None if empty else (number, (plain, first, len(words) - 1))
    if number == 0:
        spans[:] = [span for span in spans if span is not None]


def join_unary_chains(spans: Iterable[Span]) -> list[Span]:
    """Merge constituents over the same words into one, with labels joined by ``+``."""
    labels: dict[tuple[int, int], list[str]] = {}
    for label, first, last in spans:
        labels.setdefault((first, last), []).append(label)
    return [("+".join(names), *span) for span, names in labels.items()]


def split_unary_chains(spans: Iterable[Span]) -> list[Span]:
    """Split labels at ``+`` into constituents with one label each, outer first."""
    return [(name, i, j) for label, i, j in spans for name in label.split("+")]


def to_brackets(tree: ConstituencyTree) -> str:
    """Return a tree in brackets, in one line."""
    num_closing: Counter[int] = Counter()
    opening: dict[int, list[str]] = {}
    # Of constituents with the same start, the longer is the outer one.
    for label, first, last in sorted(tree.spans, key=lambda s: (s[1], -s[2])):
        names = label.split("+")
        opening.setdefault(first, []).extend(names)
        num_closing[last] += len(names)
    pieces = []
    for index, (word, tag) in enumerate(zip(tree.words, tree.tags, strict=True)):
        brackets = "".join(f"({name} " for name in opening.get(index, []))
        pieces.append(f"{brackets}({tag} {word}){')' * num_closing[index]}")
    return f"( {' '.join(pieces)} )"


def _iter_tokens(lines: Sequence[str], name: str) -> Iterator[tuple[str, str]]:
    """Yield location and text of each bracket and word."""
    for number, line in enumerate(lines, start=1):
        for token in re.findall(r"[()]|[^\s()]+", line):
            yield f"{name}, line {number}", token


# --- nested entities ---


def _merge_levels(files: Sequence[ParsedFile]) -> list[ConstituencyTree]:
    # Imported late, since it imports torch.
    from smoothsp.metrics import spans as spans_of

    trees = []
    for sentences in zip(*(file.sentences for file in files), strict=True):
        entities: list[Span] = []
        for file, sentence in zip(files, sentences, strict=True):
            bio = convert(
                sentence.tags, source=file.scheme or PLAIN, target="BIO", strict=False
            )
            # Longer entities first, since they are the outer ones.
            entities += sorted(spans_of(bio), key=lambda s: (s[1], -s[2]))
        trees.append(nest_entities(sentences[0].words, entities))
    return trees


def nest_entities(words: Sequence[str], entities: Sequence[Span]) -> ConstituencyTree:
    """Build a tree from entities; those over the same words are given outer first."""
    spans = join_unary_chains([(TOP, 0, len(words) - 1), *entities])
    return ConstituencyTree(list(words), spans)


def entities(tree: ConstituencyTree) -> list[Span]:
    """Return the constituents of a tree except TOP."""
    return [span for span in split_unary_chains(tree.spans) if span[0] != TOP]


def levels(tree: ConstituencyTree) -> list[tuple[int, Span]]:
    """Return entities with their levels: 1 plus the number that contain each."""
    spans = entities(tree)
    return [
        (
            1
            + sum(
                other[1:] != span[1:] and other[1] <= span[1] and span[2] <= other[2]
                for other in spans
            )
            + sum(other[1:] == span[1:] for other in spans[:number]),
            span,
        )
        for number, span in enumerate(spans)
    ]


def to_level_columns(tree: ConstituencyTree, depth: int) -> str:
    """Return numbered words with a BIO column for each level, as in GermEval."""
    columns = [["O"] * len(tree.words) for _ in range(depth)]
    for level, (label, i, j) in levels(tree):
        columns[level - 1][i : j + 1] = [f"I-{label}"] * (j + 1 - i)
        columns[level - 1][i] = f"B-{label}"
    rows = zip(
        map(str, range(1, len(tree.words) + 1)), tree.words, *columns, strict=True
    )
    return "".join("\t".join(row) + "\n" for row in rows) + "\n"
