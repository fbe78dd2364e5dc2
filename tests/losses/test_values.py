"""Values and gradients of the losses, by enumeration and from golden numbers."""

import itertools
import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.autograd import gradcheck
from torch.testing import assert_close

from smoothsp.losses import L2, Entropy, StructuralHinge
from smoothsp.losses import functional as F
from smoothsp.oracles import Chain, Multiclass
from tests.instances.strategies import every_structure, generators, structure
from tests.sweeps import thinned
from tests.truth.chain_cases import ChainCase
from tests.truth.losses import (
    GOLD,
    SMALL,
    draw_problem,
    every_smoothed_structure,
    place,
    projection,
    smooth_max,
    wrong,
)

CLOSE = {"rtol": 1e-8, "atol": 1e-8}
TOY = ChainCase(
    torch.tensor([[[1, 0], [0, 0.5], [0.2, 0]]], dtype=torch.float64),
    torch.tensor([[0.3, -0.2], [0, 0.4]], dtype=torch.float64),
)


@every_smoothed_structure
@given(st.data(), st.sampled_from([0.0, 1.0, 2.5]))
def test_the_hinge_is_the_enumerated_formula(kind, smoothing, data, cost_scale):
    case, y = draw_problem(data, kind)
    found = F.structural_hinge(
        structure(case), y, smoothing=smoothing, cost_scale=cost_scale
    )
    free = F.structural_hinge(structure(case), y, smoothing=smoothing, cost=None)
    assert found.shape == free.shape == (len(case),)
    for b, row in enumerate(case):
        gold = row.scores[place(row, y[b])]
        z = row.scores + cost_scale * wrong(row, y[b])
        assert_close(found[b], smooth_max(z, smoothing) - gold, **CLOSE)
        assert_close(free[b], smooth_max(row.scores, smoothing) - gold, **CLOSE)


@every_structure
@given(st.data())
def test_the_crf_loss_and_the_perceptron_are_the_enumerated_formulas(kind, data):
    case, y = draw_problem(data, kind)
    crf, perceptron = (f(structure(case), y) for f in (F.crf_nll, F.perceptron))
    for b, row in enumerate(case):
        gold = row.scores[place(row, y[b])]
        assert_close(crf[b], row.log_partition() - gold, **CLOSE)
        assert_close(perceptron[b], row.maximum() - gold, **CLOSE)


@pytest.mark.parametrize("smoothing", [None, Entropy(0.7), L2(1.5, 3)], ids=str)
@pytest.mark.parametrize("kind", thinned(["chain", "multiclass"], 2))
@given(st.data())
def test_any_cost_tensor_enters_the_formula(kind, smoothing, data):
    case, y = draw_problem(data, kind, spreads=("ties", "normal"))
    generator = data.draw(generators())
    cost = torch.randn(case.parts.shape, generator=generator, dtype=torch.float64)
    found = F.structural_hinge(
        structure(case), y, smoothing=smoothing, cost=cost, cost_scale=2.0
    )
    for b, row in enumerate(case):
        z = row.scores + 2.0 * row.cost(cost[b])
        gold = row.scores[place(row, y[b])]
        assert_close(found[b], smooth_max(z, smoothing) - gold, **CLOSE)


@every_smoothed_structure
def test_the_gradient_is_the_derivative_of_the_value(kind, smoothing):
    case = SMALL[kind]
    leaves = case.leaves().potentials()

    def loss(*potentials: torch.Tensor) -> torch.Tensor:
        built = structure(case.replace(**dict(zip(leaves, potentials, strict=True))))
        return F.structural_hinge(built, GOLD[kind], smoothing=smoothing)

    assert gradcheck(loss, tuple(leaves.values()))


@pytest.mark.parametrize(
    ("kind", "smoothing"),
    thinned(
        itertools.product(
            ("chain", "multiclass"), (Entropy(2.0), L2(3.0, 2), L2(3.0, "exact"))
        ),
        2,
    ),
)
@given(st.data())
def test_the_gradient_is_expected_minus_gold_parts(kind, smoothing, data):
    case, y = draw_problem(data, kind, spreads=("normal",), min_batch=1)
    ours, theirs = case.leaves(), case.leaves()
    F.structural_hinge(structure(ours), y, smoothing=smoothing).sum().backward()
    for b, row in enumerate(theirs):
        z = (row.scores + wrong(row, y[b])).detach()
        u = torch.zeros_like(z)
        if isinstance(smoothing, Entropy):
            u = (z / smoothing.mu).softmax(0)
        else:
            k = row.count() if smoothing.k == "exact" else min(smoothing.k, row.count())
            best = z.sort(descending=True).indices[:k]
            u[best] = projection(z[best], smoothing.mu)
        value = (u * row.scores)[u > 0].sum() - row.scores[place(row, y[b])]
        if value.requires_grad:
            value.backward()
    for name, gradient in theirs.gradients().items():
        assert_close(ours.gradients()[name], gradient, rtol=1e-7, atol=1e-7)


