"""Binary trees whose spans have labels: all of them."""

from tests.truth.circuits import span_tree


def case(generator):
    return span_tree.case(generator, labels=2)
