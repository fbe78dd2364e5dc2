"""States of the nodes of a forest: all of them. One forest for all rows."""

import torch

from smoothsp.oracles import Tree
from tests.truth.circuits.cases import Case, strings

# A root in the middle, a node with two children, and a second tree at the end.
FOREST = [2, 2, -1, 1, -1]


def case(generator, parents=FOREST, own_edges=False):
    S, lengths = 2, torch.tensor([5, 3, 0, 5])
    parents = torch.tensor(parents)
    B, V = len(lengths), parents.shape[-1]

    def parts(b, y):
        tree = (parents[b] if parents.dim() == 2 else parents).tolist()
        states = y[: lengths[b]].tolist()
        found = [("nodes", (b, v, s)) for v, s in enumerate(states)]
        for v, s in enumerate(states):
            if tree[v] >= 0:
                place = (v, states[tree[v]], s)
                found.append(("edges", (b, *place) if own_edges else place))
        return found

    outputs = [
        [torch.tensor([*states, *[-1] * (V - n)]) for states in strings(S, n)]
        for n in lengths.tolist()
    ]
    edges = (B, V, S, S) if own_edges else (V, S, S)
    shapes = {"nodes": (B, V, S), "edges": edges}
    options = {"lengths": lengths, "parents": parents}
    return Case(
        Tree if parents.dim() == 2 else one_tree,
        {name: torch.zeros(shape).double() for name, shape in shapes.items()},
        outputs,
        parts,
        options if parents.dim() == 2 else {"lengths": lengths},
        () if own_edges else ("edges",),
    )


def one_tree(nodes, edges, lengths):
    return Tree(nodes, edges, torch.tensor(FOREST), lengths=lengths)
