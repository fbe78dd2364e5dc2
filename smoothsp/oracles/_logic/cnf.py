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
    clause_sets = (frozenset(clause) for clause in clauses)
    cnf = frozenset(c for c in clause_sets if not any(-x in c for x in c))
    best, max_nodes = None, most_nodes
    for decide in (_jeroslow_wang_variable, _lowest_variable):
        compiled = _compile_cnf(cnf, decide, max_nodes)
        if compiled is not None:
            best, max_nodes = compiled, len(compiled.nodes) - 1
    if best is None:
        raise ValueError(
            f"clauses: expected a formula of at most {most_nodes} nodes, got more; "
            "give a larger most_nodes, or compile it with d4 or c2d for from_nnf"
        )
    return best


def _compile_cnf(
    cnf: Clauses, decide: Callable[[Clauses], int], max_nodes: int
) -> NNF | None:
    """The sentence that an order of decisions gives, if it is no larger than that."""
    nnf = NNF()
    cache: dict[Clauses, int] = {}
    # A stack of our own: Python's would end at a thousand decisions.
    searches, pending = [_dpll_steps(cnf, nnf, decide)], [cnf]
    node: Any = None
    while searches:
        if len(nnf.nodes) > max_nodes:
            return None
        try:
            component = searches[-1].send(node)
        except StopIteration as done:
            searches.pop()
            node = cache[pending.pop()] = done.value
            continue
        node = cache.get(component)
        if node is None:
            searches.append(_dpll_steps(component, nnf, decide))
            pending.append(component)
    nnf.root = node
    return nnf


def _dpll_steps(clauses: Clauses, nnf: NNF, decide: Callable[[Clauses], int]) -> Search:
    forced, remaining = _unit_propagate(clauses)
    if frozenset() in remaining:
        return nnf.FALSE
    parts = [nnf.literal(variable) for variable in sorted(forced, key=abs)]
    for component in _connected_components(remaining):
        if component != clauses:
            parts.append((yield component))
        else:
            variable = decide(component)
            branches = []
            for literal in (variable, -variable):
                conditioned = yield _condition(component, literal)
                branches.append(nnf.conjoin([nnf.literal(literal), conditioned]))
            parts.append(nnf.disjoin(branches))
        if parts[-1] == nnf.FALSE:
            break
    return nnf.conjoin(parts)


def _condition(clauses: Clauses, literal: int) -> Clauses:
    """Clauses that remain if a literal holds."""
    return frozenset(
        clause - {-literal} if -literal in clause else clause
        for clause in clauses
        if literal not in clause
    )


def _unit_propagate(clauses: Clauses) -> tuple[set[int], Clauses]:
    """Literals that clauses of one force, and what is left."""
    forced: set[int] = set()
    while units := {x for clause in clauses if len(clause) == 1 for x in clause}:
        for literal in sorted(units, key=abs):
            clauses = _condition(clauses, literal)
        forced |= units
    return forced, clauses


def _connected_components(clauses: Clauses) -> list[Clauses]:
    """Clauses that share variables, directly or through others, together."""
    parent: dict[int, int] = {}

    def find_root(v: int) -> int:
        while parent.setdefault(v, v) != v:
            parent[v] = v = parent[parent[v]]
        return v

    for clause in clauses:
        first, *others = (abs(x) for x in clause)
        for v in others:
            parent[find_root(v)] = find_root(first)
    members = defaultdict(list)
    for clause in clauses:
        members[find_root(abs(next(iter(clause))))].append(clause)
    return [frozenset(members[v]) for v in sorted(members)]


def _jeroslow_wang_variable(clauses: Clauses) -> int:
    """The variable in the most and the shortest clauses."""
    weight: dict[int, float] = defaultdict(float)
    for clause in clauses:
        for x in clause:
            weight[abs(x)] += 2.0 ** -len(clause)
    return max(weight, key=lambda v: (weight[v], -v))


def _lowest_variable(clauses: Clauses) -> int:
    """The variable with the lowest number."""
    return min(abs(x) for clause in clauses for x in clause)
