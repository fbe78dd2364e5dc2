"""Projections onto boxes, balls and capped simplices against other ways to them."""

import numpy as np
import pytest
import torch
from numba import njit
from scipy.optimize import brentq
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from smoothsp._kernels.svm.quadratic_knapsack import root_and_num_visits
from smoothsp.projections import (
    project_box_equality,
    project_capped_simplex,
    project_capped_simplex_kl,
    project_elastic_net_ball,
    project_l1_ball,
    project_simplex,
    prox_elastic_net,
)
from tests import sweeps
from tests.sweeps import thinned

INF = torch.inf


def draw(rng, n, share=None):
    """A feasible box; entries and bounds of few values, so that kinks coincide."""
    grid = rng.choice([0.25, 1.0, 1e-3, 100.0])
    v = grid * rng.integers(-6, 7, n)
    low = grid * rng.integers(-5, 2, n)
    high = low + grid * rng.integers(0, 5, n)
    a = rng.choice([-2.0, -1.0, 1.0, 0.5, 0.0], n, p=[0.2, 0.3, 0.3, 0.15, 0.05])
    d = rng.choice([0.5, 1.0, 3.0], n)
    least, most = (
        np.minimum(a * low, a * high).sum(),
        np.maximum(a * low, a * high).sum(),
    )
    share = rng.random() if share is None else share
    return v, low, high, a, least + share * (most - least), d


def by_bisection(v, low, high, a, total, d):
    """The same point, its multiplier found by halving."""

    def point(t):
        return np.clip(v + t * a / d**2, low, high)

    reach = 1e3 * (1 + max(np.abs(v).max(), np.abs(low).max(), np.abs(high).max()))
    left, right = -100 * reach, 100 * reach
    for _ in range(200):
        middle = (left + right) / 2
        if a @ point(middle) > total:
            right = middle
        else:
            left = middle
    return point((left + right) / 2)


def tensors(*arrays, dtype=torch.float64):
    return [torch.tensor(x, dtype=dtype) for x in arrays]


@pytest.mark.parametrize("dtype", thinned([torch.float64, torch.float32], 2))
def test_a_box_with_an_equation_against_bisection(dtype):
    rng = np.random.default_rng(0)
    for trial in range(400 if sweeps.long else 80):
        n = int(rng.choice([1, 2, 3, 7, 40, 5000], p=[0.1, 0.2, 0.2, 0.2, 0.28, 0.02]))
        # a hundred at each end of what is feasible
        share = (0.0, 1.0, None, None)[trial % 4]
        v, low, high, a, total, d = draw(rng, n, share)
        found = project_box_equality(*tensors(v, low, high, a, total, d, dtype=dtype))
        b = found.double().numpy()
        expected = by_bisection(v, low, high, a, total, d)
        size = max(np.abs(low).max(), np.abs(high).max(), 1e-3)
        rounding = 1e-10 if dtype == torch.float64 else 1e-5
        assert np.abs(b - expected).max() <= rounding * size
        assert (b >= tensors(low, dtype=dtype)[0].numpy()).all()
        assert (b <= tensors(high, dtype=dtype)[0].numpy()).all()
        assert abs(a @ b - total) <= rounding * size * n


@pytest.mark.parametrize("size", [1e8, 1e13, 1e15, 1e16, 1e300])
def test_a_box_that_rounding_hides_is_not_left(size):
    rng = np.random.default_rng(3)
    one, few = np.full(20, size), size * (rng.random(20) < 0.5)
    for signs in (np.repeat([1.0, -1.0], 10), np.repeat([1.0, -1.0], [5, 15])):
        for v in (one, -one, few, size * rng.normal(size=20), few + 0.02):
            b = project_box_equality(*tensors(v, 0, 0.05, signs, 0)).numpy()
            assert (b >= 0).all() and (b <= 0.05).all()
            assert signs @ b == pytest.approx(0, abs=1e-10)
        # as much as there can be
        b = project_box_equality(*tensors(one, 0, 0.05, signs, 0)).numpy()
        assert b.sum() == pytest.approx(0.1 * min((signs > 0).sum(), 10))


