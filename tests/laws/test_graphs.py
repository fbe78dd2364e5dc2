"""Structures and losses inside ``torch.compile(fullgraph=True)``, over all of them."""

import itertools

import pytest
import torch
from torch.testing import assert_close

from smoothsp.losses import (
    L2,
    CRFLoss,
    Entropy,
    ImplicitMLE,
    Interpolation,
    LatentHinge,
    ListwiseRanking,
    MarginalLikelihood,
    MinimumRisk,
    NegativeIdentity,
    NoiseContrastive,
    PairwiseRanking,
    PerturbedLoss,
    RankingHinge,
    SparseMAPLoss,
    SPOPlus,
    StructuralHinge,
    StructuredPerceptron,
)
from smoothsp.oracles import (
    Chain,
    IntegerProgram,
    Multiclass,
    PlackettLuce,
)
from tests.sweeps import thinned
from tests.truth.circuits.cases import KINDS, SEARCHES, SUMMED, draw

pytestmark = pytest.mark.usefixtures("fresh_graphs")
F64 = torch.float64


@pytest.fixture
def fresh_graphs():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


# Further structures: potentials, a function of them, outputs, shared potentials -----


def numbers(*shape):
    size = torch.Size(shape).numel()
    return torch.linspace(-2, 3, size, dtype=F64).sin().reshape(shape)


A = torch.tensor([[1.0, 1.0, 1.0], [-1.0, 0.0, 1.0]])
FURTHER = {
    "Chain": (
        {"emissions": numbers(2, 3, 3), "transitions": numbers(3, 3)},
        lambda emissions, transitions: Chain(
            emissions, transitions, lengths=emissions[:, 0, 0].long() * 0 + 2
        ),
        torch.tensor([[0, 2, -1], [1, 0, -1]]),
        ("transitions",),
    ),
    "Multiclass": (
        {"scores": numbers(2, 4)},
        lambda scores: Multiclass(scores),
        torch.tensor([1, 3]),
        (),
    ),
    "IntegerProgram": (
        {"scores": numbers(2, 3)},
        lambda scores: IntegerProgram(
            scores, (A, -torch.inf, torch.tensor([2.0, 0.0]))
        ),
        torch.tensor([[1, 0, 1], [0, 1, 0]]),
        (),
    ),
    "PlackettLuce": (
        {"scores": numbers(2, 4)},
        lambda scores: PlackettLuce(scores, 2),
        torch.tensor([[1, 3], [0, 2]]),
        (),
    ),
}
SUMS = (*KINDS, *SUMMED, "Chain", "Multiclass")
EVERY = (*KINDS, *SEARCHES, "Chain", "Multiclass", "IntegerProgram")


def given(kind):
    """Potentials, a function to the structure, outputs, names of shared potentials."""
    if kind in FURTHER:
        return FURTHER[kind]
    case = draw(kind, 0, forbid=False)
    y = torch.stack([outputs[-1] for outputs in case.outputs])
    return case.potentials, lambda **x: case.structure(**x), y, case.shared


# Questions and losses: functions of a structure and of its outputs ------------------


def questions(structure, y):
    value, best = structure.decode()
    shapes = getattr(structure, "output_shapes", structure.lengths)
    return value, best, structure.score(y), structure.lengths, shapes


def listed(structure, y):
    values, ys, valid = structure.decode_topk(2)
    return values.clamp(min=-100), ys, valid


def sums(structure, y):
    return (
        structure.log_partition(),
        structure.marginals(),
        structure.entropy(),
        structure.log_prob(y),
        structure.log_count(),
    )


def parts(structure, y):
    return structure.hamming(y), structure.label_counts(y)


def of_some_rows(structure, y):
    rows = torch.tensor([1, 0, 1])
    some = structure.select(rows).scale(2.0)
    return some.decode()[0], some.score(y[rows]), some.select(rows[:2]).decode()[1]


def weighted(structure, y):
    weight = torch.arange(1, len(y) + 1)
    return StructuralHinge(reduction="token_mean")(structure, y, weight)


def classes(structure, y):
    number = structure.label_counts(y).shape[1]
    return CRFLoss(torch.linspace(0.5, 1.5, number))(structure, y)


def allowed(loss):
    return lambda structure, y: loss(structure, structure.hamming(y) == 0)


