"""Paths of a graph with cycles: all sets of arcs, less those that are no path."""

import torch

from smoothsp.oracles import ShortestPath
from tests.truth.circuits.cases import Case, strings

# two arcs between the same nodes, both ways, and two cycles; each arc is on some path
GRAPH = [[0, 1], [1, 2], [2, 1], [2, 1], [0, 2], [1, 3], [2, 3]]
GRAPH += [[0, 4], [4, 1], [1, 4], [4, 3]]


def paths(graph, source, target):
    """All choices of arcs, -1 for none, that lead from source to target."""
    found = []
    real = [arc[0] >= 0 for arc in graph]
    for y in strings(2, len(graph)):
        chosen = [arc for arc, one in zip(graph, y, strict=True) if one]
        if any(arc[0] < 0 for arc in chosen):
            continue
        leaving = dict(chosen)
        at, met = source, [source]
        while at != target and at in leaving:
            at = leaving[at]
            met.append(at)
            if len(met) > len(graph) + 1:
                break
        simple = len(set(met)) == len(met) == len(chosen) + 1
        if at == target and simple:
            pairs = zip(y, real, strict=True)
            found.append([one if some else -1 for one, some in pairs])
    return found


def no_gain(potentials):
    """At most -8: neither costs nor noise of losses make a cycle of positive score."""
    return {"arcs": -potentials["arcs"].abs() - 8}


def case(generator, graphs=(GRAPH,) * 2, source=(0, 0), target=(3, 3)):
    E = max(map(len, graphs))
    index = torch.tensor([[*g, *[[-1, -1]] * (E - len(g))] for g in graphs])
    ends = list(zip(index.tolist(), source, target, strict=True))
    one = len({str(x) for x in ends}) == 1

    def shared(arcs):
        return ShortestPath(arcs, index[0], source[0], target[0])

    options = {
        "index": index,
        "source": torch.tensor(source),
        "target": torch.tensor(target),
    }
    return Case(
        shared if one else ShortestPath,
        {"arcs": torch.zeros(len(graphs), E).double()},
        [[torch.tensor(y) for y in paths(*row)] for row in ends],
        lambda b, y: [("arcs", (b, *e)) for e in (y == 1).nonzero().tolist()],
        {} if one else options,
        wrong=lambda y, gold: ((y == 1) & (gold != 1)).sum(),
        repair=no_gain,
    )
