"""Time structures that share variables next to AD3 and an integer program.

One command runs all races on one thread, and writes a CSV and a table:

    pip install -e ".[bench]"
    python benchmarks/factor_graphs.py
    python benchmarks/factor_graphs.py --effort    # values, rounds, decodes

HiGHS returns the best output of each row, AD3 and smoothsp the maximum of the same
relaxation, smoothsp also an output. The second command compares their values. The C++
files of AD3's package must be made anew with Cython 0.29 for Python 3.10 and later. Its
factor for trees crashes, so the parser has no race with it.
"""

import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

import circuits
from dynamic_programmes.races import Call, Race, drawn, values
from smoothsp.oracles import (
    Chain,
    FactorGraph,
    Formula,
    IntegerProgram,
    Matching,
    SpanningTree,
    SparseMAP,
    Subset,
)

T, S = 20, 5  # words and tags
WORDS = 10  # of a parsed sentence
SIDE = 8  # of a matching
CLAUSES = [[-(k + 1), -((k + 3) % SIDE + 1)] for k in range(SIDE)]
FORMULA = Formula.from_clauses(CLAUSES)
ORDER = torch.randperm(T, generator=torch.Generator().manual_seed(7))
Question = Callable[[int, torch.dtype], Tensor]


# Graphs ---------------------------------------------------------------------------


def emissions(B: int, seed: int = 0) -> Tensor:
    return drawn(B, T, S, seed=seed)


def moves(seed: int = 1) -> Tensor:
    return drawn(S, S, seed=seed) / 2


def cells(of: Tensor, states: Tensor) -> Tensor:
    """Cells (position, state) of all states of positions."""
    return torch.cartesian_prod(of, states)


def few_names(B: int, dtype: torch.dtype) -> FactorGraph:
    """At most three words have a tag that is not 0."""
    tags = Chain(emissions(B).to(dtype), moves().to(dtype))
    few = Subset(torch.zeros(B, T * (S - 1), dtype=dtype), at_most=3)
    names = cells(torch.arange(T), torch.arange(1, S))
    return FactorGraph(
        {"tags": tags, "few": few}, [("tags", names, "few", torch.arange(len(names)))]
    )


def two_taggers(B: int, dtype: torch.dtype) -> FactorGraph:
    """A chain in the order of the text, and one in another order."""
    first = Chain(emissions(B).to(dtype), moves().to(dtype))
    second = Chain(emissions(B, 2).to(dtype), moves(3).to(dtype))
    states = torch.arange(S)
    places = cells(ORDER, states), cells(torch.arange(T), states)
    return FactorGraph(
        {"first": first, "second": second}, [("first", places[0], "second", places[1])]
    )


def parser_with_tagger(B: int, dtype: torch.dtype) -> FactorGraph:
    """A word depends on the root if and only if its tag is 0."""
    arcs = SpanningTree(drawn(B, WORDS + 1, WORDS + 1).to(dtype))
    tags = Chain(drawn(B, WORDS, S, seed=2).to(dtype), moves().to(dtype))
    at, zero = torch.arange(WORDS), torch.zeros(WORDS, dtype=torch.int64)
    shared = (
        "arcs",
        torch.stack([zero, at + 1], 1),
        "tags",
        torch.stack([at, zero], 1),
    )
    return FactorGraph({"arcs": arcs, "tags": tags}, [shared])


def matching_with_formula(B: int, dtype: torch.dtype) -> FactorGraph:
    """Pairs on the diagonal of which some exclude each other."""
    pairs = Matching((drawn(B, SIDE, SIDE) + 2 * torch.eye(SIDE)).to(dtype))
    formula = FORMULA(torch.zeros(B, SIDE, 2, dtype=dtype))
    at = torch.arange(SIDE)
    shared = (
        "pairs",
        torch.stack([at, at], 1),
        "formula",
        torch.stack([at, 1 + 0 * at], 1),
    )
    return FactorGraph({"pairs": pairs, "formula": formula}, [shared])


# Integer programs -----------------------------------------------------------------


