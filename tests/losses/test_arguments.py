"""Losses refuse what they are built with where they are built."""

import numpy as np
import pytest
import torch

from smoothsp.losses import (
    LatentHinge,
    MinimumRisk,
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
        ({"cost": "ham"}, ValueError, "cost: "),
        ({"cost": 2.0}, TypeError, "cost: "),
        ({"cost_scale": -1}, ValueError, "cost_scale: "),
        ({"cost_scale": "a"}, TypeError, "cost_scale: "),
    ],
)
def test_costs_are_checked_where_a_loss_is_built(loss, given, error, message):
    with pytest.raises(error, match=message):
        loss(**given)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: StructuralHinge("l2"), TypeError, "smoothing: "),
        (lambda: SparseMAPLoss(-1), ValueError, "strength: "),
        (lambda: SparseMAPLoss(max_outputs=0), ValueError, "max_outputs: "),
        (lambda: PerturbedLoss(sigma=-1), ValueError, "sigma: "),
        (lambda: PerturbedLoss(noise="no"), ValueError, "noise: "),
        (lambda: PerturbedLoss(seed=1.5), TypeError, "seed: "),
        (lambda: MinimumRisk(cost="f1"), ValueError, "cost: "),
    ],
)
def test_what_no_call_could_use_is_refused_where_a_loss_is_built(build, error, message):
    with pytest.raises(error, match=message):
        build()


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


@pytest.mark.parametrize("cost", [-torch.ones(1, 2), lambda ys, _: -1.0 * ys])
def test_costs_below_0_are_no_margin(cost):
    scores, y = Multiclass(torch.zeros(1, 2)), torch.tensor([0])
    with pytest.raises(ValueError, match="cost: "):
        RankingHinge(2, cost)(scores, y)
