"""Constituency trees: of bracketed files, and nested entities of columns of tags.

An entity is a constituent, and the whole sentence is one, called TOP. The level of an
entity is 1 if it lies in no other, 2 if it lies in one, and so on.
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
ENDINGS = (".mrg", ".txt", ".ptb")
# Far above what sentences have, and below what Python's own stack takes.
DEEPEST = 400
# A bracket in a bracket, with or without a label, or a tag and its word; a sentence may
# begin with a bracket, too.
BEGINS_TREE = re.compile(r"\(\s*\(|\([^\s()]+\s*\(|\([^\sa-z()]+\s+[^\s()]+\s*\)")


def read_trees(
    path: str | Path, *, columns: Sequence[str | int] = (), skip_bad: bool = False
) -> list[ConstituencyTree]:
    """Read the trees of a file: bracketed, or columns of tags of nested entities.

    Bracketed trees lose traces, empty constituents and all that follows ``-`` or ``=``
    in a label. Of columns the first has the outer entities.

    Parameters
    ----------
    path
        The file, which gzip may have compressed.
    columns
        Names or numbers of the columns of tags; by default all that have tags of spans.
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
    if bracketed or BEGINS_TREE.match(begin):
        return parse(content, str(path))
    return _of_levels(read_levels(path, columns, Layout(skip_bad=skip_bad)))


def read_folder(
    folder: str | Path, held_out: int
) -> tuple[list[ConstituencyTree], list[ConstituencyTree]]:
    """Read the bracketed files of a folder: all but the last ones, and these."""
    folder = Path(folder)
    if not folder.is_dir():
        found = "a file" if folder.exists() else "nothing"
        raise FileNotFoundError(
            f"{folder}: expected a folder of bracketed files, got {found}. Give the"
            " folder that holds the files"
        )
    paths = sorted(p for p in folder.iterdir() if p.suffix in ENDINGS)
    if len(paths) <= held_out:
        raise ValueError(
            f"{folder}: expected more than {held_out} files that end in"
            f" {', '.join(ENDINGS)}, got {len(paths)}. Hold out fewer"
        )
    trees = [parse(read_content(p, "a bracketed file"), str(p)) for p in paths]
    cut = len(paths) - held_out
    return list(chain(*trees[:cut])), list(chain(*trees[cut:]))


def read_sentences(
    source: str | Path, bad: Callable[[str], None]
) -> list[list[str]] | list[str]:
    """Read sentences to be parsed: words of bracketed trees or columns, or texts.

    Texts, one a line, are returned as they are. ``bad`` is called with each fault.
    """
    content = read_content(source, "a file of sentences", stdin=True)
    name = display_name(source)
    lines = decode_lines(content, name, strict=False)
    if BEGINS_TREE.match("\n".join(lines).lstrip()):
        return [t.words for t in _parsed(decode_lines(content, name), name, bad)]
    file = parse_sentences(lines, name)
    for wrong in file.bad:
        bad(f"{name}, {wrong}")
    return file.texts or [s.words for s in file.sentences]


def parse(content: bytes, name: str) -> list[ConstituencyTree]:
    """Read the content of a bracketed file called ``name``, as ``read_trees``."""
    return _parsed(decode_lines(content, name), name)


def _parsed(
    lines: Sequence[str], name: str, bad: Callable[[str], None] | None = None
) -> list[ConstituencyTree]:
    tokens = _tokens(lines, name)
    found, faults = [], 0
    for place, token in tokens:
        try:
            tree = _tree(tokens, place, token)
        except ValueError as error:
            if bad is None:
                raise
            faults += 1
            bad(str(error))
            continue
        if tree is not None:
            found.append(tree)
    if not found and not faults:
        raise ValueError(
            f"{name}: expected at least one tree, got none. Is this the right file, and"
            " was it copied whole?"
        )
    return found


def _tree(
    tokens: Iterator[tuple[str, str]], place: str, token: str
) -> ConstituencyTree | None:
    """The tree that begins with this token; None if it has no words."""
    if token != "(":
        raise ValueError(
            f"{place}: expected a tree that begins with (, got {token!r}. Is this a"
            " file of trees?"
        )
    node = _node(tokens, place)
    words: list[str] = []
    tags: list[str] = []
    spans: list[Any] = []
    _walk(node, words, tags, spans, place)
    if not words:
        return None
    whole = (0, len(words) - 1)
    if not any(span[1:] == whole for _, span in spans):
        spans.insert(0, (-1, (TOP, *whole)))
    # an outer constituent was begun before an inner one
    return ConstituencyTree(words, join_unary_chains(s for _, s in sorted(spans)), tags)


