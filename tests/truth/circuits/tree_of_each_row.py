"""States of the nodes of forests, one of each row, with edges of its own."""

from tests.truth.circuits import tree

FORESTS = [[2, 2, -1, 1, -1], [1, -1, 1, 7, 7], [9, 9, 9, 9, 9], [-1, 0, 1, 2, 3]]


def case(generator):
    return tree.case(generator, FORESTS, own_edges=True)
