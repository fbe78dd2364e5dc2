"""Structures and losses inside ``torch.compile(fullgraph=True)``, over all of them."""

import re

import pytest
import torch
from torch._dynamo.exc import Unsupported
from torch._dynamo.testing import CompileCounter
from torch.testing import assert_close

from smoothsp.constraints import regular
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
    BinaryGraph,
    Chain,
    IntegerProgram,
    Multiclass,
    PlackettLuce,
    SpanningTree,
    SparseMAP,
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


# Further structures -----------------------------------------------------------------


def numbers(*shape):
    size = torch.Size(shape).numel()
    return torch.linspace(-2, 3, size, dtype=F64).sin().reshape(shape)


def programme(scores):
    A = torch.tensor([[1.0, 1.0, 1.0], [-1.0, 0.0, 1.0]])
    return IntegerProgram(scores, (A, -torch.inf, torch.tensor([2.0, 0.0])))


FURTHER = {
    "Chain": (
        Chain,
        {"emissions": numbers(2, 3, 3), "transitions": numbers(3, 3)},
        {"lengths": torch.tensor([3, 2])},
        torch.tensor([[0, 2, 1], [1, 0, -1]]),
    ),
    "Multiclass": (Multiclass, {"scores": numbers(2, 4)}, {}, torch.tensor([1, 3])),
    "IntegerProgram": (
        programme,
        {"scores": numbers(2, 3)},
        {},
        torch.tensor([[1, 0, 1], [0, 1, 0]]),
    ),
}
SHARED = dict.fromkeys(FURTHER, ("transitions",))
SUMS = (*KINDS, *SUMMED, "Chain", "Multiclass")
EVERY = (*KINDS, *SEARCHES, *FURTHER)


def given(kind):
    """The constructor, potentials, options and outputs of a structure."""
    if kind in FURTHER:
        return FURTHER[kind]
    case = draw(kind, 0, forbid=False)
    y = torch.stack([outputs[-1] for outputs in case.outputs])
    return case.build, case.potentials, case.options, y


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


def answered(kind):
    """Names of the questions that a structure answers."""
    every = WHAT if kind in SUMS else NOTHING_SUMMED
    return [name for name in every if name not in LACKING.get(kind, ())]


def step_of(kind, names):
    """A function of potentials, options and outputs to one list of tensors."""
    build = given(kind)[0]

    def step(potentials, options, y):
        found = []
        for name in names:
            answer = WHAT[name](build(**potentials, **options), y)
            found += answer if isinstance(answer, tuple) else (answer,)
        return found

    return step


def with_gradients(step, potentials, options, y):
    """All tensors of the answers, and the gradients of their sum, weighted."""
    free = {name: x.clone().requires_grad_() for name, x in potentials.items()}
    found = step(free, options, y)
    moved = [x for x in found if x.requires_grad]
    weights = [torch.linspace(1, 2, x.numel()).reshape(x.shape).to(x) for x in moved]
    slopes = torch.autograd.grad(
        moved, list(free.values()), weights, allow_unused=True, materialize_grads=True
    )
    return *found, *slopes


def compare(kind, names, backend="aot_eager"):
    _, *inputs = given(kind)
    step = step_of(kind, names)
    expected = with_gradients(step, *inputs)
    compiled = torch.compile(step, fullgraph=True, backend=backend)
    found = with_gradients(compiled, *inputs)
    for one, two in zip(found, expected, strict=True):
        assert_close(one, two)


SHORT = [("span_tree", ["CRF"])]


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        *(pytest.param(*case, marks=pytest.mark.short) for case in SHORT),
        *(pytest.param(x, answered(x), marks=pytest.mark.long) for x in EVERY),
    ],
)
def test_what_is_compiled_is_what_is_computed(kind, names):
    compare(kind, names)


COMPILED = [
    ("Chain", ["L2 hinge"]),
    ("span_tree", ["CRF", "SparseMAP"]),
    ("matching", ["hinge", "interpolation"]),
]


@pytest.mark.long
@pytest.mark.parametrize(("kind", "names"), COMPILED)
def test_what_inductor_compiles_is_what_is_computed(kind, names):
    compare(kind, names, "inductor")


def repeated(tensors, times, shared=()):
    """Rows several times, one batch below the other."""
    return {
        name: torch.cat([x] * times)
        if isinstance(x, torch.Tensor) and name not in shared
        else x
        for name, x in tensors.items()
    }


@pytest.mark.parametrize("kind", thinned(EVERY, 48, 33))
def test_one_graph_serves_every_batch_size(kind):
    _, potentials, options, y = given(kind)
    shared = SHARED.get(kind) or draw(kind, 0).shared
    step, counter = step_of(kind, ["hinge"]), CompileCounter()
    compiled = torch.compile(step, fullgraph=True, backend=counter)
    for times in (1, 2, 3, 4):
        batch = repeated(potentials, times, shared), repeated(options, times)
        inputs = *batch, torch.cat([y] * times)
        assert_close(compiled(*inputs), step(*inputs))
    # of the first size, and of all others
    assert counter.frame_count == 2


