"""Spanning trees of graphs of each row: all choices of edges, less cycles."""

import torch

from smoothsp.oracles import UndirectedSpanningTree
from tests.truth.circuits.cases import Case, strings

# two edges between the same nodes, in either direction, and none at all in the middle
GRAPHS = (
    [[0, 1], [1, 2], [2, 0], [2, 3], [3, 2], [1, 3]],
    [[1, 0], [-1, -1], [0, 1]],
    [],
    [[0, 2], [2, 1], [1, 3], [3, 0], [0, 1]],
)


def joined(edges, nodes):
    """Nodes that a path from node 0 leads to."""
    found = {0}
    for _ in range(nodes):
        found |= {v for e in edges for v in e if found & set(e)}
    return found


def trees(graph):
    nodes = 1 + max((v for edge in graph for v in edge), default=0)
    found = []
    for y in strings(2, len(graph)):
        edges = [e for e, chosen in zip(graph, y, strict=True) if chosen]
        real = all(e[0] >= 0 for e in edges) and len(edges) == nodes - 1
        if real and len(joined(edges, nodes)) == nodes:
            none = [e[0] < 0 for e in graph]
            pairs = zip(y, none, strict=True)
            found.append([-1 if lacks else chosen for chosen, lacks in pairs])
    return found


def case(generator, graphs=GRAPHS):
    E = max(map(len, graphs))
    index = torch.tensor([[*g, *[[-1, -1]] * (E - len(g))] for g in graphs])
    return Case(
        UndirectedSpanningTree,
        {"edges": torch.zeros(len(graphs), E).double()},
        [[torch.tensor([*y, *[-1] * (E - len(g))]) for y in trees(g)] for g in graphs],
        lambda b, y: [("edges", (b, *e)) for e in (y == 1).nonzero().tolist()],
        {"index": index},
        wrong=lambda y, gold: ((y == 1) & (gold != 1)).sum(),
    )
