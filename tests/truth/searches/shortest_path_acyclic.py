"""Paths of a graph without cycles, whose arcs may score anything."""

from dataclasses import replace

from tests.truth.searches import shortest_path

GRAPH = [[0, 1], [2, 1], [0, 2], [1, 3], [2, 3], [2, 3], [0, 3]]


def case(generator):
    found = shortest_path.case(generator, (GRAPH,) * 3, (0,) * 3, (3,) * 3)
    return replace(found, repair=dict)
