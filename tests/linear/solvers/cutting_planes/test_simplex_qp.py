"""The quadratic programme over the simplex, against its enumerated supports."""

from itertools import combinations

import numpy as np
import pytest

from smoothsp._kernels.combinatorial import simplex_qp


def solved(kernel, Q, b, start, rng):
    """What a kernel makes of the start, with the rows of Q in slots among others."""
    t = len(b)
    slots, products = rng.permutation(t + 3)[:t], np.full((t + 3, t + 3), np.nan)
    products[np.ix_(slots, slots)] = Q
    weights = start.copy()
    kernel(slots, products, b, weights)
    return weights


def value(Q, b, a):
    return b @ a - a @ Q @ a / 2


def best_of_supports(Q, b):
    """The best over all supports of the stationary points that are feasible."""
    t, best = len(b), -np.inf
    for size in range(1, t + 1):
        for at in combinations(range(t), size):
            system = np.ones((size + 1, size + 1))
            system[:size, :size] = Q[np.ix_(at, at)]
            system[size, size] = 0
            right = np.append(b[list(at)], 1.0)
            weights = np.linalg.lstsq(system, right, rcond=None)[0][:size]
            if (weights >= -1e-12).all() and abs(weights.sum() - 1) < 1e-9:
                a = np.zeros(t)
                a[list(at)] = weights
                best = max(best, value(Q, b, a))
    return best


@pytest.mark.parametrize("seed", range(16))
def test_maximum_over_the_simplex(seed):
    rng = np.random.default_rng(seed)
    t, rank = int(rng.integers(1, 8)), int(rng.integers(1, 6))
    A = rng.normal(size=(rank, t))
    if seed % 4 == 0:
        A[:, rng.integers(t)] = A[:, 0]
    b = rng.normal(size=t) * (seed % 3)
    Q = A.T @ A * 10.0 ** rng.integers(-3, 4)
    start = rng.dirichlet(np.ones(t)) * (rng.random(t) < 0.7)
    start = start / start.sum() if start.sum() else np.eye(t)[0]
    a = solved(simplex_qp.maximise_over_simplex, Q, b, start, rng)
    assert (a >= 0).all() and a.sum() == pytest.approx(1, abs=1e-12)
    found, best = value(Q, b, a), best_of_supports(Q, b)
    assert found == pytest.approx(best, rel=1e-9, abs=1e-9)
    # the steps that end it where rounding keeps active sets from settling
    slow = solved(simplex_qp.pairwise_frank_wolfe, Q, b, np.eye(t)[0], rng)
    assert (slow >= 0).all() and slow.sum() == pytest.approx(1, abs=1e-12)
    assert value(Q, b, slow) >= value(Q, b, np.eye(t)[0]) - 1e-12
    assert value(Q, b, slow) == pytest.approx(best, rel=1e-3, abs=1e-3)


def test_the_maximum_of_many_is_stationary():
    rng = np.random.default_rng(2)
    A = rng.normal(size=(120, 150)) * 10.0 ** rng.uniform(-4, 0, 150)
    Q, b = A.T @ A, 1e-6 * rng.normal(size=150)
    a = solved(simplex_qp.maximise_over_simplex, Q, b, np.eye(150)[0], rng)
    slopes = b - Q @ a
    assert a.min() >= 0 and a.sum() == pytest.approx(1, abs=1e-12)
    assert slopes.max() - a @ slopes <= 1e-12 * Q.max()
    assert (a > 0).sum() > 10
