"""Paths of lattices, one of each row."""

from tests.truth.circuits import lattice

SHORT = [[0, 1], [1, 2], [0, 2], [0, 2]]


def case(generator):
    graphs = lattice.GRAPH, SHORT, lattice.GRAPH_ENTERED, [], lattice.GRAPH, [[0, 1]]
    return lattice.case(generator, graphs)
