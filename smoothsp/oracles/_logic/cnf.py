"""Compilation of clauses to deterministic decomposable circuits.

Exhaustive search that remembers: literals that clauses force are taken, what shares no
variable is treated apart, and of the rest a variable is decided both ways. What comes
twice is compiled once.

Source: Darwiche, "New Advances in Compiling CNF into Decomposable Negation Normal Form"
(2004), section 2; Huang and Darwiche, "DPLL with a Trace" (2005).
"""

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable
from typing import Any

from smoothsp.oracles._logic.nnf import NNF

Clauses = frozenset[frozenset[int]]
# What a search gives, and what it waits for: the node of other clauses.
Search = Generator[Clauses, int, int]


def compile_clauses(clauses: Iterable[Iterable[int]], most_nodes: int) -> NNF:
    """A sentence with the same models; each variable of a clause counted from 1.

    The smaller one of two orders of decisions: what is in most clauses first, which
    suits clauses without order, or variables as they are numbered, which often suits
    those that somebody wrote.
    """
    given = (frozenset(clause) for clause in clauses)
    first = frozenset(c for c in given if not any(-x in c for x in c))
    best, most = None, most_nodes
    for decide in (_heaviest, _foremost):
        found = _compiled(first, decide, most)
        if found is not None:
            best, most = found, len(found.nodes) - 1
    if best is None:
        raise ValueError(
            f"clauses: expected a formula of at most {most_nodes} nodes, got more; "
            "give a larger most_nodes, or compile it with d4 or c2d for from_nnf"
        )
    return best


def _compiled(
    first: Clauses, decide: Callable[[Clauses], int], most_nodes: int
) -> NNF | None:
    """The sentence that an order of decisions gives, if it is no larger than that."""
    sentence = NNF()
    known: dict[Clauses, int] = {}
    # A stack of our own: Python's would end at a thousand decisions.
    searches, waits = [_search(first, sentence, decide)], [first]
    node: Any = None
    while searches:
        if len(sentence.nodes) > most_nodes:
            return None
        try:
            wanted = searches[-1].send(node)
        except StopIteration as done:
            searches.pop()
            node = known[waits.pop()] = done.value
            continue
        node = known.get(wanted)
        if node is None:
            searches.append(_search(wanted, sentence, decide))
            waits.append(wanted)
    sentence.root = node
    return sentence


def _search(
    clauses: Clauses, sentence: NNF, decide: Callable[[Clauses], int]
) -> Search:
    forced, rest = _propagate(clauses)
    if frozenset() in rest:
        return sentence.FALSE
    parts = [sentence.literal(x) for x in sorted(forced, key=abs)]
    for component in _components(rest):
        if component != clauses:
            parts.append((yield component))
        else:
            x = decide(component)
            ways = []
            for literal in (x, -x):
                below = yield _given(component, literal)
                ways.append(sentence.conjoin([sentence.literal(literal), below]))
            parts.append(sentence.disjoin(ways))
        if parts[-1] == sentence.FALSE:
            break
    return sentence.conjoin(parts)


def _given(clauses: Clauses, literal: int) -> Clauses:
    """Clauses that remain if a literal holds."""
    return frozenset(
        clause - {-literal} if -literal in clause else clause
        for clause in clauses
        if literal not in clause
    )


def _propagate(clauses: Clauses) -> tuple[set[int], Clauses]:
    """Literals that clauses of one force, and what is left."""
    forced: set[int] = set()
    while units := {x for clause in clauses if len(clause) == 1 for x in clause}:
        for literal in sorted(units, key=abs):
            clauses = _given(clauses, literal)
        forced |= units
    return forced, clauses


def _components(clauses: Clauses) -> list[Clauses]:
    """Clauses that share variables, directly or through others, together."""
    above: dict[int, int] = {}

    def top(v: int) -> int:
        while above.setdefault(v, v) != v:
            above[v] = v = above[above[v]]
        return v

    for clause in clauses:
        first, *others = (abs(x) for x in clause)
        for v in others:
            above[top(v)] = top(first)
    found = defaultdict(list)
    for clause in clauses:
        found[top(abs(next(iter(clause))))].append(clause)
    return [frozenset(found[v]) for v in sorted(found)]


def _heaviest(clauses: Clauses) -> int:
    """The variable in the most and the shortest clauses."""
    weight: dict[int, float] = defaultdict(float)
    for clause in clauses:
        for x in clause:
            weight[abs(x)] += 2.0 ** -len(clause)
    return max(weight, key=lambda v: (weight[v], -v))


def _foremost(clauses: Clauses) -> int:
    """The variable with the lowest number."""
    return min(abs(x) for clause in clauses for x in clause)
