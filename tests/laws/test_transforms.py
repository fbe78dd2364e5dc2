"""Questions under ``torch.func`` and forward derivatives, over all structures."""

import itertools

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.testing import assert_close

from smoothsp.losses import L2, CRFLoss, Entropy, StructuralHinge
from smoothsp.oracles import Chain, ProjectiveDependencies, SpanningTree, SpanTree
from tests.sweeps import thinned
from tests.truth.circuits.cases import KINDS, SEARCHES, SUMMED, draw

# PyTorch's own, once, when forward derivatives are first taken
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script.:FutureWarning")
QUESTIONS = {
    "decode": lambda s, y: s.decode()[0],
    "decode_topk": lambda s, y: s.decode_topk(2)[0].clamp(min=-1e3),
    "score": lambda s, y: s.score(y),
}
SUMS = {
    "log_partition": lambda s, y: s.log_partition(),
    "marginals": lambda s, y: s.marginals(),
    "entropy": lambda s, y: s.entropy(),
    "log_prob": lambda s, y: s.log_prob(y),
}
CASES = [
    *itertools.product(KINDS, QUESTIONS | SUMS),
    *itertools.product(SEARCHES, QUESTIONS),
    *itertools.product(SUMMED, SUMS),
]
# a step that shares no factor with the number of questions meets all of each
every_case = pytest.mark.parametrize(("kind", "question"), thinned(CASES, 8))


def weights(x):
    return torch.linspace(0.5, 2, x.numel(), dtype=x.dtype).reshape(x.shape)


def first_outputs(case):
    return torch.stack([outputs[0] for outputs in case.outputs])


def asked(case, question):
    """A function of the potentials to a weighted sum of the answers."""
    y = first_outputs(case)

    def ask(potentials):
        found = (QUESTIONS | SUMS)[question](case.structure(**potentials), y)
        return (weights(found) * found).sum()

    return ask


def by_autograd(ask, potentials):
    free = {name: x.clone().requires_grad_() for name, x in potentials.items()}
    found = torch.autograd.grad(
        ask(free), list(free.values()), materialize_grads=True, allow_unused=True
    )
    return dict(zip(free, found, strict=True))


@every_case
def test_derivatives_of_all_modes_are_those_of_autograd(kind, question):
    case = draw(kind, 0, forbid=kind in KINDS).map(lambda x: x.clamp(max=4))
    ask, given = asked(case, question), case.potentials
    expected = by_autograd(ask, given)
    assert_close(grad(ask)(given), expected)
    value, back = vjp(ask, given)
    assert_close(back(torch.ones_like(value))[0], expected)
    along = {name: weights(x).cos() for name, x in given.items()}
    slopes = sum((expected[n] * along[n]).sum() for n in expected)
    assert_close(jvp(ask, (given,), (along,)), (ask(given), slopes))
    with forward_ad.dual_level():
        duals = {n: forward_ad.make_dual(x, along[n]) for n, x in given.items()}
        assert_close(forward_ad.unpack_dual(ask(duals)).tangent, slopes)


@every_case
def test_mapped_questions_are_those_of_each(kind, question):
    case = draw(kind, 0, forbid=False)
    ask = asked(case, question)
    # over the last axis, shared potentials too
    many = {
        n: torch.stack([0.5 * x, x, 2 * x], x.dim()) for n, x in case.potentials.items()
    }
    last = (dict.fromkeys(many, -1),)
    found, slopes = vmap(ask, last)(many), vmap(grad(ask), last)(many)
    for i in range(3):
        one = {name: x.select(-1, i) for name, x in many.items()}
        assert_close(found[i], ask(one))
        for name, slope in by_autograd(ask, one).items():
            assert_close(slopes[name][i], slope)


@pytest.mark.parametrize("kind", SEARCHES)
def test_mapped_outputs_are_those_of_each_and_so_are_hinges(kind):
    case = draw(kind, 0, forbid=False)
    y = first_outputs(case)
    name, main = next(iter(case.potentials.items()))
    many = torch.stack([main, main.roll(1, 1)])

    def hinge(x, y):
        return StructuralHinge()(case.structure(**{name: x}), y)

    outputs = vmap(lambda x: case.structure(**{name: x}).decode()[1])(many)
    losses = vmap(grad(hinge), in_dims=(0, None))(many, y)
    for x, found, slope in zip(many, outputs, losses, strict=True):
        built = case.structure(**{name: x})
        assert_close(built.score(found), built.decode()[0])
        free = x.clone().requires_grad_()
        assert_close(slope, torch.autograd.grad(hinge(free, y), free)[0])


@pytest.mark.parametrize("kind", [*SEARCHES, *thinned(KINDS, 4)])
def test_questions_mapped_over_nothing_are_empty(kind):
    case = draw(kind, 0, forbid=False)
    name, main = next(iter(case.potentials.items()))

    def ask(x):
        return case.structure(**case.potentials | {name: x}).decode()

    none = main.new_zeros(*main.shape, 0, requires_grad=True)
    found = vmap(ask, main.dim())(none)
    for empty, one in zip(found, ask(main), strict=True):
        assert (empty.shape, empty.dtype) == ((0, *one.shape), one.dtype)
    assert torch.autograd.grad(found[0].sum(), none)[0].shape == none.shape


TWICE = ("projective", "tree", "span_tree_labelled", *SUMMED)