@njit
def looked_at(v, upper, weights, total):
    one, n = np.ones(1), len(v)
    strides = np.array([[0, 0], [0, 0], [0, 1], [0, 0]])
    given = (v, 0 * one, upper, weights, one, strides, 0)
    return root_and_num_visits(given, n, total, np.empty((6, n)))


@pytest.mark.long
@pytest.mark.parametrize("order", ["drawn", "sorted", "few values", "constant"])
def test_a_median_search_looks_at_a_few_n_entries(order):
    rng = np.random.default_rng(2)
    for n in (1000, 10_000):
        v, a = rng.standard_normal(n), rng.choice([-1.0, 1.0], n)
        if order == "sorted":
            # a sample with a fixed stride is no trouble; a block of large ones is
            v = np.sort(v) + 50.0 * (np.arange(n) > 0.9 * n)
        elif order == "few values":
            v = np.round(v)
        elif order == "constant":
            v = np.ones(n)
        t, count = looked_at(v, np.ones(1), a, 0.01 * n)
        b = np.clip(v + t * a, 0, 1)
        if order in ("drawn", "sorted"):
            assert a @ b == pytest.approx(0.01 * n, abs=1e-8 * n)
        assert count <= 12 * n


def test_a_sample_that_misleads_costs_a_round_and_nothing_else():
    n = 10_000
    stride = n // int(n ** (2 / 3))
    v = np.zeros(n)
    v[::stride] = 7.0
    b = project_box_equality(torch.tensor(v), 0.0, 10.0, 1.0, float(n)).numpy()
    assert b.sum() == pytest.approx(n)
    assert np.ptp(b[::stride]) == 0 and b[1] == pytest.approx(b[0] - 7, abs=1e-9)


def test_open_sides_and_prohibitions():
    v = torch.tensor([3.0, -1.0, 0.5, 2.0], dtype=torch.float64)
    # without bounds: a plain step along the normal
    found = project_box_equality(v, -INF, INF, 1.0, 0.0)
    assert_close(found, v - v.mean())
    assert_close(project_box_equality(v, 0.0, INF), project_simplex(v))
    assert_close(project_capped_simplex(v, INF), project_simplex(v))
    low = torch.tensor([-INF, 0, 0, 0], dtype=torch.float64)
    # 1.4, 1 and 0.1 more than the bounds leave go to the entry that has none
    assert_close(project_box_equality(v - 1, low, 0.5), v.new_tensor([0.5, 0, 0, 0.5]))
    found = project_box_equality(v - 9, low, 1.0, 1.0, -3.0)
    assert_close(found, v.new_tensor([-3.0, 0, 0, 0]))
    v[1] = -INF
    found = project_box_equality(v, -2.0, 9.0, 1.0, 1.0)
    assert found[1] == -2 and found.sum() == pytest.approx(1.0)
    weights = torch.tensor([1.0, 0.0, 1.0, 1.0], dtype=torch.float64)
    skipped = project_box_equality(v.nan_to_num(neginf=-30.0), -2.0, 9.0, weights, 1.0)
    assert skipped[1] == -2 and (skipped * weights).sum() == pytest.approx(1.0)


def away_from_kinks():
    torch.manual_seed(3)
    v = torch.randn(4, 6, dtype=torch.float64)
    low = -torch.rand(4, 6, dtype=torch.float64) - 0.05
    high = torch.rand(4, 6, dtype=torch.float64) + 0.05
    a = torch.tensor([1.0, -1.0, 0.7, -0.4, 1.5, 1.0], dtype=torch.float64)
    total = torch.tensor([0.1, -0.2, 0.3, 0.0], dtype=torch.float64)
    d = torch.rand(4, 6, dtype=torch.float64) + 0.5
    return [x.requires_grad_() for x in (v, low, high, a, total, d)]


