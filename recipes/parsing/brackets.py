"""Bracketed trees: files of them, their labelled spans, and F1 as EVALB counts it."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from corpora.column_files import words_in
from corpora.text_files import content_of, lines_of, name_of
from runs.failures import Failures

TOP, TRACE, UNKNOWN_TAG = "TOP", "-NONE-", "XX"
ENDINGS = (".mrg", ".txt", ".ptb")
# Far above what sentences have, and below what Python's own stack takes.
DEEPEST = 400
# A bracket in a bracket, with or without a label, or a tag and its word; a sentence may
# begin with a bracket, too.
BEGINS_TREE = re.compile(r"\(\s*\(|\([^\s()]+\s*\(|\([^\sa-z()]+\s+[^\s()]+\s*\)")
PUNCTUATION = frozenset([",", ":", "``", "''", "."])

Span = tuple[str, int, int]


@dataclass(frozen=True)
class Tree:
    """Words, their tags, and its constituents: the outer before the inner ones."""

    words: list[str]
    tags: list[str]
    spans: list[Span]
    """Label, first and last word, inclusive; a chain of unary rules as ``S+VP``."""


def load(folder: str | Path, held_out: int) -> tuple[list[Tree], list[Tree]]:
    """The trees of the files of a folder: of all but the last ones, and of these."""
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
            f" {', '.join(ENDINGS)}, got {len(paths)}. Hold out fewer with --held-out"
        )
    contents = ((content_of(path, "a bracketed file"), path) for path in paths)
    trees = [parse(content, str(path)) for content, path in contents]
    cut = len(paths) - held_out
    train, dev = (list(chain(*part)) for part in (trees[:cut], trees[cut:]))
    return train, dev


def read_words(source: str | Path, failures: Failures) -> list[list[str]]:
    """Sentences to be parsed: of bracketed trees, or as ``column_files`` reads them."""
    content = content_of(source, "a file of sentences", "--predict")
    name = name_of(source)
    lines = lines_of(content, name, strict=False)
    if BEGINS_TREE.match("\n".join(lines).lstrip()):
        return [t.words for t in _parsed(lines_of(content, name), name, failures)]
    rows = plain_words(lines, name, failures)
    return [[_bracketless(word) for word in row] for row in rows]


def plain_words(lines: Sequence[str], name: str, failures: Failures) -> list[list[str]]:
    """The words of columns, or of a sentence a line."""
    file = words_in(lines, name)
    for wrong in file.bad:
        failures.add(f"{name}, {wrong}")
    return [s.words for s in file.sentences] + [text.split() for text in file.texts]


def _bracketless(word: str) -> str:
    """As treebanks have it: the brackets of their files are those of trees."""
    return word.replace("(", "-LRB-").replace(")", "-RRB-")


def parse(content: bytes, name: str) -> list[Tree]:
    """Trees without traces, empty constituents and what follows - or = in a label."""
    return _parsed(lines_of(content, name), name)


def _parsed(
    lines: Sequence[str], name: str, failures: Failures | None = None
) -> list[Tree]:
    tokens = _tokens(lines, name)
    found = []
    for place, token in tokens:
        try:
            tree = _tree(tokens, place, token)
        except ValueError as error:
            if failures is None:
                raise
            failures.add(error)
            continue
        if tree is not None:
            found.append(tree)
    if not found and not failures:
        raise ValueError(
            f"{name}: expected at least one tree, got none. Is this the right file, and"
            " was it copied whole?"
        )
    return found


def _tree(tokens: Iterator[tuple[str, str]], place: str, token: str) -> Tree | None:
    """The tree that begins with this token; None if it has no words."""
    if token != "(":
        raise ValueError(
            f"{place}: expected a tree that begins with (, got {token!r}. Is this a"
            " file of trees?"
        )
    node = _node(tokens, place)
    words: list[str] = []
    tags: list[str] = []
    spans: list[tuple[int, Span]] = []
    _walk(node, words, tags, spans, place)
    if not words:
        return None
    whole = (0, len(words) - 1)
    if not any(span[1:] == whole for _, span in spans):
        spans.insert(0, (-1, (TOP, *whole)))
    # an outer constituent was begun before an inner one
    return Tree(words, tags, chained(s for _, s in sorted(spans)))


def _node(tokens: Iterator[tuple[str, str]], opened: str, depth: int = 1) -> list:
    """What stands between two brackets: words, and lists of them."""
    if depth > DEEPEST:
        raise ValueError(
            f"{opened}: expected trees of at most {DEEPEST} brackets within each other,"
            " got more. Is this a file of trees?"
        )
    inside: list = []
    for place, token in tokens:
        if token == ")":
            return inside
        inside.append(_node(tokens, place, depth + 1) if token == "(" else token)
    raise ValueError(
        f"{opened}: expected a ) to this (, got the end of the file. Was it copied"
        " whole?"
    )


def _walk(
    node: list, words: list[str], tags: list[str], spans: list, place: str
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


def chained(spans: Iterable[Span]) -> list[Span]:
    """Constituents over the same words become one, the labels joined by +."""
    labels: dict[tuple[int, int], list[str]] = {}
    for label, first, last in spans:
        labels.setdefault((first, last), []).append(label)
    return [("+".join(names), *place) for place, names in labels.items()]


def unchained(spans: Iterable[Span]) -> list[Span]:
    return [(one, i, j) for label, i, j in spans for one in label.split("+")]


def text(tree: Tree) -> str:
    """The tree in one line."""
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


def f1(gold: Sequence[Tree], found: Sequence[Tree]) -> dict[str, float]:
    """Labelled precision, recall, F1, and the share of sentences without a mistake.

    As EVALB counts with the parameters of Collins: constituents are a multiset of
    labels and places, chains of unary rules one constituent for each label; TOP and
    tags are left out, punctuation takes up no place, and PRT is the same as ADVP.
    """
    right = true = guessed = exact = 0
    for one, other in zip(gold, found, strict=True):
        a, b = (_counted(spans, one.tags) for spans in (one.spans, other.spans))
        same = (a & b).total()
        right, true, guessed = right + same, true + a.total(), guessed + b.total()
        exact += a == b
    precision, recall = right / max(1, guessed), right / max(1, true)
    mean = 2 * right / max(1, true + guessed)
    return {
        "f1": mean, "precision": precision, "recall": recall, "exact": exact / len(gold)
    }  # fmt: skip


def _counted(spans: Iterable[Span], tags: Sequence[str]) -> Counter[Span]:
    place = [0]
    for tag in tags:
        place.append(place[-1] + (tag not in PUNCTUATION))
    found: Counter[Span] = Counter()
    for label, first, last in unchained(spans):
        begin, end = place[first], place[last + 1]
        if label != TOP and begin < end:
            found["ADVP" if label == "PRT" else label, begin, end] += 1
    return found


def without_learning(train: Sequence[Tree], trees: Sequence[Tree]) -> list[Tree]:
    """Right-branching trees with the labels that are most usual in training."""
    tops = Counter(tree.spans[0][0] for tree in train)
    usual = Counter(label for tree in train for label, _, _ in tree.spans)
    return right_branching(trees, tops.most_common(1)[0][0], usual.most_common(1)[0][0])


def right_branching(trees: Sequence[Tree], top: str, other: str) -> list[Tree]:
    """What costs no learning: each word begins a constituent that ends the sentence."""
    return [
        Tree(
            tree.words,
            tree.tags,
            [
                (other if first else top, first, len(tree.words) - 1)
                for first in range(max(1, len(tree.words) - 1))
            ],
        )
        for tree in trees
    ]


def _tokens(lines: Sequence[str], name: str) -> Iterator[tuple[str, str]]:
    """Brackets and words, each with the line it stands in."""
    for number, line in enumerate(lines, start=1):
        for token in re.findall(r"[()]|[^\s()]+", line):
            yield f"{name}, line {number}", token
