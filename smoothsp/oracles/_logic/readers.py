"""Sentences that others compiled: files of c2d and d4, and SDDs of PySDD.

c2d numbers its lines from 0: ``L`` literal, ``A`` count and children, ``O`` variable,
count and children; the last is the root. d4 declares nodes by ``a``, ``o``, ``t`` and
``f`` and a number, and a line of numbers is an edge: from, to, literals that hold along
it, 0; the first node without a parent is the root.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from smoothsp.oracles._logic.nnf import MOST_VARIABLES, NNF

Lines = list[tuple[int, list[str]]]


def read_nnf(path: str | Path) -> tuple[NNF, int]:
    """The sentence of a file, and how many variables it has."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"path: expected a file of c2d or d4, got {path}, which is no text"
        ) from error
    every = enumerate(text.splitlines(), 1)
    split = [(number, line.split()) for number, line in every]
    lines = [(number, words) for number, words in split if words and words[0] != "c"]
    if not lines:
        raise ValueError(f"path: expected a file of c2d or d4, got {path}: empty")
    sentence = NNF()
    if lines[0][1][0] == "nnf":
        said = _read_c2d(lines, sentence, path)
    else:
        said = _read_d4(lines, sentence, path)
    used = max(scope.bit_length() for scope in sentence.scopes())
    return sentence, max(said, used)


def _read_c2d(lines: Lines, sentence: NNF, path: str | Path) -> int:
    with _blamed(path, lines[0][0]):
        count, _, variables = (int(word) for word in lines[0][1][1:])
        if not 0 <= variables <= MOST_VARIABLES:
            raise ValueError
    nodes: dict[int, int] = {}
    for number, (kind, *words) in lines[1:]:
        with _blamed(path, number):
            numbers = [int(word) for word in words]
            if kind == "L":
                (literal,) = numbers
                found = _literal(sentence, literal)
            else:
                join = {"A": sentence.conjoin, "O": sentence.disjoin}[kind]
                size, *children = numbers if kind == "A" else numbers[1:]
                if size != len(children):
                    raise ValueError
                found = join([nodes[x] for x in children])
            nodes[len(nodes)] = found
    if not 0 < count == len(nodes):
        raise ValueError(
            f"path: expected the {count} nodes that its first line says, got {path} "
            f"with {len(nodes)}; was it copied whole?"
        )
    sentence.root = nodes[count - 1]
    return variables


def _read_d4(lines: Lines, sentence: NNF, path: str | Path) -> int:
    kinds: dict[int, str] = {}
    parts: dict[int, list[tuple[int, list[int]]]] = {}
    for number, (kind, *words) in lines:
        with _blamed(path, number):
            if kind in ("a", "o", "t", "f"):
                if int(words[0]) in kinds:
                    raise ValueError
                kinds[int(words[0])] = kind
                parts[int(words[0])] = []
            else:
                above, below, *literals, zero = (int(x) for x in (kind, *words))
                if zero or above not in kinds or below not in kinds:
                    raise ValueError
                given = [_literal(sentence, x) for x in literals]
                parts[above].append((below, given))
    children = {below for edges in parts.values() for below, _ in edges}
    nodes: dict[int, int] = {}
    roots = [x for x in kinds if x not in children]
    waiting, open_ones = roots[:1], set(roots[:1])
    while waiting:
        top = waiting[-1]
        missing = [x for x, _ in parts[top] if x not in nodes]
        if open_ones & set(missing):
            break
        if missing:
            waiting.append(missing[0])
            open_ones.add(missing[0])
            continue
        ways = [sentence.conjoin([nodes[x], *given]) for x, given in parts[top]]
        every = kinds[top] in ("a", "t")
        nodes[top] = sentence.conjoin(ways) if every else sentence.disjoin(ways)
        open_ones.discard(waiting.pop())
    if waiting or not roots:
        raise ValueError(f"path: expected a file of c2d or d4, got {path}: a cycle")
    sentence.root = nodes[roots[0]]
    return 0


def _literal(sentence: NNF, literal: int) -> int:
    if not 0 < abs(literal) <= MOST_VARIABLES:
        raise ValueError
    return sentence.literal(literal)


@contextmanager
def _blamed(path: str | Path, number: int) -> Iterator[None]:
    """Turn parse errors into errors that name the line."""
    try:
        yield
    except (ValueError, IndexError, KeyError) as error:
        raise ValueError(
            f"path: expected a file of c2d or d4, got {path} whose line {number} "
            "cannot be read"
        ) from error


def read_sdd(node: Any) -> tuple[NNF, int]:
    """The sentence of a ``pysdd.sdd.SddNode``, and how many variables its manager has.

    A decision is the disjunction of its elements, prime and sub.
    """
    if not hasattr(node, "is_decision"):
        raise TypeError(
            f"node: expected a pysdd.sdd.SddNode, got {type(node).__name__}"
        )
    sentence = NNF()
    known: dict[int, int] = {}
    waiting = [node]
    while waiting:
        top = waiting[-1]
        if top.id in known:
            waiting.pop()
        elif top.is_decision():
            elements = top.elements()
            missing = [x for pair in elements for x in pair if x.id not in known]
            if missing:
                waiting += missing
                continue
            ways = [sentence.conjoin(known[x.id] for x in pair) for pair in elements]
            known[top.id] = sentence.disjoin(ways)
        elif top.is_literal():
            known[top.id] = sentence.literal(top.literal)
        else:
            known[top.id] = sentence.TRUE if top.is_true() else sentence.FALSE
    sentence.root = known[node.id]
    return sentence, int(node.manager.var_count())
