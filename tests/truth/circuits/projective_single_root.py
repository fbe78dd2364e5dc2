"""Projective dependency trees with one word at the root."""

from tests.truth.circuits import projective


def case(generator):
    return projective.case(generator, single_root=True)
