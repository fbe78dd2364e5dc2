"""Losses that ask for nothing but best outputs, against the list of all of them."""

import math

import pytest
import torch
from torch.testing import assert_close

from smoothsp.losses import (
    CRFLoss,
    MinimumRisk,
    Perturbed,
    PerturbedLoss,
    RankingHinge,
    SparseMAP,
    SparseMAPLoss,
    SPOPlus,
    regret,
)
from smoothsp.oracles import BoxSearch, Chain, Matching, Multiclass
from smoothsp.oracles._inference.parts import part_counts
from smoothsp.projections import project_simplex
from tests.sweeps import thinned
from tests.truth.circuits.cases import KINDS, SUMMED, draw

CLOSE = {"rtol": 1e-9, "atol": 1e-9}
# the losses are the same functions of any structure
every_kind = pytest.mark.parametrize("kind", thinned([*KINDS, *SUMMED], 3))


def small(kind, seed=0, forbid=False):
    """A case whose potentials are about as far apart as the strength."""
    return draw(kind, seed, forbid=forbid).map(
        lambda x: torch.where(x.isinf(), x, x.sin())
    )


def first(case):
    return next(iter(case.potentials))


def columns(case, b):
    """What each output uses of the first potentials, ``[outputs, parts]``."""
    name, found = first(case), []
    for y in case.outputs[b]:
        parts = torch.zeros_like(case.potentials[name][b])
        for part, place in case.parts(b, y):
            if part == name:
                parts[place[1:]] += 1
        found.append(parts.flatten())
    return torch.stack(found)


def gold(case, place=0):
    """A feasible output of each row."""
    rows = []
    for b, outputs in enumerate(case.outputs):
        feasible = (case.scores(b) > -math.inf).nonzero().flatten()
        rows.append(outputs[int(feasible[place % len(feasible)])])
    return torch.stack(rows)


@every_kind
def test_parts_are_those_that_outputs_use(kind):
    case = small(kind)
    y = gold(case, 1)
    expected = torch.stack(
        [
            columns(case, b)[
                [torch.equal(x, y[b]) for x in case.outputs[b]].index(True)
            ]
            for b in range(len(y))
        ]
    )
    assert_close(part_counts(case.structure(), y).flatten(1), expected)


@pytest.mark.parametrize("strength", thinned([1.0, 0.1, 30.0], 3))
@every_kind
def test_no_output_is_better_than_the_sparse_mixture(kind, strength):
    case = small(kind, forbid=strength == 1.0)
    sparse = SparseMAP(case.structure(), strength=strength)
    mixture, value = sparse.marginals().flatten(1), sparse.maximum()
    assert_close(sparse.weights.sum(1), torch.ones(len(case)).double(), **CLOSE)
    assert (sparse.weights >= 0).all()
    for b in range(len(case)):
        scores, parts = case.scores(b), columns(case, b)
        weighed = torch.zeros_like(scores)
        for weight, y in zip(sparse.weights[b], sparse.outputs[b], strict=True):
            weighed[case.index(b, y)] += weight
        assert (weighed[scores == -math.inf] == 0).all()
        assert_close(mixture[b], weighed @ parts, **CLOSE)
        kept = scores.masked_fill(weighed == 0, 0)
        objective = weighed @ kept - strength / 2 * mixture[b].square().sum()
        assert_close(value[b], objective, **CLOSE)
        # the slope of the objective is highest at the outputs with weight
        slope = scores - strength * parts @ mixture[b]
        assert slope.max() <= weighed @ slope.masked_fill(weighed == 0, 0) + 1e-9
        assert sparse.gap[b] <= 1e-9


@pytest.mark.parametrize("kind", thinned([*KINDS, *SUMMED], 8))
def test_derivatives_of_the_sparse_mixture_are_finite_differences(kind):
    case = small(kind)
    one = case.row(0)

    def marginals(*potentials):
        names = dict(zip(one.potentials, potentials, strict=True))
        return SparseMAP(one.structure(**names), strength=0.7).marginals()

    def maximum(*potentials):
        names = dict(zip(one.potentials, potentials, strict=True))
        return SparseMAP(one.structure(**names), strength=0.7).maximum()

    leaves = tuple(one.leaves().potentials.values())
    assert torch.autograd.gradcheck(marginals, leaves, fast_mode=True)
    assert torch.autograd.gradcheck(maximum, leaves, fast_mode=True)
    assert torch.autograd.gradgradcheck(maximum, leaves, fast_mode=True)


