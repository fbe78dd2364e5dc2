"""Matchings of more rows than columns."""

from tests.truth.searches import matching


def case(generator):
    return matching.case(generator, 4, 2, partial=False)
