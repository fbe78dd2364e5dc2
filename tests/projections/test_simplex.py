"""Projections against exact rationals, their theorems, and their derivatives."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from numba import njit
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from smoothsp._kernels.multiclass import capped_sum, simplex_sum
from smoothsp.losses.functional import max_l2
from smoothsp.projections import project_simplex, project_weston_watkins
from tests.sweeps import thinned
from tests.truth.exact_blocks import (
    events,
    is_minimum,
    minimum_by_enumeration,
    minimum_by_events,
)

DTYPES = (torch.float64, torch.float32)
# of the bound, or of the largest entry where that is smaller
ROUNDING = {torch.float64: 1e-14, torch.float32: 4e-6}


def draw(rng, size):
    """Entries and a bound that float32 holds exactly, ties more often than not."""
    grain = Fraction(1, int(rng.choice([1, 2, 8, 64])))
    reach = int(rng.choice([1, 3, 30, 500]))
    v = [grain * int(x) for x in rng.integers(-reach // 3, reach + 1, size)]
    if rng.random() < 0.1:
        v = [v[0]] * size
    C = grain * int(rng.integers(1, reach + 1))
    return v, Fraction(1, 1024) if rng.random() < 0.1 else C


def found_minimum(v, c, dtype):
    row = torch.tensor([float(x) for x in v], dtype=dtype)
    bound = torch.tensor([float(x) for x in c], dtype=dtype)
    return project_weston_watkins(row, bound).double().numpy()


def assert_minimum(b, expected, v, c, dtype):
    scale = min(float(max(c)), float(max(abs(x) for x in v)))
    error = np.abs(b - np.array([float(x) for x in expected])).max()
    assert error <= ROUNDING[dtype] * scale, (v, c)


def test_the_reference_is_the_enumerated_minimum():
    rng = np.random.default_rng(0)
    for _ in range(400):
        v, C = draw(rng, int(rng.integers(1, 6)))
        assert minimum_by_events(v, C)[0] == minimum_by_enumeration(v, [C] * len(v))


def test_the_reference_runs_through_the_example_of_the_paper():
    v = [Fraction(x, 10) for x in (18, 14, 14, 14, 12, 7, 4, 4, 1, -2)]
    found = events(v, Fraction(1))
    tenths = (18, 14, 14, 14, 12, 8, 7, 4, 4, 4, 4, 4, 2, 1)
    assert [point for point, _ in found] == [Fraction(x, 10) for x in tenths]
    kinds = ["up" if step in (5, 7, 8, 9, 12) else "dn" for step in range(14)]
    assert [kind for _, kind in found] == kinds
    b, step = minimum_by_events(v, Fraction(1))
    assert step == 4
    assert b == [Fraction(x, 10) for x in (6, 2, 2, 2, 0, 0, 0, 0, 0, 0)]


@pytest.mark.parametrize("dtype", thinned(DTYPES, 2))
def test_weston_watkins_is_exact_on_drawn_instances(dtype):
    rng = np.random.default_rng(1)
    for _ in range(5000):
        v, C = draw(rng, int(rng.integers(1, 12)))
        c = [C] * len(v)
        expected, _ = minimum_by_events(v, C)
        assert_minimum(found_minimum(v, c, dtype), expected, v, c, dtype)


@pytest.mark.parametrize("dtype", thinned(DTYPES, 2))
def test_weston_watkins_is_exact_for_many_classes(dtype):
    rng = np.random.default_rng(2)
    for _ in range(60):
        v, C = draw(rng, int(rng.integers(30, 200)))
        c = [C] * len(v)
        expected, _ = minimum_by_events(v, C)
        assert is_minimum(expected, v, c)
        assert_minimum(found_minimum(v, c, dtype), expected, v, c, dtype)


@pytest.mark.parametrize("dtype", thinned(DTYPES, 2))
def test_weston_watkins_is_exact_for_bounds_that_differ(dtype):
    rng = np.random.default_rng(3)
    for _ in range(300):
        size = int(rng.integers(1, 6))
        v, C = draw(rng, size)
        c = [C * int(x) for x in rng.integers(0, 4, size)]
        if any(c):
            expected = minimum_by_enumeration(v, c)
            assert_minimum(found_minimum(v, c, dtype), expected, v, c, dtype)


@njit
def by_sorting(v, c, base, lanes):
    return capped_sum.root_by_sorting(v, c, base, len(v), lanes)


@njit
def impatient_root(v, c, base, guess, top, patience, lanes):
    return capped_sum.root(v, c, base, guess, top, patience, len(v), lanes)


@pytest.mark.parametrize("even", [True, False])
def test_sorted_breakpoints_and_newton_steps_find_the_same_root(even):
    rng = np.random.default_rng(4)
    for _ in range(1000):
        size = int(rng.integers(1, 40))
        v, C = draw(rng, size)
        row, cap = np.zeros(40), np.zeros(40)
        row[:size] = [float(x) for x in v]
        cap[:size] = float(C) * (1 if even else rng.integers(0, 4, size))
        base = float(rng.choice([0.0, cap.sum() / 3]))
        top = min(float(row[cap > 0].max(initial=-base)), cap.sum() - base)
        lanes = np.zeros(8)
        g = by_sorting(row, cap, base, lanes)
        excess = np.clip(row - g, 0, cap).sum() - base - g
        assert abs(excess) <= 1e-13 * max(1.0, cap.sum(), abs(top))
        for patience, guess in ((0, 0.0), (1, 0.0), (100, 0.0), (100, 1e9)):
            other = impatient_root(row, cap, base, guess, top, patience, lanes)
            assert abs(other - g) <= 1e-13 * max(1.0, cap.sum(), abs(top))


@pytest.mark.parametrize(
    ("v", "C", "b"),
    [
        ([1], 1, [0.5]),
        ([2], 1, [1]),
        ([1, 0.5], 1, [0.5, 0]),
        ([2, 1], 1, [1, 0]),
        ([18, 14, 14, 14, 12, 7, 4, 4, 1, -2], 10, [6, 2, 2, 2]),
        ([-1, 0, -3], 1, []),
        ([3, 3, 3], 10, 3 * [0.75]),
        ([3, 3, 3], 0.5, 3 * [0.5]),
        ([9, 8, 7], 1.5, 3 * [1.5]),
    ],
)
@pytest.mark.parametrize("dtype", thinned(DTYPES, 2))
def test_weston_watkins_in_closed_form(v, C, b, dtype):
    found = project_weston_watkins(torch.tensor(v, dtype=dtype), float(C))
    expected = torch.zeros(len(v), dtype=dtype)
    expected[: len(b)] = torch.tensor(b, dtype=dtype)
    assert_close(found, expected)
    assert bool(((found == 0) == (expected == 0)).all())


@pytest.mark.parametrize("dtype", thinned(DTYPES, 2))
def test_weston_watkins_survives_extremes(dtype):
    info = torch.finfo(dtype)
    huge, small = info.max / 8, info.tiny
    cases = [
        ([huge, 1, -huge], 1.0, [1, 0, 0]),
        ([huge, huge], info.eps**2, 2 * [info.eps**2]),
        ([small, small / 2], 1.0, None),
        ([1, 1 + 2 * info.eps, 1], 1e-12, 3 * [1e-12]),
        ([1.0, 0.5], 1e12, [0.5, 0]),
        ([-torch.inf, 1.0], 1e12, [0, 0.5]),
        ([-torch.inf, -torch.inf], 1.0, [0, 0]),
        ([1.0, 2.0], 0.0, [0, 0]),
    ]
    for v, C, b in cases:
        found = project_weston_watkins(torch.tensor(v, dtype=dtype), C)
        assert bool(found.isfinite().all()) and bool((found <= C).all())
        if b is not None:
            assert_close(found, torch.tensor(b, dtype=dtype), atol=0, rtol=1e-6)


def test_weston_watkins_is_firm():
    torch.manual_seed(0)
    v, w = torch.randn(2, 500, 9, dtype=torch.float64) * 3
    a, b = project_weston_watkins(v, 0.8), project_weston_watkins(w, 0.8)
    step = a - b
    length = step.square().sum(1) + step.sum(1).square()
    assert bool((length <= (step * (v - w)).sum(1) + 1e-12).all())


def test_the_sum_is_the_threshold():
    v = torch.randn(200, 7, dtype=torch.float64) * 2
    b = project_weston_watkins(v, 0.6)
    gamma = b.sum(1, keepdim=True)
    assert_close(b, (v - gamma).clamp(0, 0.6))
    assert bool((gamma.squeeze(1) <= v.amax(1).clamp(min=0)).all())


@pytest.mark.parametrize("dtype", thinned(DTYPES, 2))
def test_simplex_is_that_of_the_smoothed_maximum(dtype):
    scores = torch.randn(300, 11, dtype=dtype) * 2
    _, expected = max_l2(scores, 1.5)
    assert_close(project_simplex(scores / 1.5), expected)


@pytest.mark.parametrize("dtype", thinned(DTYPES, 2))
def test_a_small_total_is_not_lost_in_large_entries(dtype):
    v = torch.tensor([[1e6, 1e6, 3.0], [2.0, 5.0, 4.0]], dtype=dtype)
    found = project_simplex(v.requires_grad_(), 1e-9)
    expected = [[5e-10, 5e-10, 0], [0, 1e-9, 0]]
    assert_close(found, torch.tensor(expected, dtype=dtype), atol=0, rtol=1e-6)
    assert_close(project_simplex(v.detach(), 1e-9), found)


@njit
def simplex_by_sorting(v, base, total, lanes):
    return simplex_sum.root_by_sorting(v, base, total, len(v), lanes)


@njit
def simplex_threshold(v, base, total, guess, patience, lanes):
    return simplex_sum.threshold(v, base, total, guess, patience, len(v), lanes)


@pytest.mark.parametrize("base", [0.0, 0.3, np.inf])
def test_sorted_entries_and_newton_steps_find_the_same_threshold(base):
    rng = np.random.default_rng(5)
    slacks = set()
    for _ in range(1000):
        row, lanes = np.full(40, -np.inf), np.zeros(8)
        size = int(rng.integers(1, 40))
        row[:size] = [float(x) for x in draw(rng, size)[0]]
        total = float(rng.choice([1e-3, 1.0, 50.0, 1e12]))
        t = simplex_by_sorting(row, base, total, lanes)
        found = np.maximum(row - t, 0).sum()
        assert found == pytest.approx(min(base + t, total), rel=1e-10, abs=1e-10)
        slacks.add(base + t < total)
        left = min(row.max() - total, -base)
        for patience, guess in ((0, 0.0), (1, left), (100, left)):
            other = simplex_threshold(row, base, total, guess, patience, lanes)
            assert other == pytest.approx(t, rel=1e-12, abs=1e-12)
    assert slacks == ({False} if base == np.inf else {False, True})


def away_from_breakpoints(*shape):
    torch.manual_seed(1)
    return torch.randn(*shape, dtype=torch.float64).requires_grad_()


def test_gradients_are_derivatives():
    v, upper = away_from_breakpoints(4, 6), away_from_breakpoints(4, 6)
    upper = (upper.detach().abs() + 0.1).requires_grad_()
    assert gradcheck(project_weston_watkins, (v, upper))
    assert gradgradcheck(project_weston_watkins, (v, upper))
    total = torch.tensor([0.3, 1.0, 2.0, 9.0], dtype=torch.float64, requires_grad=True)
    assert gradcheck(project_simplex, (v, total))
    assert gradgradcheck(project_simplex, (v, total))


def test_jacobian_is_a_diagonal_less_rank_one():
    v = torch.tensor([1.2, 0.9, 0.7, 0.65, 0.3, -0.4], dtype=torch.float64)
    b = project_weston_watkins(v, 0.2)
    assert_close(b[[0, 1, 4, 5]], b.new_tensor([0.2, 0.2, 0, 0]), atol=0, rtol=0)
    inside = b.new_tensor([0, 0, 1, 1, 0, 0])
    n = inside.sum()
    expected = inside.diag() - inside.outer(inside) / (1 + n)
    found = torch.autograd.functional.jacobian(
        lambda x: project_weston_watkins(x, 0.2), v
    )
    assert_close(found, expected)


def test_forbidden_entries_get_no_gradient():
    v = torch.tensor([[1.0, -torch.inf, 0.9]], requires_grad=True)
    for project in (project_simplex, lambda x: project_weston_watkins(x, 5.0)):
        (gradient,) = torch.autograd.grad(project(v)[0, 0], v)
        assert bool(gradient.isfinite().all()) and gradient[0, 1] == 0


def test_traced_answers_are_the_same():
    v = away_from_breakpoints(30, 6).detach() * 3
    cases = (
        project_simplex,
        lambda x: project_weston_watkins(x, 0.7),
        lambda x: project_weston_watkins(x, x.detach().abs()),
    )
    for project in cases:
        traced = torch.compile(project, fullgraph=True, backend="aot_eager")
        assert_close(traced(v), project(v))
        assert_close(torch.func.vmap(project)(v), project(v))


def test_any_number_of_axes():
    v = torch.randn(2, 3, 4, 5)
    for project in (project_simplex, lambda x: project_weston_watkins(x, 0.5)):
        assert_close(project(v)[1, 2, 3], project(v[1, 2, 3]))
        assert_close(project(v.transpose(0, 1)), project(v).transpose(0, 1))
        assert project(v[:0]).shape == (0, 3, 4, 5)
    per_row = torch.rand(2, 3, 4) + 0.1
    assert_close(project_simplex(v, per_row).sum(-1), per_row)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda v: project_simplex([1.0]), TypeError, "v: expected a torch.Tensor"),
        (lambda v: project_simplex(v.half()), TypeError, "float32 or float64"),
        (lambda v: project_simplex(v[0, 0]), ValueError, "at least one entry"),
        (lambda v: project_simplex(v, 0.0), ValueError, "total: expected positive"),
        (lambda v: project_simplex(v, None), TypeError, "total: expected a number"),
        (lambda v: project_simplex(v, 10**400), ValueError, "got an int of 1329 bits"),
        (lambda v: project_simplex(v * torch.nan), ValueError, "no NaN"),
        (lambda v: project_simplex(v - torch.inf), ValueError, "a finite entry"),
        (lambda v: project_simplex(v, v.new_ones(3)), ValueError, "broadcast"),
        (lambda v: project_weston_watkins(v + torch.inf, 1.0), ValueError, "no NaN"),
        (lambda v: project_weston_watkins(v, -1.0), ValueError, "upper: expected"),
        (lambda v: project_weston_watkins(v, v.double()), TypeError, "to match v"),
        (lambda v: project_weston_watkins(v, torch.nan), ValueError, "got nan"),
    ],
)
def test_wrong_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call(torch.ones(2, 4))