def test_of_a_choice_the_mixture_is_the_projection_onto_the_simplex():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(20, 30, generator=generator, dtype=torch.float64)
    found = SparseMAP(Multiclass(scores), strength=0.5).marginals()
    assert_close(found, project_simplex(scores / 0.5), **CLOSE)
    equal = SparseMAP(Multiclass(torch.zeros(1, 40)))
    assert_close(equal.marginals(), torch.full((1, 40), 1 / 40))
    assert equal.outputs.shape == (1, 40)


def test_a_search_that_is_cut_short_says_by_how_much():
    scores = torch.zeros(2, 6).double()
    cut = SparseMAP(Multiclass(scores), max_outputs=3)
    whole = SparseMAP(Multiclass(scores))
    missing = whole.maximum() - cut.maximum()
    assert (missing > 0.01).all()
    assert (missing <= cut.gap + 1e-12).all()


@every_kind
def test_the_sparse_loss_is_never_negative_and_0_at_the_mixture_of_one(kind):
    case = small(kind)
    y = gold(case, 1)
    leaves = case.leaves()
    loss = SparseMAPLoss(cost="hamming", reduction="none")(leaves.structure(), y)
    assert (loss >= 0).all()
    sparse = SparseMAP(case.structure().augment(case.structure().hamming(y)))
    slope = torch.autograd.grad(loss.sum(), leaves.potentials[first(case)])[0]
    own = torch.stack([columns(case, b)[case.index(b, y[b])] for b in range(len(case))])
    expected = sparse.marginals().flatten(1) - own
    assert_close(slope.flatten(1), expected, **CLOSE)
    # ahead by far more than the strength
    best = case.structure().decode()[1]
    ahead = case.map(lambda x: x * 1e5).structure()
    top, _, there = ahead.decode_topk(2)
    clear = ~there[:, 1] | (top[:, 0] - top[:, 1] > 100)
    found = SparseMAPLoss(reduction="none")(ahead, best)
    assert_close(found[clear], torch.zeros_like(found[clear]))


@pytest.mark.parametrize("noise", ["normal", "gumbel"])
def test_perturbed_answers_are_averages_over_the_noise(noise):
    case = small("tree")
    generator = torch.Generator().manual_seed(0)
    found = Perturbed(case.structure(), 7, 0.8, noise, generator)
    generator = torch.Generator().manual_seed(0)
    name = first(case)
    x = case.potentials[name]
    shape = (len(case), 7, *x.shape[1:])
    if noise == "normal":
        z = torch.randn(shape, generator=generator, dtype=torch.float64)
    else:
        u = torch.rand(shape, generator=generator, dtype=torch.float64)
        z = -(-u.log()).log() - 0.5772156649015329
    values, shares = [], []
    for m in range(7):
        moved = case.map(lambda x: x)
        moved.potentials[name] = x + 0.8 * z[:, m]
        value, y = moved.structure().decode()
        values.append(value)
        shares.append([columns(case, b)[case.index(b, y[b])] for b in range(len(case))])
        assert torch.equal(found.outputs[:, m], y)
    assert_close(found.maximum(), torch.stack(values).mean(0), **CLOSE)
    mean = torch.stack([torch.stack(s) for s in shares]).mean(0)
    assert_close(found.marginals().flatten(1), mean, **CLOSE)


@pytest.mark.parametrize("noise", ["normal", "gumbel"])
def test_perturbed_gradients_are_those_of_the_expectation(noise):
    scores = torch.tensor([[0.3, -0.2, 0.1]], dtype=torch.float64, requires_grad=True)
    way = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    n, sigma = 200_000, 0.7

    def perturbed(x):
        generator = torch.Generator().manual_seed(3)
        return Perturbed(Multiclass(x), n, sigma, noise, generator)

    found = perturbed(scores)
    (slope,) = torch.autograd.grad(found.maximum().sum(), scores, retain_graph=True)
    assert_close(slope, found.marginals().detach())
    (turn,) = torch.autograd.grad((found.marginals() * way).sum(), scores)
    if noise == "gumbel":
        # the Gumbel maximum is the softmax, at this temperature
        p = (scores / sigma).softmax(1)
        assert_close(found.marginals(), p, atol=0.005, rtol=0)
        (expected,) = torch.autograd.grad((p * way).sum(), scores)
    else:
        step = 0.05
        expected = torch.empty_like(turn)
        for j in range(3):
            e = step * torch.eye(3, dtype=torch.float64)[j]
            up, down = perturbed(scores.detach() + e), perturbed(scores.detach() - e)
            change = (up.marginals() - down.marginals()) @ way
            expected[0, j] = change.squeeze() / (2 * step)
    assert_close(turn, expected, atol=0.03, rtol=0)


