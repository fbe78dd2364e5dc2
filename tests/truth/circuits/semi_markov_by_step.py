"""Segmentations whose transitions have scores of their own at each position."""

from tests.truth.circuits import semi_markov


def case(generator):
    return semi_markov.case(generator, by_step=True)
