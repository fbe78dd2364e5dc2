"""Estimates of smoothness: bounds, kinks, networks, and what is put back."""

import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.autograd.functional import hessian
from torch.nn.functional import normalize

from smoothsp.losses import L2, Entropy, StructuralHinge
from smoothsp.optim import CasimirSVRG, estimate_smoothness
from smoothsp.oracles import Chain
from tests.optim.problems import (
    Vector,
    closure_of,
    logistic,
    max_of_affine,
    ridge,
    seeded,
    squares,
)
from tests.sweeps import thinned


@pytest.mark.parametrize(("curvature", "many"), [(1e-3, 100), (1e4, 1)])
def test_of_terms_that_are_alike_it_is_exact_up_to_2(curvature, many):
    w = nn.Parameter(torch.ones(1, dtype=torch.float64))
    targets = torch.randn(many, generator=seeded(), dtype=torch.float64)

    def closure(target):
        loss = curvature / 2 * (w - target).square().sum()
        loss.backward()
        return loss

    found = estimate_smoothness([w], closure, targets)
    assert curvature <= found <= 2 * curvature


@pytest.mark.parametrize("seed", thinned(range(2), 2))
def test_never_above_twice_the_constant(seed):
    """Least squares, logistic regression, smoothed maxima: known constants."""
    problem = ridge(n=40, seed=seed)
    w = Vector(torch.zeros(3, dtype=torch.float64)).w
    L = float((problem.X**2).sum(1).max())
    found = estimate_smoothness([w], squares(w), problem.batches(1))
    assert L / 20 < found <= 2 * L
    problem = logistic(40, 5, 0.1, seed)
    w = Vector(problem.start).w
    found = estimate_smoothness([w], problem.closure(w), problem.terms)
    assert 0.25 / 4 < found <= 2 * 0.25
    for kind in ("l2", "entropy"):
        problem = max_of_affine(n=40, seed=seed)
        optimizer = CasimirSVRG([w], 1.0, mu=0.2, kappa=1.0)
        w = Vector(torch.zeros(4, dtype=torch.float64)).w
        closure = closure_of(problem, w, optimizer, kind)
        terms = list(torch.arange(40).split(1))
        L = problem.curvature(kind) / 0.2
        assert L / 40 < estimate_smoothness([w], closure, terms) <= 2 * L


@pytest.mark.parametrize("steep", thinned([0, 59], 2, 1))
def test_holds_for_the_batch_that_turns_most_whatever_its_gradient(steep):
    """Of quadratics, one of 60 has a large eigenvalue and no gradient along it."""
    rows = torch.randn(60, 6, 6, generator=seeded(3), dtype=torch.float64)
    A = rows @ rows.mT
    direction = torch.linalg.eigh(A.mean(0)).eigenvectors[:, 0]
    A[steep] += 1e3 * torch.outer(direction, direction)
    w = nn.Parameter(torch.randn(6, generator=seeded(4), dtype=torch.float64))
    w.data -= (w @ direction) * direction
    slopes = torch.randn(60, 6, generator=seeded(5), dtype=torch.float64)
    slopes -= (A @ w.detach() + slopes) @ direction[:, None] * direction

    def closure(n):
        loss = w @ A[n] @ w / 2 + slopes[n] @ w
        loss.backward()
        return loss

    L = float(torch.linalg.eigvalsh(A).max())
    assert L <= estimate_smoothness([w], closure, range(60)) <= 1.2 * L