def test_perturbed_losses_repeat_their_noise_if_there_is_a_seed():
    case = small("projective")
    y = gold(case)
    loss = PerturbedLoss(samples=5, seed=4, reduction="none")
    one, two = (loss(case.structure(), y) for _ in range(2))
    assert torch.equal(one, two)
    generator = torch.Generator().manual_seed(4)
    value = Perturbed(case.structure(), 5, generator=generator).maximum()
    assert_close(one, value - case.structure().score(y), **CLOSE)
    assert not torch.equal(one, PerturbedLoss(5, reduction="none")(case.structure(), y))


@every_kind
def test_minimum_risk_over_all_outputs_is_the_expected_cost(kind):
    case = small(kind, forbid=True)
    y = gold(case, 2)
    ours, truth = case.leaves(), case.leaves()
    loss = MinimumRisk(k=300, reduction="none", temperature=0.8)
    found = loss(ours.structure(), y)
    table = case.structure().hamming(y).flatten(1)
    total = 0
    for b in range(len(case)):
        scores = truth.scores(b)
        feasible = scores > -math.inf
        costs = columns(case, b) @ table[b]
        risk = ((scores[feasible] / 0.8).softmax(0) * costs[feasible]).sum()
        assert_close(found[b], risk, **CLOSE)
        total = total + risk
    found.sum().backward()
    total.backward()
    for name, x in truth.potentials.items():
        expected = torch.zeros_like(x) if x.grad is None else x.grad
        assert_close(ours.potentials[name].grad, expected, **CLOSE)


def test_minimum_risk_over_draws_has_no_bias():
    scores = torch.tensor([[0.5, 0.0, -0.5]], dtype=torch.float64, requires_grad=True)
    price = torch.tensor([3.0, 0.0, 1.0], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    loss = MinimumRisk(
        100_000, "samples", cost=lambda ys, y: price[ys], generator=generator
    )
    value = loss(Multiclass(scores), torch.tensor([1]))
    (slope,) = torch.autograd.grad(value, scores)
    expected = (scores.softmax(1) * price).sum()
    (turn,) = torch.autograd.grad(expected, scores)
    assert_close(value, expected, atol=0.02, rtol=0)
    assert_close(slope, turn, atol=0.02, rtol=0)


@every_kind
def test_the_ranking_hinge_is_the_mean_over_the_k_best(kind):
    case = small(kind)
    y = gold(case, 1)
    k = 4
    found = RankingHinge(k, reduction="none")(case.structure(), y)
    table = case.structure().hamming(y).flatten(1)
    values, ys, valid = case.structure().decode_topk(k)
    for b in range(len(case)):
        own = case.scores(b)[case.index(b, y[b])]
        costs = columns(case, b) @ table[b]
        ahead = [
            max(0.0, float(costs[case.index(b, other)] + value - own))
            for value, other in zip(values[b][valid[b]], ys[b][valid[b]], strict=True)
        ]
        expected = torch.tensor(sum(ahead) / len(ahead), dtype=torch.float64)
        assert_close(found[b], expected, **CLOSE)


@every_kind
def test_spo_bounds_the_regret_and_is_0_for_right_predictions(kind):
    case = small(kind)
    name = first(case)
    generator = torch.Generator().manual_seed(5)
    shape = case.potentials[name].shape
    true = torch.randn(shape, generator=generator, dtype=torch.float64)
    right = case.map(torch.zeros_like)
    right.potentials[name] = true
    y = right.structure().decode()[1]
    zero = torch.zeros(len(case), dtype=torch.float64)
    loss = SPOPlus(reduction="none")
    assert_close(loss(right.structure(), y, true), zero, **CLOSE)
    assert_close(regret(right.structure(), y, true), zero, **CLOSE)
    found = loss(case.structure(), y, true)
    lost = regret(case.structure(), y, true)
    assert (lost >= -1e-9).all()
    assert (found >= lost - 1e-9).all()
    for b in range(len(case)):
        scores, values = case.scores(b), columns(case, b) @ true[b].flatten()
        own = case.index(b, y[b])
        expected = (2 * scores - values).max() - 2 * scores[own] + values[own]
        assert_close(found[b], expected, **CLOSE)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda s: SparseMAP(s, strength=0), "strength: "),
        (lambda s: SparseMAP(s, max_outputs=0), "max_outputs: "),
        (lambda s: Perturbed(s, 0), "samples: "),
        (lambda s: Perturbed(s, sigma=-1), "sigma: "),
        (lambda s: Perturbed(s, noise="x"), "noise: "),
        (lambda s: MinimumRisk(0), "k: "),
        (lambda s: MinimumRisk(over="x"), "over: "),
        (lambda s: MinimumRisk(1, "samples"), "over: "),
        (lambda s: MinimumRisk(temperature=0), "temperature: "),
        (lambda s: MinimumRisk(cost=1.0)(s, torch.zeros(2).long()), "cost: "),
        (lambda s: RankingHinge(cost=None)(s, torch.zeros(2).long()), "cost: "),
        (
            lambda s: RankingHinge(cost=torch.full((2, 3), torch.nan))(
                s, torch.zeros(2).long()
            ),
            "cost: ",
        ),
        (
            lambda s: SPOPlus()(s, torch.zeros(2).long(), torch.ones(2, 4)),
            "cost|true_scores: expected",
        ),
    ],
)
def test_wrong_arguments_are_named(make, named):
    with pytest.raises((TypeError, ValueError), match=named):
        make(Multiclass(torch.zeros(2, 3)))