def test_gradients_of_a_box_are_derivatives():
    box = away_from_kinks()
    found = project_box_equality(*box)
    held = (found == box[1]) | (found == box[2])
    assert bool(held.any()) and not bool(held.all())
    assert gradcheck(project_box_equality, box)
    assert gradgradcheck(project_box_equality, box)
    total = torch.tensor([0.3, 1.0, 1.6, 1.2], dtype=torch.float64, requires_grad=True)
    cap = torch.tensor([0.45], dtype=torch.float64, requires_grad=True)
    for project in (project_capped_simplex, project_capped_simplex_kl):
        assert gradcheck(project, (box[0], cap, total))
        assert gradgradcheck(project, (box[0], cap, total))


def test_traced_boxes_are_the_same():
    v, low, high, a, total, d = (x.detach() for x in away_from_kinks())
    a = a.expand(4, 6)
    project = project_box_equality
    expected = project(v, low, high, a, total, d)
    traced = torch.compile(project, fullgraph=True, backend="aot_eager")
    assert_close(traced(v, low, high, a, total, d), expected)
    assert_close(torch.func.vmap(project)(v, low, high, a, total, d), expected)
    rng = np.random.default_rng(4)
    for trial in range(15):
        n, share = (1, 2, 5, 7, 30)[trial % 5], (0.0, 0.3, 1.0)[trial % 3]
        box = [x.unsqueeze(0) for x in tensors(*draw(rng, n, share))]
        assert_close(torch.func.vmap(project)(*box), project(*box))
    simplex = torch.func.vmap(project_capped_simplex)
    assert_close(simplex(v), project_simplex(v))


def test_boxes_have_any_number_of_axes():
    v = torch.randn(2, 3, 4, 5)
    cap, total = torch.rand(1, 3, 1, 1) / 2 + 0.3, torch.rand(2, 3, 4) + 0.1
    for project in (project_capped_simplex, project_capped_simplex_kl):
        found = project(v, cap, total)
        assert_close(found[1, 2, 3], project(v[1, 2, 3], cap[0, 2, 0], total[1, 2, 3]))
        assert_close(found.sum(-1), total)
        turned = project(v.transpose(0, 1), cap.transpose(0, 1), total.transpose(0, 1))
        assert_close(turned, found.transpose(0, 1))
        assert project(v[:0]).shape == (0, 3, 4, 5)


def test_a_capped_softmax_against_the_root_of_its_sum():
    rng = np.random.default_rng(5)
    for _ in range(100):
        n = int(rng.integers(1, 12))
        v = rng.normal(size=n) * rng.choice([0.1, 3.0, 300.0])
        cap = rng.uniform(0.3, 2.0, n) / n * rng.choice([1.5, 5.0])
        total = min(rng.uniform(0.2, 1.0), 0.999 * cap.sum())

        def excess(t, v=v, cap=cap, total=total):
            logs = np.minimum(np.log(cap), v - t)
            return np.exp(logs).sum() - total

        t = brentq(excess, v.min() - 50, v.max() + 50, xtol=1e-14)
        expected = np.exp(np.minimum(np.log(cap), v - t))
        found = project_capped_simplex_kl(*tensors(v, cap, total)).numpy()
        # the bracket of a root near 1000 has three digits fewer
        assert np.abs(found - expected).max() <= 1e-9
        assert found.sum() == pytest.approx(total, rel=1e-12)


def test_a_capped_softmax_at_its_ends():
    v = torch.tensor([0.0, -1000.0, -INF])
    assert_close(project_capped_simplex_kl(v, 0.6), torch.tensor([0.6, 0.4, 0.0]))
    assert_close(project_capped_simplex_kl(v, 0.5), torch.tensor([0.5, 0.5, 0.0]))
    assert_close(project_capped_simplex_kl(v), torch.tensor([1.0, 0.0, 0.0]))
    assert project_capped_simplex_kl(v[:1], 1.0).item() == 1
    gradient = torch.autograd.functional.jacobian(
        lambda x: project_capped_simplex_kl(x, 0.6), v
    )
    assert bool(gradient.isfinite().all())