def test_holds_for_each_batch_of_a_network_at_its_start():
    """Of the dense Hessian, whose largest eigenvalues gradients hardly meet."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)).double()
    with torch.no_grad():
        network[2].weight *= 5
    x = torch.randn(40, 3, generator=seeded(), dtype=torch.float64)
    batches = list(zip(x.split(4), x.square()[:, :2].split(4), strict=True))
    names, params = zip(*network.named_parameters(), strict=True)

    def closure(batch):
        loss = (network(batch[0]) - batch[1]).square().mean()
        loss.backward()
        return loss

    def of(batch, flat):
        parts = flat.split([p.numel() for p in params])
        own = {n: t.view_as(p) for n, t, p in zip(names, parts, params, strict=True)}
        outputs = torch.func.functional_call(network, own, (batch[0],))
        return (outputs - batch[1]).square().mean()

    start = torch.cat([p.detach().flatten() for p in params])
    largest = max(
        float(torch.linalg.matrix_norm(hessian(partial(of, batch), start), 2))
        for batch in batches
    )
    assert largest <= estimate_smoothness(params, closure, batches) <= 1.2 * largest


def tagging(smoothing):
    generator = seeded(5)
    x = torch.randn(80, 6, 4, generator=generator, dtype=torch.float64)
    tags = x[..., :3].argmax(-1)
    model = nn.ModuleList([nn.Linear(4, 3), nn.Linear(3, 3, bias=False)]).double()
    for p in model.parameters():
        nn.init.zeros_(p)  # all outputs tie
    hinge = StructuralHinge(smoothing)

    def closure(batch):
        loss = hinge(Chain(model[0](batch[0]), model[1].weight), batch[1])
        loss.backward()
        return loss

    return model, closure, list(zip(x.split(4), tags.split(4), strict=True))


@pytest.mark.long
@pytest.mark.parametrize("smoothing", [L2(1.0, 3), None])
def test_const_trains_with_it_with_kinks_too(smoothing):
    model, closure, batches = tagging(smoothing)
    L = estimate_smoothness(model.parameters(), closure, batches)
    optimizer = CasimirSVRG.const(
        model.parameters(),
        smoothness=L,
        num_batches=len(batches),
        weight_decay=1e-3,
        generator=seeded(),
    )
    losses = [optimizer.epoch(closure, batches) for _ in range(8)]
    assert losses[-1] < 0.1 * losses[0]
    assert optimizer.progress["restarts"] <= 2


@pytest.mark.long
def test_inverse_to_mu():
    """Of the entropy, far from where one output has all the weight."""
    found = [
        estimate_smoothness(model.parameters(), closure, batches)
        for model, closure, batches in (tagging(Entropy(100.0)), tagging(Entropy(10.0)))
    ]
    assert 1 < math.log(found[1] / found[0]) / math.log(10) < math.log10(40)


def test_leaves_nothing_behind():
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 1)
    )
    network[3].bias.requires_grad_(False)
    before = [value.clone() for value in network.state_dict().values()]
    x = normalize(torch.randn(24, 3, generator=seeded()))

    def closure(rows):
        loss = (network(rows) - rows[:, :1]).square().mean()
        loss.backward()
        return loss

    network.train()
    assert estimate_smoothness(network.parameters(), closure, x.split(4)) > 0
    assert all(map(torch.equal, before, network.state_dict().values()))
    assert all(p.grad is None for p in network.parameters())


def test_messages():
    w = nn.Parameter(torch.zeros(2))

    def closure(value):
        loss = (w * value).sum() + value
        loss.backward()
        return loss

    frozen = [torch.zeros(2)]
    with pytest.raises(ValueError, match="params: expected parameters that require"):
        estimate_smoothness(frozen, closure, [1.0])
    with pytest.raises(TypeError, match="closure: expected a function, got int"):
        estimate_smoothness([w], 3, [1.0])
    with pytest.raises(ValueError, match="batches: estimate_smoothness expected at le"):
        estimate_smoothness([w], closure, [])
    with pytest.raises(RuntimeError, match="estimate_smoothness: expected a finite l"):
        estimate_smoothness([w], closure, [math.nan])
    with pytest.raises(RuntimeError, match="a closure that calls backward"):
        estimate_smoothness([w], lambda x: (w * x).sum(), [1.0])
    with pytest.raises(TypeError, match="estimate_smoothness: expected the closure to"):
        estimate_smoothness([w], lambda x: closure(x) and None, [1.0])
    assert torch.equal(w, torch.zeros(2))