@pytest.mark.long
def test_draws_in_a_graph_are_outputs():
    arcs = numbers(2, 3, 3)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def step(arcs):
        trees = SpanningTree(arcs)
        ys, distinct = trees.sample(3), trees.sample(2, replace=False)
        losses = (
            MinimumRisk(3, over="samples")(trees, ys[:, 0]),
            PerturbedLoss(4)(trees, ys[:, 0]),
            ImplicitMLE(3)(trees).sum(),
        )
        return torch.stack(losses).sum(), trees.score(ys), trees.score(distinct)

    arcs.requires_grad_()
    loss, *scores = step(arcs)
    assert all(x.isfinite().all() for x in scores)
    (slope,) = torch.autograd.grad(loss, arcs)
    assert slope.isfinite().all()
    assert slope.any()


@pytest.mark.long
def test_rankings_compile():
    scores = numbers(2, 4)

    def step(scores):
        rankings = PlackettLuce(scores, 2)
        value, y = rankings.decode()
        values, ys, valid = rankings.decode_topk(3)
        loss = CRFLoss()(rankings, torch.tensor([[1, 3], [0, 2]]))
        return loss + value.sum() + values.sum(), y, ys, valid

    for one, two in zip(
        torch.compile(step, fullgraph=True, backend="aot_eager")(scores),
        step(scores),
        strict=True,
    ):
        assert_close(one, two)


def test_a_graph_belongs_to_the_objects_that_it_was_made_with():
    languages = [regular(["A", "B"], pattern) for pattern in ("A* B", "B* A")]

    @torch.compile(fullgraph=True, backend="aot_eager")
    def best(emissions, language):
        return language(emissions).decode()[1]

    for language in (*languages, *languages):
        emissions = torch.zeros(1, 3, 2)
        assert_close(best(emissions, language), language(emissions).decode()[1])


def put_at(place, number):
    arcs = numbers(2, 3, 3)
    arcs[place] = number
    return arcs


HEADS = torch.tensor([[0, 0], [0, 1]])
FAULTS = {
    "NaN": (put_at((1, 0, 1), torch.nan), HEADS),
    "a row without an output": (put_at((1, slice(None), 2), -torch.inf), HEADS),
    "heads of no tree": (numbers(2, 3, 3), torch.tensor([[0, 0], [2, 1]])),
}


@pytest.mark.parametrize("fault", thinned(FAULTS, 3))
def test_errors_of_a_graph_are_those_of_eager_calls(fault):
    arcs, y = FAULTS[fault]

    def step(arcs, y):
        return StructuralHinge()(SpanningTree(arcs), y)

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    compiled(numbers(2, 3, 3), HEADS)
    with pytest.raises(ValueError, match="expected") as expected:
        step(arcs, y)
    with pytest.raises(ValueError, match=re.escape(str(expected.value))):
        compiled(arcs, y)


def test_structures_from_outside_a_graph_are_refused_with_the_remedy():
    trees = SpanningTree(numbers(2, 3, 3))
    words = (
        "SpanningTree: expected a structure that is made inside the compiled function"
    )
    with pytest.raises(Unsupported, match=words):
        torch.compile(trees.decode, fullgraph=True, backend="eager")()

    def step(y):
        return trees.score(y)

    # without fullgraph=True it is asked between two graphs
    assert_close(torch.compile(step, backend="eager")(HEADS), trees.score(HEADS))


GENERATOR = torch.Generator()
REFUSED = {
    "generator: expected None": lambda arcs: SpanningTree(arcs).sample(1, GENERATOR),
    "structure: SparseMAP needs values": lambda arcs: SparseMAP(SpanningTree(arcs)),
    "integer: expected True or False": lambda arcs: IntegerProgram(
        arcs[0], integer=torch.tensor([True, False, True])
    ),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_a_graph_cannot_hold_is_refused_with_the_remedy(words):
    ask = torch.compile(REFUSED[words], fullgraph=True, backend="eager")
    with pytest.raises((Unsupported, TypeError), match=words):
        ask(numbers(2, 3, 3))


def test_gradients_of_one_row_do_not_share_memory():
    index = torch.tensor([[0, 1], [1, 2]])
    nodes = torch.zeros(1, 3, 2, requires_grad=True)
    edges = torch.ones(1, 2, requires_grad=True)

    def value(nodes, edges):
        return BinaryGraph(nodes, edges, index).decode()[0].sum()

    compiled = torch.compile(value, fullgraph=True, backend="aot_eager")
    found = torch.autograd.grad(compiled(nodes, edges), (nodes, edges))
    assert_close(found, torch.autograd.grad(value(nodes, edges), (nodes, edges)))


def test_a_batch_without_rows_is_compiled_with_gradients():
    emissions = torch.zeros(0, 5, 3, requires_grad=True)
    moves = torch.zeros(3, 3, requires_grad=True)

    def loss(emissions, moves):
        y = torch.zeros(0, 5, dtype=torch.int64)
        return StructuralHinge()(Chain(emissions, moves), y)

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    (slope,) = torch.autograd.grad(compiled(emissions, moves), moves)
    assert not slope.any()