@pytest.mark.parametrize("l2", thinned([0.0, 1e-9, 1.0, 20.0], 2))
def test_an_elastic_net_ball_against_bisection(l2):
    rng = np.random.default_rng(7)
    for _ in range(60):
        v = np.round(rng.normal(size=int(rng.integers(1, 9))) * 3, 1)
        l1 = rng.choice([0.0, 0.3, 2.0]) if l2 == 1 else rng.choice([0.3, 2.0])
        radius = rng.choice([0.01, 1.0, 30.0])

        def point(t, v=v, l1=l1):
            return np.sign(v) * np.maximum(np.abs(v) - t * l1, 0) / (1 + t * l2)

        def excess(t, l1=l1, radius=radius):
            w = point(t)
            return l1 * np.abs(w).sum() + l2 / 2 * w @ w - radius

        t = 0.0 if excess(0.0) <= 0 else brentq(excess, 0, 1e6, xtol=1e-14, rtol=1e-14)
        found = project_elastic_net_ball(*tensors(v, l1, l2, radius)).numpy()
        assert np.abs(found - point(t)).max() <= 1e-9 * (1 + np.abs(v).max())
        assert excess(0.0) > 0 or (found == v).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_radius_may_be_small_beside_the_entries(dtype):
    for size in (1.0, 1e8, 1e18, 1e30, float(torch.finfo(dtype).max)):
        v = torch.tensor([size, -size, size / 2], dtype=dtype)
        for radius in (1.0, 1e-6):
            expected = radius / 2 * torch.tensor([1, -1, 0], dtype=dtype)
            assert_close(project_l1_ball(v, radius), expected, atol=0, rtol=1e-6)
    v = torch.tensor([[2.0, -1.5, 0.1], [0.2, -0.1, 0.3]], dtype=torch.float64)
    arguments = v.requires_grad_(), torch.tensor([1.0, 2.0]).double().requires_grad_()
    assert gradcheck(project_l1_ball, arguments)
    assert gradgradcheck(project_l1_ball, arguments)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_capped_total_may_be_small_beside_the_entries(dtype):
    for size in (1e8, 1e18, 1e30, float(torch.finfo(dtype).max)):
        v = torch.tensor([size, size, -size, -INF, size / 2], dtype=dtype)
        for total in (1.0, 1e-6):
            half = total / 2 * torch.tensor([1, 1, 0, 0, 0], dtype=dtype)
            point = project_capped_simplex(v, 1.0, total)
            assert_close(point, half, atol=0, rtol=1e-6)
            point = project_capped_simplex(v, 0.375 * total, total)
            rest = total * torch.tensor([0.375, 0.375, 0, 0, 0.25], dtype=dtype)
            assert_close(point, rest, atol=0, rtol=1e-6)
    # digits of small entries are kept where large ones are at their bounds
    v = torch.tensor([size, -size, 0.25, 0.125], dtype=dtype, requires_grad=True)
    point = project_capped_simplex(v, 0.5, 0.75)
    assert_close(point, torch.tensor([0.5, 0, 0.1875, 0.0625], dtype=dtype))
    (slope,) = torch.autograd.grad(point[2], v)
    assert_close(slope, torch.tensor([0, 0, 0.5, -0.5], dtype=dtype))
    traced = torch.func.vmap(lambda x: project_capped_simplex(x, 0.5, 0.75))(v[None])
    assert_close(traced[0], point)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bounds_and_totals_may_be_small_beside_logarithms(dtype):
    for size in (1e8, 1e18, 1e30, float(torch.finfo(dtype).max)):
        v = torch.tensor([size, -size, size / 2], dtype=dtype)
        point = project_capped_simplex_kl(v[:1], 1.1, 0.05)
        assert_close(point, torch.tensor([0.05], dtype=dtype))
        point = project_capped_simplex_kl(torch.cat([v, v[:1]]), 0.4, 0.5)
        half = torch.tensor([0.25, 0, 0, 0.25], dtype=dtype)
        assert_close(point, half, atol=1e-9, rtol=1e-6)
        # what is far below the others gets what they have no room for
        point = project_capped_simplex_kl(v, 0.4, 1.0)
        rest = torch.tensor([0.4, 0.2, 0.4], dtype=dtype)
        assert_close(point, rest, atol=0, rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_balls_of_large_vectors_have_points_on_their_spheres(dtype):
    v = torch.tensor([3e25, -4e25], dtype=dtype)
    point = project_elastic_net_ball(v, 0.0, 2.0, 1.0)
    assert_close(point, torch.tensor([0.6, -0.8], dtype=dtype))
    inside = torch.tensor([3e25, 0.0], dtype=dtype)
    assert project_elastic_net_ball(inside, 1.0, 0.0, 1e26).equal(inside)


def test_gradients_of_the_elastic_net_are_derivatives():
    torch.manual_seed(8)
    v = (torch.randn(3, 5, dtype=torch.float64) * 2).requires_grad_()
    l1 = torch.tensor([0.2, 0.5, 0.0], dtype=torch.float64, requires_grad=True)
    l2 = torch.tensor([1.0, 0.3, 2.0], dtype=torch.float64, requires_grad=True)
    radius = torch.tensor([0.5, 90.0, 1.0], dtype=torch.float64, requires_grad=True)
    free = l1.detach()[:2].requires_grad_()
    box = (v[:2], free, l2[:2], radius[:2])
    assert gradcheck(project_elastic_net_ball, box)
    assert gradgradcheck(project_elastic_net_ball, box)
    assert gradcheck(lambda x, r: project_elastic_net_ball(x, 0.0, 1.0, r), (v, radius))
    assert gradcheck(prox_elastic_net, (v, l1[0], l2[0], radius[0]))
    assert_close(project_l1_ball(v, 1.0).abs().sum(-1), torch.ones(3).double())


ONES = torch.ones(2, 4)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: project_box_equality([1.0], 0, 1), TypeError, "v: "),
        (lambda: project_box_equality(ONES.half(), 0, 1), TypeError, "float32 or"),
        (lambda: project_box_equality(ONES, 1, 0), ValueError, "at most upper, got 1"),
        (lambda: project_box_equality(ONES, INF, INF), ValueError, "lower: "),
        (lambda: project_box_equality(ONES, -INF, -INF), ValueError, "upper: "),
        (lambda: project_box_equality(ONES * torch.nan, 0, 1), ValueError, "v: "),
        (lambda: project_box_equality(ONES * -INF, -INF, 1), ValueError, "where lower"),
        (lambda: project_box_equality(ONES, 0, 1, INF), ValueError, "weights: "),
        (lambda: project_box_equality(ONES, 0, 1, 1, INF), ValueError, "total: "),
        (lambda: project_box_equality(ONES, 0, 1, 1, 1, 0), ValueError, "scale: "),
        (lambda: project_box_equality(ONES, 0, 1, 1, 4.01), ValueError, "from 0 to 4"),
        (
            lambda: project_box_equality(ONES, 0, 1, 1, -0.1),
            ValueError,
            "bounds attain",
        ),
        (lambda: project_capped_simplex(ONES, 0.1), ValueError, "from 0 to 0.4"),
        (lambda: project_box_equality(ONES, ONES[:, :3], 1), ValueError, "broadcast"),
        (lambda: project_box_equality(ONES, ONES.double(), 1), TypeError, "match v"),
        (lambda: project_capped_simplex_kl(ONES, 0.1), ValueError, "sum of upper"),
        (lambda: project_capped_simplex_kl(ONES, 0.0), ValueError, "upper: "),
        (lambda: project_capped_simplex_kl(ONES - INF), ValueError, "above -inf"),
        (lambda: project_capped_simplex_kl(ONES + INF), ValueError, "no NaN"),
        (lambda: prox_elastic_net(ONES, -1.0), ValueError, "l1: "),
        (lambda: prox_elastic_net(ONES, 1.0, 1.0, 0.0), ValueError, "step: expected"),
        (lambda: prox_elastic_net(ONES * INF, 1.0), ValueError, "v: "),
        (lambda: project_elastic_net_ball(ONES, 0, 0), ValueError, "where l1 is 0"),
        (lambda: project_l1_ball(ONES, 0.0), ValueError, "radius: "),
    ],
)
def test_wrong_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
