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
    StructuralHinge,
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
