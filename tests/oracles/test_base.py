"""Methods of all structures stand in one base; few classes have their own."""

import torch

import smoothsp.oracles
from smoothsp.oracles import Chain
from smoothsp.oracles._inference.distribution import Distribution
from smoothsp.oracles._inference.structure import Potentials, Structure

# Classes that override a public method of the base.
OVERRIDES = {
    # the cost of a box is no sum over parts
    ("BoxSearch", "augment"),
    ("BoxSearch", "scale"),
    # costs and labels of single words stand for those of spans
    ("Grammar", "augment"),
    ("Grammar", "restrict"),
    # counted are frames, matches, segments and units, and not labels
    ("CTC", "label_counts"),
    ("Alignment", "label_counts"),
    ("SemiMarkov", "label_counts"),
    ("IntegerProgram", "label_counts"),
    # for its speed
    ("Chain", "label_counts"),
    ("Multiclass", "log_prob"),
    # one sum over trees instead of two
    ("Trees", "log_prob"),
    ("Trees", "log_prob_within"),
    # a distribution that is no sum of potentials
    ("PlackettLuce", "log_prob"),
}
BASES = (Potentials, Structure, Distribution)


def kinds_of(base):
    for kind in base.__subclasses__():
        if kind.__module__.startswith(smoothsp.oracles.__name__):
            yield kind
            yield from kinds_of(kind)


def test_few_structures_override_what_all_have():
    public = {name for base in BASES for name in vars(base) if name[0] != "_"}
    public |= {"__repr__", "_to_float64", "_potentials"}
    # no method of the base, but a declaration
    public -= {"row_attributes", "output_description", "log_partition"}
    kinds = set(kinds_of(Potentials)) - set(BASES)
    found = {(x.__name__, name) for x in kinds for name in public & vars(x).keys()}
    assert found == OVERRIDES


def test_a_structure_shows_the_sizes_of_its_potentials():
    chain = Chain(torch.zeros(2, 3, 4), torch.zeros(2, 2, 4, 4))
    expected = (
        "Chain(emissions=(2, 3, 4), transitions=(2, 2, 4, 4), start=(4,), end=(4,), "
        "dtype=torch.float32)"
    )
    assert repr(chain) == expected
