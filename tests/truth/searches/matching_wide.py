"""Matchings of fewer rows than columns."""

from tests.truth.searches import matching


def case(generator):
    return matching.case(generator, 2, 4, partial=False)
