"""Weights, reductions and state of the loss modules."""

import itertools
import math
from types import NoneType

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from smoothsp.losses import L2, CRFLoss, Entropy, StructuralHinge, StructuredPerceptron
from smoothsp.oracles import Chain, Multiclass, Summed
from tests.instances.strategies import every_structure, structure
from tests.sweeps import thinned
from tests.truth.chain_cases import Case
from tests.truth.losses import GOLD, SMALL, draw_problem, place

LOSSES = {
    "hinge": StructuralHinge,
    "hinge-l2": lambda **options: StructuralHinge(L2(2.0, 3), **options),
    "hinge-entropy": lambda **options: StructuralHinge(Entropy(2.0), **options),
    "crf": CRFLoss,
    "perceptron": StructuredPerceptron,
}
every_loss = pytest.mark.parametrize("name", LOSSES)


def class_means(case: Case, y: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Mean class weight of the gold labels of each row, one where there are none."""
    means = []
    for b, row in enumerate(case):
        labels = row.outputs[place(row, y[b])].reshape(-1)
        labels = labels[labels >= 0]
        means.append(weights[labels].mean() if len(labels) else torch.tensor(1.0))
    return torch.stack(means).double()


def positions(case: Case) -> torch.Tensor:
    """Number of labels of each row."""
    real = case.real
    return (real.sum(1) if hasattr(case, "emissions") else real.any(1)).double()


@pytest.mark.parametrize(
    ("kind", "name"), thinned(itertools.product(("chain", "multiclass"), LOSSES), 3)
)
@given(st.data(), st.booleans(), st.booleans())
def test_reductions_are_weighted_means(kind, name, data, weighted, by_class):
    case, y = draw_problem(data, kind, spreads=("normal",), min_batch=1)
    S = case.parts.shape[-1]
    weight = torch.linspace(0.5, 2.0, len(case)).double() if weighted else None
    class_weight = torch.linspace(0.2, 3.0, S).double() if by_class else None
    built = structure(case)

    def ask(reduction: str, class_weight: object = class_weight) -> torch.Tensor:
        loss = LOSSES[name](reduction=reduction, class_weight=class_weight)
        return loss(built, y, weight=weight)

    plain = LOSSES[name](reduction="none")(built, y)
    factor = torch.ones(len(case)).double() if weight is None else weight
    if by_class:
        factor = factor * class_means(case, y, class_weight)
    each = plain * factor
    assert_close(ask("none"), each)
    assert_close(ask("sum"), each.sum())
    assert_close(ask("mean"), each.sum() / factor.sum())
    tokens = (factor * positions(case)).sum()
    expected = each.sum() / tokens if tokens > 0 else torch.tensor(0.0).double()
    assert_close(ask("token_mean"), expected)


@every_loss
def test_a_batch_without_examples_or_labels_costs_nothing(name):
    emissions = torch.zeros(0, 3, 2, requires_grad=True)
    transitions = torch.zeros(2, 2, requires_grad=True)
    none = torch.zeros(0, 3, dtype=torch.int64)
    masked = Chain(
        torch.full((2, 3, 2), math.nan),
        transitions,
        mask=torch.zeros(2, 3, dtype=torch.bool),
    )
    for reduction in ("sum", "mean", "token_mean"):
        loss = LOSSES[name](reduction=reduction)
        for built, y in (
            (Chain(emissions, transitions), none),
            (masked, torch.full((2, 3), -100)),
            (Multiclass(torch.zeros(0, 3)), none[:, 0]),
        ):
            assert loss(built, y).item() == 0
        loss(Chain(emissions, transitions), none).backward()
        assert (transitions.grad == 0).all()
        assert loss(masked, torch.full((2, 3), -100)).item() == 0


@every_loss
@pytest.mark.parametrize("of_chain", [True, False])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean", "token_mean"])
def test_a_row_of_weight_zero_adds_nothing_even_if_its_gold_is_forbidden(
    name, of_chain, reduction
):
    scores = torch.tensor([[[0.0, -math.inf]], [[1.0, 0.5]]]).double().requires_grad_()
    y, weight = torch.tensor([[1], [0]]), torch.tensor([0.0, 2.0])
    if of_chain:
        both = Chain(scores, torch.zeros(2, 2).double())
    else:
        both, y = Multiclass(scores[:, 0]), y[:, 0]
    loss = LOSSES[name](reduction=reduction)
    found = loss(both, y, weight=weight)
    alone = loss(both.select(torch.tensor([1])), y[1:], weight=weight[1:])
    assert_close(found, torch.cat([found[:1], alone]) if found.dim() else alone)
    assert not found.dim() or found[0] == 0
    (grad,) = torch.autograd.grad(found.sum(), scores)
    assert not grad[0].any() and grad.isfinite().all()
    assert loss(both, y).sum() == math.inf


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("question", ["violation", "log_likelihood"])
def test_sums_over_rows_leave_out_forbidden_rows_of_weight_zero(question, traced):
    """Asked by name, in one call or, with weights to be learnt, row by row."""
    scores = torch.tensor([[[0.0, -math.inf]], [[1.0, 0.5]]])
    chain = Chain(scores.requires_grad_(), torch.zeros(2, 2))
    weight = torch.tensor([0.0, 2.0], requires_grad=traced)
    y = torch.tensor([[1], [0]])
    found = getattr(chain, question)(y, weight)
    alone = getattr(chain.select(torch.tensor([1])), question)(y[1:], weight[1:])
    assert_close(found, alone)
    (grad,) = torch.autograd.grad(found, scores)
    assert not grad[0].any() and grad.isfinite().all()
    assert getattr(chain, question)(y, 0.0) == 0
    assert not getattr(chain, question)(y).isfinite()


@every_loss
@every_structure
def test_the_reduced_loss_passes_its_weights_to_the_gradient(kind, name):
    case, y = SMALL[kind], GOLD[kind]
    weight = torch.tensor([0.25, 3.0]).double()
    one, other = case.leaves(), case.leaves()
    LOSSES[name]()(structure(one), y, weight=weight).backward()
    each = LOSSES[name](reduction="none")(structure(other), y)
    ((each * weight).sum() / weight.sum()).backward()
    for key, gradient in other.gradients().items():
        assert_close(one.gradients()[key], gradient)


@every_structure
def test_mu_may_change_between_steps(kind):
    case, y = SMALL[kind], GOLD[kind]
    for smoothing in (Entropy(1.0), L2(1.0, 3)):
        loss = StructuralHinge(smoothing)
        first = loss(structure(case), y)
        loss.smoothing.mu = 4.0
        second = loss(structure(case), y)
        fresh = StructuralHinge(type(smoothing)(**vars(smoothing)))
        assert second > first
        assert_close(fresh(structure(case), y), second)


@every_structure
def test_the_cost_of_a_call_replaces_that_of_the_constructor(kind):
    case, y = SMALL[kind], GOLD[kind]
    built = structure(case)
    cost = 2 * built.hamming(y)
    by_call = StructuralHinge()(built, y, cost=cost)
    assert_close(by_call, StructuralHinge(cost_scale=2.0)(built, y))
    assert_close(by_call, StructuralHinge(cost=cost)(built, y))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Entropy(0.0), ValueError, "mu: "),
        (lambda: L2(-1.0, 3), ValueError, "mu: "),
        (lambda: L2(1.0, 0), ValueError, "k: "),
        (lambda: L2(1.0, 2.5), TypeError, "k: "),
        (lambda: L2(1.0, "exact", max_k=0), ValueError, "max_k: "),
        (lambda: CRFLoss(reduction="avg"), ValueError, "reduction: "),
        (lambda: hinge(cost=torch.ones(2, 3)), ValueError, "cost: "),
        (lambda: hinge(class_weight=torch.ones(5)), ValueError, "class_weight: "),
        (lambda: hinge(weight=torch.ones(3)), ValueError, "weight: "),
        (
            lambda: hinge(class_weight=torch.tensor([1.0, math.nan])),
            ValueError,
            "class_weight: expected finite numbers, got nan at 1",
        ),
    ],
)
def test_bad_arguments_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


@every_loss
def test_weights_that_are_no_numbers_are_refused_and_not_passed_on(name):
    case, y = SMALL["chain"], GOLD["chain"]
    for reduction in ("none", "sum", "mean", "token_mean"):
        for wrong in (math.nan, math.inf, -math.inf):
            weight = torch.tensor([1.0, wrong])
            with pytest.raises(ValueError, match=r"^weight: expected finite.* at 1"):
                LOSSES[name](reduction=reduction)(structure(case), y, weight=weight)


def test_class_weights_of_small_integers_and_large_products_are_exact():
    chain = Chain(torch.zeros(1, 4, 2), torch.zeros(2, 2))
    y = torch.zeros(1, 4, dtype=torch.int64)
    plain = CRFLoss(reduction="none")(chain, y)
    heavy = torch.tensor([200, 1], dtype=torch.uint8)
    assert_close(CRFLoss(heavy, reduction="none")(chain, y), 200 * plain)
    weight = torch.tensor([3e38])
    assert_close(CRFLoss(torch.tensor([4.0, 1.0]))(chain, y, weight), plain[0])


def hinge(weight: torch.Tensor | None = None, **options: object) -> torch.Tensor:
    case, y = SMALL["chain"], GOLD["chain"]
    return StructuralHinge(**options)(structure(case), y, weight=weight)


class OfItsOwn(Multiclass):
    """A user's structure, with methods that mean something else."""

    def violation(self, *arguments: object) -> None:
        """Never called by a loss."""
        raise AssertionError(arguments)

    log_likelihood = violation


class SumsItself(Multiclass, Summed):
    """A structure that says that it sums over rows."""

    def violation(self, y, weight=1.0, cost_scale=1.0):
        """Twice the sum, to be told from the formulas."""
        costly = self.augment(self.hamming(y) * cost_scale)
        return 2 * ((costly.decode()[0] - self.score(y)) * weight).sum()

    def log_likelihood(self, y, weight=1.0):
        """Twice the sum."""
        return 2 * (self.log_prob(y) * weight).sum()


@every_loss
@pytest.mark.parametrize("reduction", ["none", "sum", "mean", "token_mean"])
def test_only_a_structure_that_says_so_is_asked_for_sums(name, reduction):
    case, y = SMALL["multiclass"], GOLD["multiclass"]
    loss = LOSSES[name](reduction=reduction)
    plain = loss(structure(case), y)
    assert_close(loss(OfItsOwn(case.scores, mask=case.mask), y), plain)
    smoothed = not isinstance(getattr(loss, "smoothing", None), NoneType)
    factor = 1 if reduction == "none" or smoothed else 2
    assert_close(loss(SumsItself(case.scores, mask=case.mask), y), factor * plain)


class OfOneLabel(Chain):
    """A user's chain whose only output has the same label throughout."""

    def __init__(self, emissions, transitions, label):
        super().__init__(emissions, transitions)
        self.label = label

    def hamming(self, y):
        return 2 * super().hamming(y)

    def decode(self):
        y = torch.full(self.emissions.shape[:2], self.label)
        return self.score(y), y

    def log_prob(self, y):
        return self.score(y) - self.decode()[0]


def test_losses_call_what_a_subclass_overrides():
    emissions = torch.randn(2, 3, 4)
    emissions[..., 1] += 9
    chain = OfOneLabel(emissions, torch.randn(4, 4), 1)
    gold = torch.tensor([[1, 1, 1], [1, 1, 0]])
    ahead = chain.score(torch.ones_like(gold)) - chain.score(gold)
    for reduction in ("sum", "none"):
        hinge = StructuralHinge(reduction=reduction)(chain, gold)
        assert_close(hinge.sum(), ahead.sum() + 2)
        assert_close(CRFLoss(reduction=reduction)(chain, gold).sum(), ahead.sum())


def test_a_structure_that_cannot_answer_is_named():
    class OnlyMax:
        """A structure that decodes and no more."""

        def __init__(self, inner: Multiclass) -> None:
            self.lengths, self.inner = inner.lengths, inner
            self.score, self.hamming = inner.score, inner.hamming
            self.decode, self.select = inner.decode, inner.select

        def augment(self, cost: torch.Tensor) -> "OnlyMax":
            return OnlyMax(self.inner.augment(cost))

    case, y = SMALL["multiclass"], GOLD["multiclass"]
    only = OnlyMax(structure(case))
    assert_close(StructuralHinge()(only, y), StructuralHinge()(structure(case), y))
    with pytest.raises(TypeError, match="structure: "):
        StructuralHinge(L2(1.0, 2))(only, y)
    with pytest.raises(TypeError, match="structure: "):
        StructuralHinge(Entropy(1.0))(only, y)