def true_scores(structure, y):
    return structure.hamming(y).cumsum(-1).sin() - 1


def against_truth(loss, *pool):
    def ask(structure, y):
        # the best output is the true one of the pool losses
        return loss(structure, y, true_scores(structure, y), *pool)

    return ask


def against_pool(loss):
    def ask(structure, y):
        best = structure.decode()[1]
        return loss(structure, y, true_scores(structure, y), best[:, None])

    return ask


def risk(outputs, y):
    return (outputs != y[:, None]).reshape(*outputs.shape[:2], -1).sum(2).double()


NOTHING_SUMMED = {
    "questions": questions,
    "the k best": listed,
    "parts": parts,
    "rows": of_some_rows,
    "hinge": StructuralHinge(),
    "weighted hinge": weighted,
    "L2 hinge": StructuralHinge(L2(2.0, 3)),
    "exact L2 hinge": StructuralHinge(L2(2.0, "exact")),
    "perceptron": StructuredPerceptron(),
    "latent hinge": allowed(LatentHinge()),
    "latent L2 hinge": allowed(LatentHinge(L2(2.0, 3))),
    "risk": MinimumRisk(3),
    "risk of a function": MinimumRisk(3, cost=risk),
    "ranking": RankingHinge(3),
    "SPO+": against_truth(SPOPlus()),
    "perturbed": PerturbedLoss(4, seed=1),
    "SparseMAP": SparseMAPLoss(cost="hamming"),
    "listwise": against_pool(ListwiseRanking()),
    "pairwise": against_pool(PairwiseRanking()),
    "contrastive": against_pool(NoiseContrastive()),
    "interpolation": lambda structure, y: Interpolation()(structure),
    "identity": lambda structure, y: NegativeIdentity()(structure),
    "implicit": lambda structure, y: ImplicitMLE(3, seed=1)(structure),
}
SUMMING = {
    "sums": sums,
    "CRF": CRFLoss(),
    "CRF of classes": classes,
    "entropy hinge": StructuralHinge(Entropy(2.0)),
    "latent entropy hinge": allowed(LatentHinge(Entropy(2.0))),
    "marginal likelihood": allowed(MarginalLikelihood()),
}
WHAT = NOTHING_SUMMED | SUMMING
# costs of boxes are not sums over cells, programmes list no k best
ADDING = {"SPO+", "perturbed", "SparseMAP", "listwise", "pairwise", "contrastive"}
ADDING |= {"interpolation", "identity", "implicit"}
LISTING = {"the k best", "L2 hinge", "exact L2 hinge", "latent L2 hinge", "ranking"}
LISTING |= {"risk", "risk of a function"}
LACKING = {"box_search": ADDING, "IntegerProgram": LISTING | {"rows"}}
CASES = [
    (kind, what)
    for kind, what in itertools.product(EVERY, WHAT)
    if (what in NOTHING_SUMMED or kind in SUMS) and what not in LACKING.get(kind, ())
]


def run(kind, what, potentials, y, compiled=None):
    """All tensors of an answer, and gradients of the potentials."""
    make = given(kind)[1]
    ask = WHAT[what]

    def step(potentials, y):
        found = ask(make(**potentials), y)
        return found if isinstance(found, tuple) else (found,)

    free = {name: x.clone().requires_grad_() for name, x in potentials.items()}
    found = (step if compiled is None else compiled(step))(free, y)
    moved = [x for x in found if x.requires_grad]
    weights = [torch.linspace(1, 2, x.numel()).reshape(x.shape).to(x) for x in moved]
    if not moved:
        return found
    slopes = torch.autograd.grad(
        moved, list(free.values()), weights, allow_unused=True, materialize_grads=True
    )
    return *found, *slopes


@pytest.mark.parametrize(("kind", "what"), thinned(CASES, 97, 3))
def test_what_is_compiled_is_what_is_computed(kind, what):
    potentials, _, y, _ = given(kind)
    expected = run(kind, what, potentials, y)

    def compiled(step):
        return torch.compile(step, fullgraph=True, backend="aot_eager")

    found = run(kind, what, potentials, y, compiled)
    assert len(found) == len(expected)
    for one, two in zip(found, expected, strict=True):
        assert_close(one, two)