def test_structures_whose_costs_are_not_of_parts_are_refused():
    boxes = BoxSearch(torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0)))
    y = boxes.decode()[1]
    for loss in (SparseMAPLoss(), PerturbedLoss()):
        with pytest.raises(TypeError, match="structure: "):
            loss(boxes, y)
    with pytest.raises(TypeError, match="structure: "):
        SparseMAP(torch.zeros(2, 3))
    with pytest.raises(TypeError, match="StructuralHinge needs only decode"):
        CRFLoss()(boxes, y)


def test_a_forbidden_gold_output_costs_infinity():
    y = torch.tensor([1])
    forbidden = Multiclass(torch.tensor([[0.0, -torch.inf]]))
    for loss in (SparseMAPLoss(), PerturbedLoss(), RankingHinge(2)):
        assert loss(forbidden, y) == torch.inf


@pytest.mark.parametrize(
    ("temperature", "expected"), [(1e-300, 0.0), (1e-35, 0.0), (1e30, 0.5)]
)
def test_minimum_risk_takes_any_temperature(temperature, expected):
    scores = torch.tensor([[1e5, 2.0, -3e38]], requires_grad=True)
    loss = MinimumRisk(3, temperature=temperature)
    found = loss(Multiclass(scores), torch.tensor([0]))
    assert_close(found, torch.tensor(expected))
    (grad,) = torch.autograd.grad(found, scores)
    assert grad.isfinite().all()


def test_empty_batches_cost_nothing():
    none, y = Multiclass(torch.zeros(0, 3)), torch.zeros(0).long()
    losses = [SparseMAPLoss(), PerturbedLoss(), MinimumRisk(), RankingHinge()]
    for loss in losses:
        assert loss(none, y) == 0
    assert SPOPlus()(none, y, torch.zeros(0, 3)) == 0


def test_rows_without_parts_cost_nothing():
    for batch in (0, 2):
        for built in (
            Chain(torch.zeros(batch, 0, 3), torch.zeros(3, 3)),
            Matching(torch.zeros(batch, 0, 2)),
        ):
            _, y = built.decode()
            for noise in ("normal", "gumbel"):
                losses = PerturbedLoss(noise=noise, reduction="none")(built, y)
                assert_close(losses, torch.zeros(batch))
                shares = Perturbed(built, noise=noise).marginals()
                assert shares.shape == built.hamming(y).shape