class Rows:
    """Variables and linear constraints of a program, one after another."""

    def __init__(self) -> None:
        self.scores: list[Tensor] = []
        self.size = 0
        self.rows: list[tuple[list[int], list[float], float, float]] = []

    def variables(self, scores: Tensor) -> np.ndarray:
        """Numbers of new variables with scores ``(batch, ...)``."""
        self.scores.append(scores.double().flatten(1))
        first, self.size = self.size, self.size + scores[0].numel()
        return np.arange(first, self.size).reshape(scores.shape[1:])

    def add(
        self, plus: object, minus: object = (), low: float = 0, high: float = 0
    ) -> None:
        on, off = np.ravel(plus).tolist(), np.ravel(minus).tolist()
        signs = [1.0] * len(on) + [-1.0] * len(off)
        self.rows.append(([*map(int, on), *map(int, off)], signs, low, high))

    def chain(self, nodes: Tensor, steps: Tensor) -> np.ndarray:
        """A chain by the flow through its edges."""
        B, n, k = nodes.shape
        node = self.variables(nodes)
        edge = self.variables(steps.expand(B, n - 1, k, k))
        self.add(node[0], low=1, high=1)
        for t, s in product(range(n - 1), range(k)):
            self.add(edge[t, s], node[t, s])
            self.add(edge[t, :, s], node[t + 1, s])
        return node

    def solve(self) -> Tensor:
        A = torch.zeros(len(self.rows), self.size, dtype=torch.float64)
        for row, (at, signs, *_) in enumerate(self.rows):
            A[row, at] = torch.tensor(signs, dtype=torch.float64)
        low, high = (torch.tensor([r[i] for r in self.rows]).double() for i in (2, 3))
        return IntegerProgram(torch.cat(self.scores, 1), (A, low, high)).decode()[0]


def program_few_names(B: int, dtype: torch.dtype) -> Tensor:
    rows = Rows()
    node = rows.chain(emissions(B), moves())
    rows.add(node[:, 1:], low=0, high=3)
    return rows.solve()


def program_two_taggers(B: int, dtype: torch.dtype) -> Tensor:
    rows = Rows()
    first = rows.chain(emissions(B), moves())
    second = rows.chain(emissions(B, 2), moves(3))
    for one, other in zip(first[ORDER], second, strict=True):
        for a, b in zip(one, other, strict=True):
            rows.add([a], [b])
    return rows.solve()


def program_parser_with_tagger(B: int, dtype: torch.dtype) -> Tensor:
    rows = Rows()
    n = WORDS + 1
    arc = rows.variables(drawn(B, n, n))
    tag = rows.chain(drawn(B, WORDS, S, seed=2), moves())
    # word v is reached by a flow of its own, over arcs of the tree
    flow = rows.variables(torch.zeros(B, WORDS, n, n))
    for d in range(n):
        heads = [h for h in range(n) if h != d]
        rows.add(arc[heads, d], low=min(d, 1), high=min(d, 1))
        rows.add([arc[d, d]])
    for v, h, d in product(range(WORDS), range(n), range(n)):
        rows.add([arc[h, d]], [flow[v, h, d]], low=0, high=1)
    for v, node in product(range(WORDS), range(n)):
        need = float(node == v + 1) - float(node == 0)
        rows.add(flow[v, :, node], flow[v, node], low=need, high=need)
    for d in range(WORDS):
        rows.add([arc[0, d + 1]], [tag[d, 0]])
    return rows.solve()


def program_matching_with_formula(B: int, dtype: torch.dtype) -> Tensor:
    rows = Rows()
    pair = rows.variables(drawn(B, SIDE, SIDE) + 2 * torch.eye(SIDE))
    for line in (*pair, *pair.T):
        rows.add(line, low=1, high=1)
    for clause in CLAUSES:
        at = [abs(literal) - 1 for literal in clause]
        rows.add(pair[at, at], low=0, high=1)
    return rows.solve()


# AD3 ------------------------------------------------------------------------------


def sequence(graph: Any, variables: list[Any], steps: Tensor) -> None:
    """AD3's chain over variables, position by position."""
    from ad3.extensions import PFactorSequence

    n, k = len(variables) // S, S
    factor = PFactorSequence()
    graph.declare_factor(factor, variables, owned_by_graph=True)
    factor.initialize([k] * n)
    inner = np.tile(steps.double().numpy().ravel(), n - 1)
    factor.set_additional_log_potentials([*np.zeros(k), *inner, *np.zeros(k)])


def nodes_of(graph: Any, scores: Tensor) -> list[Any]:
    found = []
    for score in scores.flatten().tolist():
        variable = graph.create_binary_variable()
        variable.set_log_potential(score)
        found.append(variable)
    return found


def ad3_rows(build: Callable[[Any, int], None], B: int) -> Tensor:
    from ad3.factor_graph import PFactorGraph

    found = []
    for row in range(B):
        graph = PFactorGraph()
        build(graph, row)
        found.append(graph.solve(max_iter=1000, tol=1e-6)[0])
    return torch.tensor(found, dtype=torch.float64)


