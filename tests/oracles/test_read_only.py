"""Structures are made once: no attribute is set again, and copies are whole."""

import copy
import pickle

import pytest
import torch
from torch.testing import assert_close

from smoothsp.losses import Perturbed
from smoothsp.oracles import Chain, Formula, Multiclass, SparseMAP
from tests.truth.circuits.cases import KINDS, SEARCHES, draw

CHOICE = torch.tensor([[0.0, 1.0, 3.0]], dtype=torch.float64)
MADE = {
    "chain": lambda: Chain(CHOICE[None], torch.eye(3).double()),
    "multiclass": lambda: Multiclass(CHOICE),
    "sparse_map": lambda: SparseMAP(Multiclass(CHOICE)),
    "perturbed": lambda: Perturbed(Multiclass(CHOICE), 3),
    "formula": lambda: Formula.from_clauses([[1, 2]]),
    **{kind: lambda kind=kind: draw(kind, 0).structure() for kind in KINDS + SEARCHES},
}
every = pytest.mark.parametrize("kind", MADE)


def attributes(built):
    """Names that users read, those of properties too."""
    own = {name for name in vars(built) if not name.startswith("_")}
    for name in dir(type(built)):
        if isinstance(getattr(type(built), name), property) and name[0] != "_":
            own.add(name)
    return sorted(own)


@every
def test_attributes_cannot_be_set(kind):
    built = MADE[kind]()
    names = attributes(built)
    assert names
    for name in names:
        before = getattr(built, name)
        with pytest.raises(AttributeError, match=f"{name}: .* make a new "):
            setattr(built, name, before)
    built.note = "a name that means nothing"


@every
def test_copies_answer_alike_and_cannot_be_set_either(kind):
    built = MADE[kind]()
    for twin in (
        copy.copy(built),
        copy.deepcopy(built),
        pickle.loads(pickle.dumps(built)),
    ):
        if hasattr(built, "decode"):
            assert_close(twin.decode(), built.decode())
            some = twin.select(torch.tensor([0]))
            assert_close(some.decode()[0], built.decode()[0][:1])
        name = attributes(twin)[0]
        with pytest.raises(AttributeError, match=f"{name}: "):
            setattr(twin, name, None)
