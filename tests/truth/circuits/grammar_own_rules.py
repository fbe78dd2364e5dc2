"""Derivations of a grammar of each row's own: all of them."""

from tests.truth.circuits import grammar


def case(generator):
    return grammar.case(generator, own_rules=True)
