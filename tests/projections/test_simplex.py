"""Projections against exact rationals, their theorems, and their derivatives."""

from bisect import bisect_left
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from smoothsp.losses.functional import max_l2
from smoothsp.projections import project_simplex, project_weston_watkins
from tests.sweeps import thinned

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


def minimum(v, c):
    """``b = clip(v - g, 0, c)`` with sum g, which lies between two kinks."""

    def point(g):
        return [min(max(x - g, 0), bound) for x, bound in zip(v, c, strict=True)]

    def lies_above(g):
        return sum(point(g)) > g

    kinks = {Fraction(0), *v, *(x - bound for x, bound in zip(v, c, strict=True))}
    kinks = sorted(x for x in kinks if x >= 0)
    # those below the root come first
    g = kinks[max(bisect_left(kinks, True, key=lambda g: not lies_above(g)) - 1, 0)]
    free = sum(x - bound <= g < x for x, bound in zip(v, c, strict=True))
    return point(g + max(sum(point(g)) - g, 0) / (1 + free))


@pytest.mark.parametrize("dtype", thinned(DTYPES, 2))
@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize(("most", "count"), [(12, 500), (200, 30)])
def test_weston_watkins_is_exact(most, count, even, dtype):
    rng = np.random.default_rng(most)
    for _ in range(count):
        v, C = draw(rng, int(rng.integers(1, most)))
        c = [C * int(even or x) for x in rng.integers(0, 4, len(v))]
        if not any(c):
            continue
        given = [torch.tensor([float(x) for x in y], dtype=dtype) for y in (v, c)]
        found = project_weston_watkins(*given).double().numpy()
        scale = min(float(max(c)), float(max(abs(x) for x in v)))
        error = np.abs(found - np.array([float(x) for x in minimum(v, c)])).max()
        assert error <= ROUNDING[dtype] * scale, (v, c)


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


@pytest.mark.long
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
        (lambda v: project_simplex([1.0]), TypeError, "v: "),
        (lambda v: project_simplex(v.half()), TypeError, "float32 or float64"),
        (lambda v: project_simplex(v[0, 0]), ValueError, "at least one entry"),
        (lambda v: project_simplex(v, 0.0), ValueError, "total: "),
        (lambda v: project_simplex(v, None), TypeError, "total: "),
        (lambda v: project_simplex(v, 10**400), ValueError, "got an int of 1329 bits"),
        (lambda v: project_simplex(v * torch.nan), ValueError, "no NaN"),
        (lambda v: project_simplex(v - torch.inf), ValueError, "a finite entry"),
        (lambda v: project_simplex(v, v.new_ones(3)), ValueError, "broadcast"),
        (lambda v: project_weston_watkins(v + torch.inf, 1.0), ValueError, "no NaN"),
        (lambda v: project_weston_watkins(v, -1.0), ValueError, "upper: "),
        (lambda v: project_weston_watkins(v, v.double()), TypeError, "to match v"),
        (lambda v: project_weston_watkins(v, torch.nan), ValueError, "got nan"),
    ],
)
def test_wrong_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call(torch.ones(2, 4))
