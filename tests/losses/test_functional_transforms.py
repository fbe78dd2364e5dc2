"""Losses over maxima under ``torch.func``: as autograd has them."""

import pytest
import torch
from torch.testing import assert_close

from smoothsp.losses import MinimumRisk, PerturbedLoss, RankingHinge, SPOPlus
from smoothsp.oracles import Chain, Matching, Multiclass, SpanningTree, SpanTree

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script.:FutureWarning")

MOVES = torch.tensor([[0.3, -1.0, 0.2], [0.0, 0.4, -0.7], [1.1, 0.1, 0.0]]).double()
STRUCTURES = {
    "chain": (lambda x: Chain(x, MOVES), (2, 4, 3)),
    "matching": (Matching, (2, 3, 4)),
    "multiclass": (Multiclass, (2, 5)),
    "span tree": (SpanTree, (2, 4, 4)),
    "spanning tree": (SpanningTree, (2, 4, 4)),
}
LOSSES = {
    "minimum risk": MinimumRisk(),
    "perturbed": PerturbedLoss(seed=1),
    "ranking hinge": RankingHinge(3),
    "SPO+": SPOPlus(),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", STRUCTURES)
def test_derivatives_are_those_of_autograd(kind, loss):
    build, shape = STRUCTURES[kind]
    generator = torch.Generator().manual_seed(2)
    drawn = torch.randn(4, *shape, generator=generator).double()
    x, direction, true_scores = drawn[0], drawn[1], drawn[2]
    y = build(drawn[3]).decode()[1]
    others = (true_scores,) if loss == "SPO+" else ()

    def value(x):
        return LOSSES[loss](build(x), y, *others)

    leaf = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(value(leaf), leaf)
    assert expected.any()
    assert_close(torch.func.grad(value)(x), expected)
    moved = torch.func.jvp(value, (x,), (direction,))
    assert_close(moved, (value(x), (expected * direction).sum()))
    several = torch.stack([x, direction])
    found = torch.func.vmap(torch.func.grad(value), randomness="same")(several)
    assert_close(found[0], expected)
