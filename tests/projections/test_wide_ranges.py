"""Projections of numbers of many magnitudes against bisection in 40 digits."""

from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch

from smoothsp.projections import (
    project_box_equality,
    project_capped_simplex,
    project_capped_simplex_kl,
    project_elastic_net_ball,
    project_l1_ball,
    project_simplex,
    project_weston_watkins,
    prox_elastic_net,
)
from tests import sweeps

ZERO, ONE = Decimal(0), Decimal(1)
DTYPES = (torch.float64, torch.float32)


def wide(rng, *shape):
    """Log-uniform on [1e-8, 1e8]."""
    return 10.0 ** rng.uniform(-8, 8, shape)


def vector(rng, n):
    """Of one magnitude, of many, or with all entries near the largest."""
    size = wide(rng, 1)
    kind = rng.integers(3)
    if kind == 0:
        return size * rng.normal(size=n)
    if kind == 1:
        return wide(rng, n) * rng.choice([-1, 1], n)
    return size * (1 + wide(rng, 1).clip(max=1e-3) * rng.normal(size=n))


def root(excess, low, high):
    """Where a decreasing function is 0, between two numbers."""
    for _ in range(130):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return (low + high) / 2


def clip(x, low, high):
    return min(max(x, low), high)


def elastic_net_ball(v, l1, l2, radius):
    size = [abs(x) for x in v]

    def point(t):
        return [max(x - t * l1, ZERO) / (1 + t * l2) for x in size]

    def excess(t):
        return sum(l1 * w + l2 / 2 * w * w for w in point(t)) - radius

    if excess(ZERO) <= 0:
        return v
    most = ONE
    while excess(most) > 0:
        most *= 4
    found = point(root(excess, ZERO, most))
    return [w.copy_sign(x) for w, x in zip(found, v, strict=True)]


def capped(v, upper, total):
    def point(t):
        return [clip(x - t, ZERO, u) for x, u in zip(v, upper, strict=True)]

    low, high = min(v) - max(upper) - total, max(v)
    return point(root(lambda t: sum(point(t)) - total, low, high))


def simplex(v, total):
    return capped(v, [total] * len(v), total)


def l1_ball(v, radius):
    size = [abs(x) for x in v]
    if sum(size) <= radius:
        return v
    return [w.copy_sign(x) for w, x in zip(simplex(size, radius), v, strict=True)]


def prox(v, l1, l2, step):
    return [(max(abs(x) - step * l1, ZERO) / (1 + step * l2)).copy_sign(x) for x in v]


def weston_watkins(v, upper):
    def point(t):
        return [clip(x - t, ZERO, upper) for x in v]

    most = upper * len(v)
    return point(root(lambda t: sum(point(t)) - t, ZERO, most))


def capped_kl(v, upper, total):
    def point(s):
        return [min(u, (x - s).exp()) for x, u in zip(v, upper, strict=True)]

    width = abs(total.ln()) + max(abs(u.ln()) for u in upper) + len(v)
    low, high = min(v) - width, max(v) + width
    return point(root(lambda s: sum(point(s)) - total, low, high))


def box(v, low, high, weights, total, scale):
    entries = list(zip(v, low, high, weights, scale, strict=True))

    def point(t):
        return [clip(x - t * a / d / d, lo, hi) for x, lo, hi, a, d in entries]

    def used(t):
        return sum(a * b for a, b in zip(weights, point(t), strict=True)) - total

    most = max(
        (abs(x) + abs(lo) + abs(hi)) * d * d / abs(a) for x, lo, hi, a, d in entries
    )
    return point(root(used, -most, most))


def of_ball(rng, n):
    return vector(rng, n), *(x.item() for x in wide(rng, 3).reshape(3, 1))


def of_l1_ball(rng, n):
    return vector(rng, n), wide(rng, 1).item()


def of_capped(rng, n):
    upper = wide(rng, 1) * rng.uniform(0.5, 2, n)
    return vector(rng, n), upper, rng.uniform(0.1, 0.9) * upper.sum()


def of_kl(rng, n):
    v, upper, total = of_capped(rng, n)
    return np.clip(v, -300, 300), upper, total


def of_box(rng, n):
    low = vector(rng, n)
    high = low + wide(rng, n)
    a = wide(rng, n) ** 0.25 * rng.choice([-1, 1], n)
    ends = np.sort([a * low, a * high], 0).sum(1)
    total = ends[0] + rng.uniform(0.1, 0.9) * (ends[1] - ends[0])
    return vector(rng, n), low, high, a, total, wide(rng, n) ** 0.25


CASES = {
    "elastic_net_ball": (project_elastic_net_ball, elastic_net_ball, of_ball),
    "l1_ball": (project_l1_ball, l1_ball, of_l1_ball),
    "simplex": (project_simplex, simplex, of_l1_ball),
    "capped_simplex": (project_capped_simplex, capped, of_capped),
    "capped_simplex_kl": (project_capped_simplex_kl, capped_kl, of_kl),
    "weston_watkins": (project_weston_watkins, weston_watkins, of_l1_ball),
    "prox": (prox_elastic_net, prox, of_ball),
    "box": (project_box_equality, box, of_box),
}


def exactly(x):
    """The numbers of a tensor as they are."""
    return [Decimal(y) for y in x.tolist()] if x.dim() else Decimal(x.item())


def errors(name, dtype, count):
    """By how much each of the drawn cases is wrong, beside its largest entry."""
    project, truth, draw = CASES[name]
    rng = np.random.default_rng(0)
    found = []
    for _ in range(count):
        given = draw(rng, int(rng.integers(1, 6)))
        given = [torch.as_tensor(x, dtype=dtype) for x in given]
        ours = project(*given)
        with localcontext(prec=40):
            right = truth(*map(exactly, given))
            size = max(map(abs, right)) or ONE
            pairs = zip(exactly(ours), right, strict=True)
            found.append((float(max(abs(x - y) for x, y in pairs) / size), given))
    return found


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_the_point_has_its_digits(name, dtype):
    rounding = 1e-9 if dtype == torch.float64 else 1e-5
    for error, given in errors(name, dtype, 150 if sweeps.long else 30):
        assert error <= rounding, [x.tolist() for x in given]
