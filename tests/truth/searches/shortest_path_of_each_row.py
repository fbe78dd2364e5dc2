"""Paths of graphs, sources and targets that rows have of their own."""

from tests.truth.searches import shortest_path

GRAPHS = (
    shortest_path.GRAPH,
    [[5, 4], [-1, -1], [4, 9], [5, 9], [9, 5], [4, 9]],
    [[0, 1], [1, 0]],
    shortest_path.GRAPH,
)


def case(generator):
    return shortest_path.case(generator, GRAPHS, (0, 5, 1, 1), (3, 9, 1, 2))
