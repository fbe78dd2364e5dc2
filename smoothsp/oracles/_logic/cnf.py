"""Compilation of clauses (CNF) to d-DNNF by exhaustive DPLL with component caching.

Unit propagation sets forced literals, components that share no variable are compiled
separately, and otherwise the search branches on a variable. A cache returns the node of
a component that was compiled before.

Source: Darwiche, "New Advances in Compiling CNF into Decomposable Negation Normal Form"
(2004), section 2; Huang and Darwiche, "DPLL with a Trace" (2005).
"""

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable
from typing import Any

from smoothsp.oracles._logic.nnf import NNF

Clauses = frozenset[frozenset[int]]
# Yields clauses to compile, receives their node, and returns the node of all clauses.
Search = Generator[Clauses, int, int]


def compile_clauses(clauses: Iterable[Iterable[int]], most_nodes: int) -> NNF:
    """Compile clauses of literals (1 + v or -(1 + v)) to an equivalent d-DNNF formula.

    Return the smaller result of two branching orders: the Jeroslow-Wang heuristic, for
    unordered clauses, and the order of the numbers, for hand-written ones.
    """
    # tautologies are dropped
    clause_sets = (frozenset(clause) for clause in clauses)
    cnf = frozenset(c for c in clause_sets if not any(-x in c for x in c))
    best, max_nodes = None, most_nodes
    for decide in (_jeroslow_wang_variable, _lowest_variable):
        compiled = _compile_cnf(cnf, decide, max_nodes)
        if compiled is not None:
            # the second order is abandoned unless it is smaller
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
    """Formula for one branching order; None if it has more than ``max_nodes`` nodes."""
    nnf = NNF()
    cache: dict[Clauses, int] = {}
    # explicit stack of generators: recursion would exceed Python's limit of 1000
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
    """Compile clauses; yield the components and branches that must be compiled first.

    A branch on v is ``(v and clauses | v) or (not v and clauses | not v)``, which is
    deterministic.
    """
    forced, remaining = _unit_propagate(clauses)
    if frozenset() in remaining:
        return nnf.FALSE
    parts = [nnf.literal(variable) for variable in sorted(forced, key=abs)]
    for component in _connected_components(remaining):
        # the cache is checked for a proper component before it is branched on
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
    """Clauses that remain if ``literal`` is true: satisfied ones are dropped."""
    return frozenset(
        clause - {-literal} if -literal in clause else clause
        for clause in clauses
        if literal not in clause
    )


def _unit_propagate(clauses: Clauses) -> tuple[set[int], Clauses]:
    """Literals forced by unit clauses, and the remaining clauses.

    A contradiction leaves the empty clause.
    """
    forced: set[int] = set()
    while units := {x for clause in clauses if len(clause) == 1 for x in clause}:
        for literal in sorted(units, key=abs):
            clauses = _condition(clauses, literal)
        forced |= units
    return forced, clauses


def _connected_components(clauses: Clauses) -> list[Clauses]:
    """Connected components of the clauses; an edge is a shared variable."""
    parent: dict[int, int] = {}

    def find_root(v: int) -> int:
        while parent.setdefault(v, v) != v:
            # path halving
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
    """Variable with the largest sum of ``2^-length`` over its clauses.

    Source: Jeroslow and Wang, "Solving Propositional Satisfiability Problems" (1990).
    """
    weight: dict[int, float] = defaultdict(float)
    for clause in clauses:
        for x in clause:
            weight[abs(x)] += 2.0 ** -len(clause)
    # ties go to the lowest number, so the result does not depend on the set's order
    return max(weight, key=lambda v: (weight[v], -v))


def _lowest_variable(clauses: Clauses) -> int:
    """Variable with the lowest number."""
    return min(abs(x) for clause in clauses for x in clause)
