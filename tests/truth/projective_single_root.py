"""Projective dependency trees with one word at the root."""

from tests.truth import projective


def case(generator):
    return projective.case(generator, single_root=True)
