"""The transforms of torch.func, forward derivatives and checkpoints of a chain."""

import math

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.testing import assert_close

from smoothsp.losses import L2, CRFLoss, Entropy, StructuralHinge, StructuredPerceptron
from smoothsp.oracles import Chain
from tests.instances.chains import HOLES, QUESTIONS, Y, answers, random_case
from tests.sweeps import thinned

# torch loads its decompositions by what it deprecates, at the first dual number
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.*deprecated")
any_transitions = pytest.mark.parametrize("per_edge", [False, True])
any_question = pytest.mark.parametrize("question", thinned(QUESTIONS, 2))
LOSSES = {
    "hinge": StructuralHinge(),
    "hinge-entropy": StructuralHinge(Entropy(0.5)),
    "hinge-l2": StructuralHinge(L2(0.5, 3)),
    "crf": CRFLoss(reduction="token_mean"),
    "perceptron": StructuredPerceptron(class_weight=torch.tensor([1.0, 2, 3]).double()),
}
PLACES = (0, 1, 2, 3)


def potentials(per_edge: bool = False, forbid: bool = False) -> list[torch.Tensor]:
    case = random_case(per_edge, forbid)
    return [case.emissions, case.transitions, case.start, case.end]


def asked(question: str):
    return lambda *p: answers(question, Chain(*p, mask=HOLES))


def weighed(question: str):
    """A scalar that weighs all answers differently."""

    def ask(*p: torch.Tensor) -> torch.Tensor:
        value = asked(question)(*p)
        slopes = torch.linspace(-1, 2, value.numel(), dtype=value.dtype)
        return (value * slopes.view(value.shape)).sum()

    return ask


def by_autograd(function, given):
    leaves = [x.clone().requires_grad_() for x in given]
    return torch.autograd.grad(function(*leaves), leaves, materialize_grads=True)


@any_transitions
@pytest.mark.parametrize("forbid", [False, True])
@any_question
def test_gradients_are_those_of_backward(question, per_edge, forbid):
    given = potentials(per_edge, forbid)
    expected = by_autograd(weighed(question), given)
    assert_close(grad(weighed(question), PLACES)(*given), expected)
    value, pull = vjp(asked(question), *given)
    assert_close(value, asked(question)(*given))
    slopes = torch.linspace(-1, 2, value.numel(), dtype=value.dtype)
    assert_close(pull(slopes.view(value.shape)), expected)


@any_transitions
@pytest.mark.parametrize("forbid", [False, True])
@any_question
def test_forward_derivatives_are_those_of_backward(question, per_edge, forbid):
    given = potentials(per_edge, forbid)
    draw = torch.Generator().manual_seed(3)
    along = [torch.randn(x.shape, generator=draw).double() for x in given]
    slopes = by_autograd(weighed(question), given)
    expected = sum((a * b).sum() for a, b in zip(slopes, along, strict=True))
    assert expected.abs() > 1e-3
    value, found = jvp(weighed(question), tuple(given), tuple(along))
    assert_close(value, weighed(question)(*given))
    assert_close(found, expected)
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(*x) for x in zip(given, along, strict=True)]
        found = forward_ad.unpack_dual(weighed(question)(*duals)).tangent
    assert_close(found, expected)


@any_transitions
@pytest.mark.parametrize("question", ["log_partition", "log_prob"])
@pytest.mark.parametrize("place", PLACES)
def test_hessians_in_any_order_of_modes_agree(question, per_edge, place):
    given = potentials(per_edge)

    def ask(x: torch.Tensor) -> torch.Tensor:
        return weighed(question)(*given[:place], x, *given[place + 1 :])

    expected = torch.autograd.functional.hessian(ask, given[place])
    assert expected.abs().max() > 1e-2
    for found in (hessian(ask), jacrev(jacrev(ask)), jacrev(jacfwd(ask))):
        assert_close(found(given[place]), expected)


