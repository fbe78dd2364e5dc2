"""All labellings of a small graph with cycles."""

import itertools

import torch

from smoothsp.oracles import BinaryGraph
from tests.truth.circuits.cases import Case, strings

INDEX = torch.tensor([[0, 1], [1, 2], [2, 3], [3, 0], [1, 3], [1, 0]])


def agreeing(potentials):
    """What edges lack to be submodular, added to where labels agree."""
    edges = potentials["edges"]
    lack = edges[..., 0, 1] + edges[..., 1, 0] - edges[..., 0, 0] - edges[..., 1, 1]
    same = torch.eye(2, dtype=torch.float64)
    more = lack.clamp(min=0)[..., None, None] * same
    return {**potentials, "edges": edges + more}


def same_for_all(nodes, edges):
    return BinaryGraph(nodes, edges, INDEX)


def case(generator, build=same_for_all, shape=(4,), index=INDEX, options=None):
    B, V, E = 3, int(torch.tensor(shape).prod()), index.shape[-2]
    given = index.expand(B, E, 2)

    def parts(b, y):
        flat = y.flatten().tolist()
        pairs = [(flat[i], flat[j]) for i, j in given[b].tolist()]
        at = list(itertools.product(*map(range, shape)))
        chosen = [("nodes", (b, *at[v], z)) for v, z in enumerate(flat)]
        return chosen + [("edges", (b, e, *pair)) for e, pair in enumerate(pairs)]

    outputs = [[torch.tensor(y).reshape(shape) for y in strings(2, V)]] * B
    nodes, edges = torch.zeros(B, *shape, 2), torch.zeros(B, E, 2, 2)
    potentials = {"nodes": nodes.double(), "edges": edges.double()}
    return Case(build, potentials, outputs, parts, options or {}, repair=agreeing)
