"""Parts that rest at the places of their parents."""

from tests.truth.searches import pictorial_structure


def case(generator):
    return pictorial_structure.case(generator, anchors=None)
