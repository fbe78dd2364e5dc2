"""Losses refuse what they are built with where they are built."""

import numpy as np
import pytest
import torch

from smoothsp.losses import (
    LatentHinge,
    MinimumRisk,
    Perturbed,
    PerturbedLoss,
    RankingHinge,
    SparseMAPLoss,
    SPOPlus,
    StructuralHinge,
    regret,
)
from smoothsp.oracles import Multiclass


@pytest.mark.parametrize("loss", [StructuralHinge, LatentHinge, SparseMAPLoss])
@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"cost": "ham"}, ValueError, "cost: expected \"hamming\", None or a .* 'ham'"),
        ({"cost": 2.0}, TypeError, "cost: expected .* got float"),
        ({"cost_scale": -1}, ValueError, "cost_scale: expected a number >= 0, got -1"),
        ({"cost_scale": "a"}, TypeError, "cost_scale: expected a number, got str"),
    ],
)
def test_costs_are_checked_where_a_loss_is_built(loss, given, error, message):
    with pytest.raises(error, match=message):
        loss(**given)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: StructuralHinge("l2"), TypeError, "smoothing: expected None, .* str"),
        (lambda: LatentHinge(1.0), TypeError, "smoothing: expected .* got float"),
        (lambda: SparseMAPLoss(-1), ValueError, "strength: expected a positive"),
        (lambda: SparseMAPLoss(max_outputs=0), ValueError, "max_outputs: expected"),
        (lambda: PerturbedLoss(0), ValueError, "samples: expected at least 1"),
        (lambda: PerturbedLoss(sigma=-1), ValueError, "sigma: expected a positive"),
        (lambda: PerturbedLoss(noise="no"), ValueError, 'noise: expected "normal"'),
        (lambda: PerturbedLoss(seed=1.5), TypeError, "seed: expected an int or None"),
        (lambda: PerturbedLoss(seed=2**64), ValueError, r"seed: expected -2\*\*63 to"),
        (lambda: MinimumRisk(cost="f1"), ValueError, 'cost: expected "hamming", a t'),
        (lambda: MinimumRisk(generator=3), TypeError, "generator: expected a torch.G"),
        (lambda: RankingHinge(cost=None), TypeError, "cost: expected .* NoneType"),
    ],
)
def test_what_no_call_could_use_is_refused_where_a_loss_is_built(build, error, message):
    with pytest.raises(error, match=message):
        build()


def test_generators_of_noise_are_generators():
    scores = Multiclass(torch.zeros(1, 2))
    with pytest.raises(TypeError, match=r"generator: expected a torch.G.* got int"):
        Perturbed(scores, generator=3)
    # an integer of numpy is a seed
    y, seeds = torch.tensor([0]), (3, np.int64(3))
    one, other = (PerturbedLoss(seed=seed)(scores, y) for seed in seeds)
    assert one == other


@pytest.mark.parametrize(
    ("true", "error", "message"),
    [
        (torch.ones(2, 4), ValueError, r"expected \(2, 3\), .* got \(2, 4\)"),
        ([[1.0]], TypeError, "expected a torch.Tensor, got list"),
        (
            torch.tensor([[np.nan, 0, 0], [0, 0, 0]]),
            ValueError,
            "expected finite .* at row 0",
        ),
        (
            torch.tensor([[0, 0, 0], [np.inf, 0, 0]]),
            ValueError,
            "expected finite .* at row 1",
        ),
    ],
)
@pytest.mark.parametrize("ask", [SPOPlus(), regret])
def test_true_scores_are_named(ask, true, error, message):
    scores, y = Multiclass(torch.zeros(2, 3)), torch.tensor([0, 0])
    with pytest.raises(error, match="^true_scores: " + message):
        ask(scores, y, true)


def test_true_scores_that_only_a_guess_uses_are_named():
    scores, y = Multiclass(torch.tensor([[0.0, 1.0]])), torch.tensor([0])
    for wrong in (np.nan, -np.inf):
        for ask in (SPOPlus(), regret):
            with pytest.raises(ValueError, match=r"^true_scores: expected finite"):
                ask(scores, y, torch.tensor([[0.0, wrong]]))


@pytest.mark.parametrize("cost", [-torch.ones(1, 2), lambda ys, _: -1.0 * ys])
def test_costs_below_0_are_no_margin(cost):
    scores, y = Multiclass(torch.zeros(1, 2)), torch.tensor([0])
    with pytest.raises(ValueError, match=r"cost: expected at least 0 .* got -1 at"):
        RankingHinge(2, cost)(scores, y)