def ad3_few_names(B: int, dtype: torch.dtype) -> Tensor:
    scores = emissions(B)

    def build(graph: Any, row: int) -> None:
        variables = nodes_of(graph, scores[row])
        sequence(graph, variables, moves())
        names = [x for at, x in enumerate(variables) if at % S]
        graph.create_factor_budget(names, 3)

    return ad3_rows(build, B)


def ad3_two_taggers(B: int, dtype: torch.dtype) -> Tensor:
    scores = emissions(B)
    scores[:, ORDER] += emissions(B, 2)

    def build(graph: Any, row: int) -> None:
        variables = nodes_of(graph, scores[row])
        sequence(graph, variables, moves())
        other = [variables[S * t + s] for t in ORDER.tolist() for s in range(S)]
        sequence(graph, other, moves(3))

    return ad3_rows(build, B)


def ad3_matching_with_formula(B: int, dtype: torch.dtype) -> Tensor:
    scores = drawn(B, SIDE, SIDE) + 2 * torch.eye(SIDE)

    def build(graph: Any, row: int) -> None:
        pair = np.array(nodes_of(graph, scores[row]), object).reshape(SIDE, SIDE)
        for line in (*pair, *pair.T):
            graph.create_factor_logic("XOR", list(line))
        for clause in CLAUSES:
            at = [abs(literal) - 1 for literal in clause]
            graph.create_factor_logic("ATMOSTONE", list(pair[at, at]))

    return ad3_rows(build, B)


# Races ----------------------------------------------------------------------------

INSTANCES: dict[str, tuple[Callable[..., FactorGraph], dict[str, Question]]] = {
    f"tagger with at most 3 names, {T} x {S}": (
        few_names,
        {"HiGHS": program_few_names, "ad3": ad3_few_names},
    ),
    f"two taggers that agree, {T} x {S}": (
        two_taggers,
        {"HiGHS": program_two_taggers, "ad3": ad3_two_taggers},
    ),
    f"parser with tagger, {WORDS} words": (
        parser_with_tagger,
        {"HiGHS": program_parser_with_tagger},
    ),
    f"matching with formula, {SIDE} x {SIDE}": (
        matching_with_formula,
        {"HiGHS": program_matching_with_formula, "ad3": ad3_matching_with_formula},
    ),
}


def races(B: int) -> list[Race]:
    found = []
    for name, (graph, questions) in INSTANCES.items():

        def best(B: int, dtype: torch.dtype, graph: Any = graph) -> Tensor:
            return graph(B, dtype).approximate()[0]

        def mixed(B: int, dtype: torch.dtype, graph: Any = graph) -> Tensor:
            return SparseMAP(graph(B, dtype)).maximum()

        def call(question: Question) -> Callable[[torch.dtype], Call]:
            return lambda dtype: values(partial(question, B, dtype))

        title = f"{name}, rows: {B}"
        peers = {name: call(question) for name, question in questions.items()}
        found.append(Race(f"{title}: best", 10, call(best), peers, False))
        one = {"smoothsp, the best": call(best)}
        found.append(Race(f"{title}: SparseMAP", 0.1, call(mixed), one, False))
    return found


def all_races() -> list[Race]:
    return [*races(1), *races(32)]


def check(name: str, B: int) -> FactorGraph:
    """The graph of an instance, after its values agree with those of peers."""
    build, questions = INSTANCES[name]
    graph = build(B, torch.float64)
    value, _, exact, bound = graph.approximate()
    best = questions["HiGHS"](B, torch.float64)
    assert ((value <= best + 1e-6) & (best <= bound + 1e-6)).all(), name
    assert ((best - value)[exact] < 1e-6).all(), name
    if "ad3" in questions and find_spec("ad3"):
        relaxed = questions["ad3"](B, torch.float64)
        assert ((relaxed - bound).abs() < 1e-3).all(), name
    return graph


def effort() -> None:
    """Check values, and print rounds, decodes and rows with a proof."""
    print("| graph | rounds, mean | most | decodes | rows with a proof |")
    print("| --- | --- | --- | --- | --- |")
    for name in INSTANCES:
        graph = check(name, 32)
        found = graph._run_consensus(0.0)
        rounds, decodes = found.rounds.double(), found.decodes.double()
        each = decodes.mean() / len(graph.structures)
        print(
            f"| {name} | {rounds.mean():.1f} | {int(rounds.max())} | {each:.1f} |"
            f" {int(found.exact.sum())} of 32 |"
        )


if __name__ == "__main__":
    if "--effort" in sys.argv:
        effort()
    else:
        given = all_races, __file__, "factor_graphs", __doc__ or ""
        circuits.main(*given, counts=(1,))
