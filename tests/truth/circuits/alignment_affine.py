"""Alignments of two sequences whose gaps cost to open and to extend."""

from tests.truth.circuits import alignment


def case(generator):
    return alignment.case(generator, affine=True)
