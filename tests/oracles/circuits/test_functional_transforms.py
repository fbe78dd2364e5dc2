"""Questions to circuits under ``torch.func`` and forward derivatives."""

import itertools

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap
from torch.testing import assert_close

from smoothsp.losses import L2, CRFLoss, Entropy, StructuralHinge
from smoothsp.oracles import ProjectiveDependencies, SpanTree
from tests.sweeps import thinned
from tests.truth.circuits.cases import KINDS, draw

# PyTorch's own, once, when forward derivatives are first taken
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script.:FutureWarning")


def weights(x):
    return torch.linspace(0.5, 2, x.numel(), dtype=x.dtype).reshape(x.shape)


def first_outputs(case):
    return torch.stack([outputs[0] for outputs in case.outputs])


QUESTIONS = {
    "decode": lambda s, y: s.decode()[0],
    "decode_topk": lambda s, y: s.decode_topk(2)[0].clamp(min=-1e3),
    "log_partition": lambda s, y: s.log_partition(),
    "marginals": lambda s, y: s.marginals(),
    "entropy": lambda s, y: s.entropy(),
    "score": lambda s, y: s.score(y),
    "log_prob": lambda s, y: s.log_prob(y),
}
# a step that shares no factor with the number of questions meets all of each
every_question_of_every_kind = pytest.mark.parametrize(
    ("kind", "question"), thinned(itertools.product(KINDS, QUESTIONS), 3)
)


def asked(case, question):
    """A function of the potentials to a weighted sum of the answers."""
    y = first_outputs(case)

    def ask(potentials):
        found = QUESTIONS[question](case.structure(**potentials), y)
        return (weights(found) * found).sum()

    return ask


def by_autograd(ask, potentials):
    free = {name: x.clone().requires_grad_() for name, x in potentials.items()}
    found = torch.autograd.grad(ask(free), list(free.values()), allow_unused=True)
    pairs = zip(free.items(), found, strict=True)
    return {n: torch.zeros_like(x) if g is None else g for (n, x), g in pairs}


@every_question_of_every_kind
def test_gradients_are_those_of_autograd(kind, question):
    case = draw(kind, 0, forbid=True)
    ask = asked(case, question)
    expected = by_autograd(ask, case.potentials)
    assert_close(grad(ask)(case.potentials), expected)


@every_question_of_every_kind
def test_forward_derivatives_are_those_of_backward(kind, question):
    case = draw(kind, 3)
    case = case.map(lambda x: x.clamp(-4, 4))
    ask = asked(case, question)
    along = {name: weights(x).cos() for name, x in case.potentials.items()}
    slopes = by_autograd(ask, case.potentials)
    expected = sum((slopes[n] * along[n]).sum() for n in slopes)
    value, found = jvp(ask, (case.potentials,), (along,))
    assert_close(value, ask(case.potentials))
    assert_close(found, expected)
    with forward_ad.dual_level():
        duals = {
            n: forward_ad.make_dual(x, along[n]) for n, x in case.potentials.items()
        }
        found = forward_ad.unpack_dual(ask(duals)).tangent
    assert_close(found, expected)


@pytest.mark.parametrize("kind", ["projective", "tree", "span_tree_labelled"])
def test_hessians_in_any_order_of_modes_agree(kind):
    case = draw(kind, 0).map(lambda x: x.clamp(-3, 3))
    name, x = next(iter(case.potentials.items()))

    def ask(x):
        return asked(case, "log_partition")({**case.potentials, name: x})

    expected = torch.autograd.functional.hessian(ask, x)
    assert expected.abs().max() > 1e-2
    for found in (hessian(ask), jacrev(jacrev(ask)), jacrev(jacfwd(ask))):
        assert_close(found(x), expected)


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


@pytest.mark.parametrize("question", QUESTIONS)
def test_shared_potentials_mapped_too(question):
    case = draw("semi_markov", 0)
    many = {
        name: torch.stack([x, 0.5 * x, -x], x.dim())
        for name, x in case.potentials.items()
    }
    found = vmap(asked(case, question), in_dims=(dict.fromkeys(many, -1),))(many)
    for i in range(3):
        one = {name: x.select(-1, i) for name, x in many.items()}
        assert_close(found[i], asked(case, question)(one))


def test_draws_under_transforms():
    spans = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    trees = vmap(lambda x: SpanTree(x).sample(2), randomness="different")(spans)
    assert trees.shape == (2, 3, 2, 4, 4)
    for x, y in zip(spans, trees, strict=True):
        assert (SpanTree(x).score(y) > -torch.inf).all()


def test_lengths_are_not_mapped():
    arcs = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    lengths = torch.tensor([[3, 2, 1], [1, 1, 1]])

    def ask(arcs, lengths):
        return ProjectiveDependencies(arcs, lengths=lengths).log_partition()

    with pytest.raises((TypeError, RuntimeError, ValueError), match="lengths"):
        vmap(ask)(arcs, lengths)
    found = vmap(ask, in_dims=(0, None))(arcs, lengths[0])
    assert_close(found[1], ask(arcs[1], lengths[0]))