@any_transitions
@any_question
def test_gradients_per_sample(question, per_edge):
    given = potentials(per_edge)
    rows = 5
    draw = torch.Generator().manual_seed(4)
    many = torch.randn(rows, *given[0].shape, generator=draw).double()

    def ask(emissions: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        return weighed(question)(emissions, *rest)

    found = vmap(grad(ask, PLACES), (0, None, None, None))(many, *given[1:])
    for b in range(rows):
        expected = grad(ask, PLACES)(many[b], *given[1:])
        assert_close([x[b] for x in found], list(expected))


@any_question
@pytest.mark.parametrize("place", PLACES)
def test_potentials_mapped_over_any_axis(question, place):
    given = potentials()
    axis = given[place].dim()
    many = torch.stack([given[place], 2 * given[place], -given[place]], axis)

    def ask(x: torch.Tensor) -> torch.Tensor:
        return asked(question)(*given[:place], x, *given[place + 1 :])

    found = vmap(ask, axis)(many)
    expected = torch.stack([ask(x) for x in many.unbind(axis)])
    assert_close(found, expected)


def test_positions_and_labels_mapped_too():
    emissions, *rest = potentials()
    draw = torch.Generator().manual_seed(5)
    many = torch.randn(6, *emissions.shape, generator=draw).double()
    lengths = torch.randint(5, (6, 4), generator=draw)
    y = torch.randint(3, (6, 4, 4), generator=draw)

    def ask(x: torch.Tensor, n: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        chain = Chain(x, *rest, lengths=n)
        best = chain.decode()[1], *chain.decode_topk(2)[1:]
        return [*best, chain.log_prob(y), chain.score(y), chain.hamming(y), chain.mask]

    for found, *one in zip(
        vmap(ask)(many, lengths, y),
        *(ask(*x) for x in zip(many, lengths, y, strict=True)),
        strict=True,
    ):
        assert_close(found, torch.stack(one))


@pytest.mark.parametrize("name", LOSSES)
def test_losses_per_sample(name):
    emissions, *rest = potentials()
    y = torch.where(HOLES, Y, 0)

    def ask(shared: list, x: torch.Tensor, y: torch.Tensor, mask: torch.Tensor):
        return LOSSES[name](Chain(x[None], *shared, mask=mask[None]), y[None])

    found = vmap(grad(ask, (0, 1)), (None, 0, 0, 0))(rest, emissions, y, HOLES)
    for b in range(len(y)):

        def alone(x: torch.Tensor, *shared: torch.Tensor, b: int = b) -> torch.Tensor:
            return ask(list(shared), x, y[b], HOLES[b])

        slopes = by_autograd(alone, [emissions[b], *rest])
        assert_close(found[1][b], slopes[0])
        assert_close([x[b] for x in found[0]], list(slopes[1:]))


def test_transforms_may_be_nested():
    given = potentials()
    many = torch.stack([given[0], 2 * given[0]])

    def ask(x: torch.Tensor, shared: torch.Tensor) -> torch.Tensor:
        return weighed("log_prob")(x, shared, *given[2:])

    def norms(shared: torch.Tensor) -> torch.Tensor:
        return vmap(grad(ask, (0, 1)), (0, None))(many, shared)[1].square().sum()

    def by_hand(shared: torch.Tensor) -> torch.Tensor:
        total = shared.new_zeros(())
        for x in many:
            value = ask(x, shared)
            (slope,) = torch.autograd.grad(value, shared, create_graph=True)
            total = total + slope.square().sum()
        return total

    assert_close(grad(norms)(given[1]), by_autograd(by_hand, [given[1]])[0])
    twice = vmap(vmap(lambda x: ask(x, given[1])))(torch.stack([many, many]))
    assert_close(
        twice, torch.stack([torch.stack([ask(x, given[1]) for x in many])] * 2)
    )


@pytest.mark.parametrize("question", ["entropy", "marginals", "edge_marginals"])
@pytest.mark.parametrize("outer", [grad, jacfwd])
def test_a_derivative_that_is_not_there_is_refused_in_every_mode(question, outer):
    given = potentials()

    def slope(x: torch.Tensor) -> torch.Tensor:
        return grad(weighed(question))(x, *given[1:]).square().sum()

    with pytest.raises(
        RuntimeError, match="log_partition: expected at most two derivatives"
    ):
        outer(slope)(given[0])


def test_an_infinity_does_not_reach_a_tangent():
    given = potentials(forbid=True)
    assert given[1].min() == -math.inf
    along = tuple(torch.ones_like(x) for x in given)
    _, found = jvp(asked("log_partition"), tuple(given), along)
    # every real label adds one emission, and one move, start or end
    lengths = HOLES.sum(1).double()
    assert_close(found, torch.where(lengths > 0, 2 * lengths + 1, 0))


def test_what_looks_at_values_is_refused():
    emissions, *rest = potentials()
    loss = StructuralHinge(L2(0.5, "exact"))
    y = torch.where(HOLES, Y, 0)
    with pytest.raises(TypeError, match="smoothing: "):
        vmap(lambda x: loss(Chain(x, *rest, mask=HOLES), y))(emissions[None])
