"""Dependency trees with one word at the root."""

from tests.truth.searches import spanning_tree


def case(generator):
    return spanning_tree.case(generator, single_root=True)
