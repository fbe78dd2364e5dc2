"""Lattices: all sets of arcs, less those that are no path from source to sink."""

import torch

from smoothsp.oracles import Lattice
from tests.truth.circuits.cases import Case, strings

# two arcs between the same nodes, one that leads nowhere, and one from nowhere
GRAPH = [[0, 1], [0, 2], [1, 2], [1, 2], [1, 4], [0, 3], [2, 5], [1, 5], [4, 5]]
GRAPH_ENTERED = [*GRAPH[:5], [3, 5], *GRAPH[6:]]


def paths(arcs):
    """All choices of arcs of which each begins where another ends, in order."""
    last = max((end for _, end in arcs), default=0)
    found = []
    for y in strings(2, len(arcs)):
        at = 0
        for start, end in sorted(
            arc for arc, chosen in zip(arcs, y, strict=True) if chosen
        ):
            if start != at:
                break
            at = end
        else:
            if at == last:
                found.append(y)
    return found


def case(generator, graphs=(GRAPH,) * 2):
    E = max(map(len, graphs))
    one = all(graph == graphs[0] for graph in graphs)
    index = torch.tensor([[*g, *[[-1, -1]] * (E - len(g))] for g in graphs])
    return Case(
        one_graph if one else Lattice,
        {"arcs": torch.zeros(len(graphs), E).double()},
        [[torch.tensor([*y, *[-1] * (E - len(g))]) for y in paths(g)] for g in graphs],
        lambda b, y: [("arcs", (b, *e)) for e in (y == 1).nonzero().tolist()],
        {} if one else {"index": index},
        wrong=lambda y, gold: ((y == 1) & (gold != 1)).sum(),
    )


def one_graph(arcs):
    return Lattice(arcs, torch.tensor(GRAPH))
