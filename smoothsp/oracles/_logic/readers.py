"""Readers of compiled formulas: d-DNNF files of c2d and d4, and SDDs of PySDD.

In the format of c2d, each line is a node, numbered from 0: ``L literal``, ``A count
children...`` or ``O variable count children...``. The last node is the root.

In the format of d4, lines ``a``, ``o``, ``t`` and ``f`` with a number declare an and,
an or, true and false. Other lines are edges ``parent child literals... 0``: the
literals are conjoined with the child. The first node without a parent is the root.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from smoothsp.oracles._logic.nnf import MAX_VARIABLES, NNF

Lines = list[tuple[int, list[str]]]


def read_nnf(path: str | Path) -> tuple[NNF, int]:
    """Read a file; return the formula and the number of variables."""
    try:
        # a byte-order mark, as some editors add, is no part of the first word
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"path: expected a file of c2d or d4, got {path}, which is not text"
        ) from error
    numbered_lines = enumerate(text.splitlines(), 1)
    split = [(number, line.split()) for number, line in numbered_lines]
    lines = [(number, words) for number, words in split if words and words[0] != "c"]
    if not lines:
        raise ValueError(f"path: expected a file of c2d or d4, got {path}: empty")
    nnf = NNF()
    if lines[0][1][0] == "nnf":
        declared = _read_c2d(lines, nnf, path)
    else:
        declared = _read_d4(lines, nnf, path)
    # d4 declares no number of variables
    used = max(scope.bit_length() for scope in nnf.scopes())
    return nnf, max(declared, used)


def _read_c2d(lines: Lines, nnf: NNF, path: str | Path) -> int:
    """Parse the format of c2d into ``nnf``; return the declared number of variables."""
    with _reraise_with_line(path, lines[0][0]):
        count, _, variables = (int(word) for word in lines[0][1][1:])
        if not 0 <= variables <= MAX_VARIABLES:
            raise ValueError
    nodes: dict[int, int] = {}
    for number, (kind, *words) in lines[1:]:
        with _reraise_with_line(path, number):
            numbers = [int(word) for word in words]
            if kind == "L":
                (literal,) = numbers
                node = _add_literal(nnf, literal)
            else:
                # an O node states its decision variable first, which is not needed
                join = {"A": nnf.conjoin, "O": nnf.disjoin}[kind]
                size, *children = numbers if kind == "A" else numbers[1:]
                if size != len(children):
                    raise ValueError
                node = join([nodes[x] for x in children])
            nodes[len(nodes)] = node
    if not 0 < count == len(nodes):
        raise ValueError(
            f"path: expected {count} nodes, the number in the first line, got {path} "
            f"with {len(nodes)}; the file may be incomplete"
        )
    nnf.root = nodes[count - 1]
    return variables


def _read_d4(lines: Lines, nnf: NNF, path: str | Path) -> int:
    """Parse the format of d4 into ``nnf``; return 0, as none are declared."""
    kinds: dict[int, str] = {}
    edges_of_node: dict[int, list[tuple[int, list[int]]]] = {}
    for number, (kind, *words) in lines:
        with _reraise_with_line(path, number):
            if kind in ("a", "o", "t", "f"):
                if int(words[0]) in kinds:
                    raise ValueError
                kinds[int(words[0])] = kind
                edges_of_node[int(words[0])] = []
            else:
                parent, child, *literals, zero = (int(x) for x in (kind, *words))
                if zero or parent not in kinds or child not in kinds:
                    raise ValueError
                literal_nodes = [_add_literal(nnf, x) for x in literals]
                edges_of_node[parent].append((child, literal_nodes))
    children = {child for edges in edges_of_node.values() for child, _ in edges}
    nodes: dict[int, int] = {}
    roots = [x for x in kinds if x not in children]
    # depth-first with an explicit stack; a child on the current path closes a cycle
    stack, on_path = roots[:1], set(roots[:1])
    while stack:
        top = stack[-1]
        missing = [x for x, _ in edges_of_node[top] if x not in nodes]
        if on_path & set(missing):
            break
        if missing:
            stack.append(missing[0])
            on_path.add(missing[0])
            continue
        branches = [
            nnf.conjoin([nodes[x], *literal_nodes])
            for x, literal_nodes in edges_of_node[top]
        ]
        is_conjunction = kinds[top] in ("a", "t")
        nodes[top] = nnf.conjoin(branches) if is_conjunction else nnf.disjoin(branches)
        on_path.discard(stack.pop())
    if stack or not roots:
        raise ValueError(f"path: expected a file of c2d or d4, got {path}: a cycle")
    nnf.root = nodes[roots[0]]
    return 0


def _add_literal(nnf: NNF, literal: int) -> int:
    if not 0 < abs(literal) <= MAX_VARIABLES:
        raise ValueError
    return nnf.literal(literal)


@contextmanager
def _reraise_with_line(path: str | Path, number: int) -> Iterator[None]:
    """Reraise parse errors as a ValueError that names the line."""
    try:
        yield
    except (ValueError, IndexError, KeyError) as error:
        raise ValueError(
            f"path: expected a file of c2d or d4, got {path} whose line {number} "
            "cannot be read"
        ) from error


def read_sdd(node: Any) -> tuple[NNF, int]:
    """Convert a ``pysdd.sdd.SddNode``; return it and its manager's variable count.

    A decision node is the disjunction of its elements ``prime and sub``.
    """
    if not hasattr(node, "is_decision"):
        raise TypeError(
            f"node: expected a pysdd.sdd.SddNode, got {type(node).__name__}"
        )
    nnf = NNF()
    nodes: dict[int, int] = {}
    # explicit stack: deep SDDs would exceed Python's recursion limit
    stack = [node]
    while stack:
        top = stack[-1]
        if top.id in nodes:
            stack.pop()
        elif top.is_decision():
            elements = top.elements()
            missing = [x for pair in elements for x in pair if x.id not in nodes]
            if missing:
                stack += missing
                continue
            branches = [nnf.conjoin(nodes[x.id] for x in pair) for pair in elements]
            nodes[top.id] = nnf.disjoin(branches)
        elif top.is_literal():
            nodes[top.id] = nnf.literal(top.literal)
        else:
            nodes[top.id] = nnf.TRUE if top.is_true() else nnf.FALSE
    nnf.root = nodes[node.id]
    return nnf, int(node.manager.var_count())