@pytest.mark.parametrize("kind", thinned(TWICE, 4))
def test_second_derivatives_in_any_order_of_modes_agree(kind):
    case = draw(kind, 0, forbid=False).map(lambda x: x.clamp(-3, 3))
    # of all rows, whose second derivatives are a table, the one of most outputs
    case = case.row(max(range(len(case)), key=lambda b: len(case.outputs[b])))
    name, scores = next(iter(case.potentials.items()))

    def ask(scores):
        return asked(case, "log_partition")({**case.potentials, name: scores})

    expected = torch.autograd.functional.hessian(ask, scores)
    assert expected.abs().max() > 1e-2
    for found in (hessian(ask), jacrev(jacrev(ask)), jacrev(jacfwd(ask))):
        assert_close(found(scores), expected)


LOSSES = {
    "crf": CRFLoss(reduction="sum"),
    "hinge": StructuralHinge(reduction="sum"),
    "entropy hinge": StructuralHinge(Entropy(0.5), reduction="sum"),
    "l2 hinge": StructuralHinge(L2(0.5, k=3), reduction="sum"),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_losses_per_sample(loss):
    draws = torch.Generator().manual_seed(1)
    arcs = torch.randn(5, 4, 4, generator=draws).double()
    y = ProjectiveDependencies(arcs).sample(1, generator=draws)[:, 0]

    def ask(arcs, y):
        return LOSSES[loss](ProjectiveDependencies(arcs[None]), y[None])

    found = vmap(grad(ask))(arcs, y)
    for b in range(len(arcs)):
        free = arcs[b].clone().requires_grad_()
        (expected,) = torch.autograd.grad(ask(free, y[b]), free)
        assert_close(found[b], expected)


@pytest.mark.parametrize("kind", ["span_tree", *SUMMED])
def test_mapped_draws_are_outputs(kind):
    case = draw(kind, 0, forbid=False)
    name, scores = next(iter(case.potentials.items()))
    drawn = vmap(
        lambda x: case.structure(**{name: x}).sample(3), randomness="different"
    )
    for ys in drawn(torch.stack([scores] * 2)):
        assert case.structure().score(ys).isfinite().all()


def test_lengths_are_not_mapped():
    arcs = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    lengths = torch.tensor([[3, 2, 1], [1, 1, 1]])

    def ask(arcs, lengths):
        return ProjectiveDependencies(arcs, lengths=lengths).log_partition()

    with pytest.raises((TypeError, RuntimeError, ValueError), match="lengths"):
        vmap(ask)(arcs, lengths)
    found = vmap(ask, in_dims=(0, None))(arcs, lengths[0])
    assert_close(found[1], ask(arcs[1], lengths[0]))


def chain_of_two(x):
    return Chain(x, torch.eye(2, dtype=x.dtype))


@pytest.mark.parametrize("build", [chain_of_two, SpanTree])
def test_the_maximum_has_derivatives_through_forward_mode(build):
    generator = torch.Generator().manual_seed(0)
    shape = (1, 3, 2) if build is chain_of_two else (1, 3, 3)
    x = torch.randn(shape, generator=generator, dtype=torch.float64)

    def cubed(x):
        return (build(x).decode()[0] ** 3).sum()

    assert_close(hessian(cubed)(x), jacrev(jacrev(cubed))(x))
    value, y = build(x).decode()
    parts = 3 * value**2 * grad(lambda x: build(x).score(y).sum())(x)
    assert_close(jacfwd(cubed)(x), parts)
    several = jvp(lambda x: vmap(cubed)(torch.stack([x, x])), (x,), (x,))[1]
    assert_close(several, (parts * x).sum().expand(2))


def test_an_output_that_is_not_there_has_no_tangent():
    x = torch.tensor([[[1.0, 0.0]]], dtype=torch.float64)
    ask = lambda x: chain_of_two(x).decode_topk(3)[0]  # noqa: E731
    values, moved = jvp(ask, (x,), (torch.ones_like(x),))
    assert values.tolist() == [[1, 0, -torch.inf]]
    assert moved.tolist() == [[1, 1, 0]]


def test_the_first_question_of_a_circuit_may_be_one_of_the_k_best():
    # of a size that no other test has
    spans = torch.randn(1, 11, 11, generator=torch.Generator().manual_seed(0))
    found = grad(lambda x: SpanTree(x).decode_topk(2)[0].sum())(spans)
    assert found.sum() == 2 * 21


@pytest.mark.parametrize(("kind", "question"), thinned(CASES, 9, 2))
def test_batches_of_gradients_are_those_of_one_after_another(kind, question):
    case = draw(kind, 0)
    name, x = next(iter(case.potentials.items()))
    free = x.clone().requires_grad_()
    structure = case.structure(**{**case.potentials, name: free})
    value = (QUESTIONS | SUMS)[question](structure, first_outputs(case))
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(2, *value.shape, generator=generator, dtype=value.dtype)
    (found,) = torch.autograd.grad(
        value, free, weights, is_grads_batched=True, retain_graph=True
    )
    each = [torch.autograd.grad(value, free, w, retain_graph=True)[0] for w in weights]
    assert_close(found, torch.stack(each))


def test_gradients_may_have_a_negative_bit():
    generator = torch.Generator().manual_seed(0)
    arcs = torch.randn(1, 3, 3, generator=generator, dtype=torch.float64)
    arcs.requires_grad_()
    chances = SpanningTree(arcs).marginals()
    weights = torch.randn(1, 3, 3, generator=generator, dtype=torch.complex128)
    weights = weights.conj().imag
    found, expected = (
        torch.autograd.grad(chances, arcs, x, retain_graph=True)
        for x in (weights, weights.resolve_neg().clone())
    )
    assert_close(found, expected)
