"""A structure is of the values it was made of, or its methods raise an error."""

import copy
import math
import pickle

import pytest
import torch

from smoothsp.losses import L2, CRFLoss, StructuralHinge
from smoothsp.oracles import Chain, IntegerProgram, Multiclass, PlackettLuce
from tests.truth.circuits.cases import KINDS, SEARCHES, draw

OWN = {
    "chain": (Chain, {"emissions": (2, 3, 2), "transitions": (2, 2), "end": (2,)}, {}),
    "chain_by_step": (Chain, {"emissions": (2, 3, 2), "transitions": (2, 2, 2, 2)}, {}),
    "multiclass": (Multiclass, {"scores": (2, 3)}, {}),
    "plackett_luce": (PlackettLuce, {"scores": (2, 3)}, {}),
    "integer_program": (IntegerProgram, {"scores": (2, 3)}, {}),
}
# Grammar copies scores of single words to scores of spans.
COPIED = {("grammar", "spans"), ("grammar_own_rules", "spans")}
# Losses, by a method that they call.
LOSSES = {
    "decode": StructuralHinge(),
    "decode_topk": StructuralHinge(L2(1.0, 3)),
    "log_partition": CRFLoss(),
}
every_kind = pytest.mark.parametrize("kind", [*OWN, *KINDS, *SEARCHES])


def build(kind):
    """A structure, its potentials, and a function that builds it of potentials."""
    if kind in OWN:
        make, shapes, options = OWN[kind]
        generator = torch.Generator().manual_seed(0)
        given = {
            name: torch.randn(shape, generator=generator, dtype=torch.float64)
            for name, shape in shapes.items()
        }
    else:
        case = draw(kind, 0, forbid=False)
        make, given, options = case.build, case.potentials, case.options
    given = {name: x.clone() for name, x in given.items()}
    return make(**given, **options), given


def questions(structure, y):
    """Calls that read potentials, by name."""
    alone = ("decode", "log_partition", "marginals", "edge_marginals", "entropy")
    alone += ("log_count", "max_marginals", "bound")
    calls = {name: () for name in alone if hasattr(structure, name)}
    with_arguments = {
        "decode_topk": (3,),
        "sample": (2,),
        "score": (y,),
        "log_prob": (y,),
        "scale": (2.0,),
        "select": (torch.arange(len(y)),),
        "kl": (structure,),
        "cross_entropy": (structure,),
    }
    return calls | {n: a for n, a in with_arguments.items() if hasattr(structure, n)}


@every_kind
def test_questions_after_a_change_in_place_raise_an_error(kind):
    changed = build(kind)[1]
    for name in changed:
        if (kind, name) in COPIED:
            continue
        structure, given = build(kind)
        y = structure.decode()[1]
        given[name].add_(0)
        for question, arguments in questions(structure, y).items():
            with pytest.raises(ValueError, match="changed in place"):
                getattr(structure, question)(*arguments)
        for needs, loss in LOSSES.items():
            if hasattr(structure, needs) and kind != "plackett_luce":
                with pytest.raises(ValueError, match="changed in place"):
                    loss(structure, y)
        assert type(structure).__name__ in repr(structure)


@every_kind
def test_divergences_to_a_structure_whose_potentials_changed_raise_it_too(kind):
    (structure, given), (other, _) = build(kind), build(kind)
    name = next(iter(given))
    if not hasattr(structure, "kl") or (kind, name) in COPIED:
        return
    given[name].add_(0)
    for question in (other.kl, other.cross_entropy):
        with pytest.raises(ValueError, match="changed in place"):
            question(structure)


@every_kind
def test_structures_made_of_one_that_is_changed_raise_the_error_too(kind):
    structure, given = build(kind)
    if not hasattr(structure, "scale"):
        return
    other = structure.scale(0.5)
    for x in given.values():
        x.fill_(math.nan)
    if (kind, next(iter(given))) not in COPIED:
        with pytest.raises(ValueError, match="changed in place"):
            other.decode()


@every_kind
def test_copied_structures_have_their_own_values(kind):
    structure, given = build(kind)
    value = structure.decode()[0]
    copied = [copy.deepcopy(structure), pickle.loads(pickle.dumps(structure))]
    for x in given.values():
        x.add_(1)
    for other in copied:
        assert torch.equal(other.decode()[0], value)


def test_tensors_of_inference_mode_and_views_of_others_are_taken():
    with torch.inference_mode():
        emissions = torch.zeros(1, 2, 2)
        assert Chain(emissions, torch.zeros(2, 2)).decode()[0].tolist() == [0]
    several = torch.zeros(2, 2, 2)
    chain = Chain(several[:1], torch.zeros(2, 2))
    several.add_(1)
    with pytest.raises(ValueError, match=r"emissions: .*changed in place"):
        chain.decode()


def test_half_precision_is_a_copy_of_the_values():
    emissions = torch.zeros(1, 2, 2, dtype=torch.bfloat16)
    chain = Chain(emissions, torch.zeros(2, 2))
    emissions.add_(1)
    assert chain.decode()[0].tolist() == [0]
