"""All states of the nodes of a graph with cycles, and of a node without edges."""

import torch

from smoothsp.oracles import LoopyGraph
from tests.truth.circuits.cases import Case, strings

INDEX = torch.tensor([[0, 1], [2, 1], [3, 2], [3, 0], [1, 3], [1, 0]])


def one_graph(nodes, edges):
    return LoopyGraph(nodes, edges, INDEX)


def case(generator):
    B, V, S, E = 2, 5, 2, len(INDEX)

    def parts(b, y):
        states = y.tolist()
        pairs = [(states[i], states[j]) for i, j in INDEX.tolist()]
        chosen = [("nodes", (b, v, s)) for v, s in enumerate(states)]
        return chosen + [("edges", (b, e, *pair)) for e, pair in enumerate(pairs)]

    outputs = [[torch.tensor(states) for states in strings(S, V)] for _ in range(B)]
    shapes = {"nodes": (B, V, S), "edges": (B, E, S, S)}
    potentials = {name: torch.zeros(shape).double() for name, shape in shapes.items()}
    return Case(one_graph, potentials, outputs, parts)
