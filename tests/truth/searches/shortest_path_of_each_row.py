"""Paths of graphs, sources and targets that rows have of their own."""

from tests.truth.searches import shortest_path

GRAPHS = (
    shortest_path.GRAPH,
    [[5, 4], [-1, -1], [4, 9], [5, 9], [5, 4], [4, 9]],
    [[1, 0], [1, 0]],
    [[8 - a, 8 - b] for a, b in shortest_path.GRAPH],
)


def case(generator):
    return shortest_path.case(generator, GRAPHS, (0, 5, 1, 8), (3, 9, 0, 5))