def _node(tokens: Iterator[tuple[str, str]], opened: str, depth: int = 1) -> list[Any]:
    """Words between two brackets, and lists of them."""
    if depth > DEEPEST:
        raise ValueError(
            f"{opened}: expected trees of at most {DEEPEST} brackets within each other,"
            " got more. Is this a file of trees?"
        )
    inside: list[Any] = []
    for place, token in tokens:
        if token == ")":
            return inside
        inside.append(_node(tokens, place, depth + 1) if token == "(" else token)
    raise ValueError(
        f"{opened}: expected a ) to this (, got the end of the file. Was it copied"
        " whole?"
    )


def _walk(
    node: list[Any], words: list[str], tags: list[str], spans: list[Any], place: str
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
            f"{place}: expected (LABEL (..) ..) or (TAG word) in this tree, got"
            f" {str(node)[:60]}"
        )
    number, first = len(spans), len(words)
    spans.append(None)
    for child in children:
        _walk(child, words, tags, spans, place)
    # of -LRB- or a trace nothing is cut
    plain = re.split(r"(?<!^)[-=]", label)[0] or TOP
    empty = len(words) == first or not label
    spans[number] = None if empty else (number, (plain, first, len(words) - 1))
    if number == 0:
        spans[:] = [span for span in spans if span is not None]


def join_unary_chains(spans: Iterable[Span]) -> list[Span]:
    """Return constituents with labels of the same words joined by ``+``."""
    labels: dict[tuple[int, int], list[str]] = {}
    for label, first, last in spans:
        labels.setdefault((first, last), []).append(label)
    return [("+".join(names), *place) for place, names in labels.items()]


def split_unary_chains(spans: Iterable[Span]) -> list[Span]:
    """Return constituents with one label each, the outer ones first."""
    return [(one, i, j) for label, i, j in spans for one in label.split("+")]


def to_brackets(tree: ConstituencyTree) -> str:
    """Write a tree with brackets, in one line."""
    closes: Counter[int] = Counter()
    before: dict[int, list[str]] = {}
    # the longer of two constituents that begin at a word is the outer one
    for label, first, last in sorted(tree.spans, key=lambda s: (s[1], -s[2])):
        names = label.split("+")
        before.setdefault(first, []).extend(names)
        closes[last] += len(names)
    parts = []
    for place, (word, tag) in enumerate(zip(tree.words, tree.tags, strict=True)):
        heads = "".join(f"({name} " for name in before.get(place, []))
        parts.append(f"{heads}({tag} {word}){')' * closes[place]}")
    return f"( {' '.join(parts)} )"


def _tokens(lines: Sequence[str], name: str) -> Iterator[tuple[str, str]]:
    """Brackets and words, each with the line it stands in."""
    for number, line in enumerate(lines, start=1):
        for token in re.findall(r"[()]|[^\s()]+", line):
            yield f"{name}, line {number}", token


# --- nested entities ---


def _of_levels(files: Sequence[ParsedFile]) -> list[ConstituencyTree]:
    # imports torch
    from smoothsp.metrics import spans as spans_of

    found = []
    for sentences in zip(*(file.sentences for file in files), strict=True):
        entities: list[Span] = []
        for file, sentence in zip(files, sentences, strict=True):
            bio = convert(
                sentence.tags, source=file.scheme or PLAIN, target="BIO", strict=False
            )
            # the longer one first, which is the outer one
            entities += sorted(spans_of(bio), key=lambda s: (s[1], -s[2]))
        found.append(nest_entities(sentences[0].words, entities))
    return found


def nest_entities(words: Sequence[str], entities: Sequence[Span]) -> ConstituencyTree:
    """Return entities as a tree, those over the same words from the outer inwards."""
    spans = join_unary_chains([(TOP, 0, len(words) - 1), *entities])
    return ConstituencyTree(list(words), spans)


def entities(tree: ConstituencyTree) -> list[Span]:
    """Return the constituents of a tree but TOP."""
    return [span for span in split_unary_chains(tree.spans) if span[0] != TOP]


def levels(tree: ConstituencyTree) -> list[tuple[int, Span]]:
    """Return entities, each with how many it lies in and itself."""
    found = entities(tree)
    return [
        (
            1
            + sum(
                other[1:] != span[1:] and other[1] <= span[1] and span[2] <= other[2]
                for other in found
            )
            + sum(other[1:] == span[1:] for other in found[:number]),
            span,
        )
        for number, span in enumerate(found)
    ]


def to_level_columns(tree: ConstituencyTree, depth: int) -> str:
    """Write numbered words with a column of tags for each level, as GermEval."""
    columns = [["O"] * len(tree.words) for _ in range(depth)]
    for level, (label, i, j) in levels(tree):
        columns[level - 1][i : j + 1] = [f"I-{label}"] * (j + 1 - i)
        columns[level - 1][i] = f"B-{label}"
    rows = zip(
        map(str, range(1, len(tree.words) + 1)), tree.words, *columns, strict=True
    )
    return "".join("\t".join(row) + "\n" for row in rows) + "\n"
