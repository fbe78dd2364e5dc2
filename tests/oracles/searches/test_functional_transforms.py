"""Questions to searches under ``torch.func``, forward derivatives, and on devices."""

import pytest
import torch
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.testing import assert_close

from smoothsp.losses import StructuralHinge
from tests.truth.circuits.cases import SEARCHES, SUMMED, draw

# PyTorch's own, once, when forward derivatives are first taken
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script.:FutureWarning")
every_kind = pytest.mark.parametrize("kind", SEARCHES)


def weights(x):
    return torch.linspace(0.5, 2, x.numel(), dtype=x.dtype).reshape(x.shape)


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
    found = torch.autograd.grad(ask(free), list(free.values()), allow_unused=True)
    pairs = zip(free.items(), found, strict=True)
    return {n: torch.zeros_like(x) if g is None else g for (n, x), g in pairs}


CASES = [(kind, q) for kind in SEARCHES for q in QUESTIONS]
CASES += [(kind, q) for kind in SUMMED for q in SUMS]


@pytest.mark.parametrize(("kind", "question"), CASES)
def test_derivatives_of_all_modes_are_those_of_autograd(kind, question):
    case = draw(kind, 0, forbid=False)
    ask = asked(case, question)
    expected = by_autograd(ask, case.potentials)
    assert_close(grad(ask)(case.potentials), expected)
    value, back = vjp(ask, case.potentials)
    assert_close(back(torch.ones_like(value))[0], expected)
    along = {name: weights(x).cos() for name, x in case.potentials.items()}
    forward = jvp(ask, (case.potentials,), (along,))
    slopes = sum((expected[n] * along[n]).sum() for n in expected)
    assert_close(forward, (ask(case.potentials), slopes))


@pytest.mark.parametrize(("kind", "question"), CASES)
def test_mapped_questions_are_those_of_each(kind, question):
    case = draw(kind, 0, forbid=False)
    ask = asked(case, question)
    change = (0.5, 1.0, 2.0)
    many = {n: torch.stack([c * x for c in change]) for n, x in case.potentials.items()}
    found, slopes = vmap(ask)(many), vmap(grad(ask))(many)
    for i in range(len(change)):
        one = {name: x[i] for name, x in many.items()}
        assert_close(found[i], ask(one))
        for name, slope in by_autograd(ask, one).items():
            assert_close(slopes[name][i], slope)


@every_kind
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


@pytest.mark.long
@pytest.mark.parametrize("kind", SUMMED)
def test_second_derivatives_in_any_order_of_modes_agree(kind):
    case = draw(kind, 0, forbid=False)
    # of all rows, whose second derivatives are a table, the one of most outputs
    case = case.row(max(range(len(case)), key=lambda b: len(case.outputs[b])))
    name, scores = next(iter(case.potentials.items()))

    def ask(scores):
        return asked(case, "log_partition")({name: scores})

    expected = torch.autograd.functional.hessian(ask, scores)
    assert expected.abs().max() > 1e-2
    for found in (hessian(ask), jacrev(jacrev(ask)), jacrev(jacfwd(ask))):
        assert_close(found(scores), expected)
    with pytest.raises(RuntimeError, match="can be differentiated twice"):
        jacrev(jacrev(jacrev(ask)))(scores)


@pytest.mark.parametrize("kind", SUMMED)
def test_mapped_draws_are_outputs(kind):
    case = draw(kind, 0, forbid=False)
    name, scores = next(iter(case.potentials.items()))
    many = torch.stack([scores] * 2)
    drawn = vmap(
        lambda x: case.structure(**{name: x}).sample(3), randomness="different"
    )
    for ys in drawn(many):
        assert case.structure().score(ys).isfinite().all()
