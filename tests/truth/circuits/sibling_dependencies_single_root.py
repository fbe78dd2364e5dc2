"""Projective trees with scores of siblings, and one word at the root."""

from tests.truth.circuits import sibling_dependencies


def case(generator):
    return sibling_dependencies.case(generator, single_root=True)