def test_golden_numbers_of_the_toy_chain():
    y, built = torch.tensor([[0, 0, 0]]), structure(TOY)
    close = {"rtol": 0, "atol": 1e-10}

    def smooth(smoothing: object) -> float:
        value = F.structural_hinge(built, y, smoothing=smoothing, cost=None)
        return value.item() + 1.8

    assert_close(smooth(None), 1.8, **close)
    assert_close(smooth(Entropy(1.0)), 3.3375603089, **close)
    for k in (3, 4, 8, "exact"):
        assert_close(smooth(L2(1.0, k)), 2.0233333333, **close)
    assert_close(smooth(L2(1.0, 2)), 2.0025, **close)
    assert_close(built.marginals()[0, 0, 1].item(), 0.3247174530, **close)
    _, weights = F.max_l2(built.decode_topk(3)[0], 1.0)
    assert_close(
        weights, torch.tensor([[1.4, 1.1, 0.5]], dtype=torch.float64) / 3, **close
    )


@given(st.data(), st.sampled_from([0.4, 3.0]), st.integers(1, 6))
def test_exact_is_reported_iff_the_topk_loss_is_the_whole_l2_loss(data, mu, k):
    case, y = draw_problem(
        data, "chain", spreads=("normal",), min_batch=1, forbid=False, poison=False
    )
    criterion = StructuralHinge(L2(mu, k), reduction="none")
    some, whole = case.leaves(), case.leaves()
    found = criterion(structure(some), y)
    assert criterion.exact.shape == (len(case),)
    assert criterion.exact.dtype == torch.bool
    exact = F.structural_hinge(structure(whole), y, smoothing=L2(mu, "exact"))
    ours = torch.autograd.grad(found.sum(), some.emissions)[0]
    theirs = torch.autograd.grad(exact.sum(), whole.emissions)[0]
    for b in range(len(case)):
        z = torch.sort(case.row(b).scores + wrong(case.row(b), y[b])).values.flip(0)
        margin = mu - (z[:k] - z[k]).sum().item() if len(z) > k else -1.0
        assume(abs(margin) > 1e-6)
        assert criterion.exact[b].item() == (margin < 0)
        same = torch.allclose(ours[b], theirs[b], rtol=0, atol=1e-9)
        same = same and math.isclose(found[b].item(), exact[b].item(), abs_tol=1e-9)
        # Equal losses and node marginals may hide different weights; not the reverse.
        assert same or margin > 0


def test_exact_k_stops_at_max_k_and_says_so():
    ties = ChainCase(torch.zeros(2, 5, 3).double(), torch.zeros(3, 3).double())
    ties = ties.replace(lengths=torch.tensor([5, 1]))
    criterion = StructuralHinge(L2(1.0, "exact", max_k=50), cost=None, reduction="none")
    found = criterion(structure(ties), torch.zeros(2, 5, dtype=torch.int64))
    assert criterion.exact.tolist() == [False, True]
    # Uniform weights over k equal outputs: mu / 2 (1 - 1 / k) above the maximum.
    expected = torch.tensor([0.5 * (1 - 1 / 50), 0.5 * (1 - 1 / 3)]).double()
    assert_close(found, expected)


@pytest.mark.parametrize("mu", [1e-3, 1e-13, 1e-30])
def test_scores_far_beyond_mu_give_the_hinge_that_smoothing_approaches(mu):
    scores = torch.tensor([[0.0, -2e9], [1.0, 2.0]], dtype=torch.float64)
    chain = Chain(scores[:, None], torch.zeros(2, 2, dtype=torch.float64))
    for built, y in ((Multiclass(scores), [1, 0]), (chain, [[1], [0]])):
        gold = torch.tensor(y)
        found = F.structural_hinge(built, gold, smoothing=Entropy(mu))
        assert_close(found, F.structural_hinge(built, gold), rtol=0, atol=0)
        assert found.isfinite().all()
