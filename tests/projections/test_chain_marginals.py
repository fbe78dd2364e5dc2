"""Marginals of chains: the nearest that agree, by other ways to them."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from smoothsp.oracles import Chain
from smoothsp.projections import project_chain_marginals, project_simplex
from smoothsp.projections.chain_marginals import _project_tables
from tests.sweeps import thinned

UNIT = torch.ones(1, 1)


def agreement_rows(pairs, states):
    """Each row of B b is a difference of two marginals, then come the sums."""
    rows = []
    for t in range(pairs - 1):
        for j in range(states):
            b = np.zeros((pairs, states, states))
            b[t, :, j] += 1
            b[t + 1, j, :] -= 1
            rows.append(b.ravel())
    sums = np.kron(np.eye(pairs), np.ones(states * states))
    return np.array(rows).reshape(-1, pairs * states * states), sums


def by_quadratic_programme(v):
    pairs, states, _ = v.shape
    agree, sums = agreement_rows(pairs, states)
    # sums of later tables follow from the first
    A, b = np.vstack([agree, sums[:1]]), np.r_[np.zeros(len(agree)), 1.0]
    found = minimize(
        lambda x: 0.5 * np.sum((x - v.ravel()) ** 2),
        np.full(v.size, 1 / states**2),
        jac=lambda x: x - v.ravel(),
        bounds=[(0, None)] * v.size,
        constraints={"type": "eq", "fun": lambda x: A @ x - b, "jac": lambda x: A},
        options={"ftol": 1e-15, "maxiter": 2000},
        method="SLSQP",
    )
    return found.x.reshape(v.shape)


def by_block_coordinate_descent(v, sweeps):
    """The paper's algorithm 3: least squares in some multipliers, then the others."""
    pairs, states, _ = v.shape
    agree, sums = agreement_rows(pairs, states)
    A, b = np.vstack([agree, sums]), np.r_[np.zeros(len(agree)), np.ones(pairs)]
    positive, inverse = np.zeros(v.size), np.linalg.pinv(A @ A.T)
    for _ in range(sweeps):
        free = A.T @ (inverse @ (b - A @ (v.ravel() + positive)))
        positive = np.maximum(-v.ravel() - free, 0)
    return (v.ravel() + positive + free).reshape(v.shape)


@pytest.mark.parametrize("shape", [(1, 3, 3), (2, 2, 2), (4, 3, 3), (3, 1, 1)])
def test_the_nearest_tables_that_agree(shape):
    rng = np.random.default_rng(0)
    for scale in (0.1, 1.0, 5.0):
        v = rng.normal(size=shape) * scale
        found = project_chain_marginals(torch.tensor(v), tol=1e-10).numpy()
        assert (found >= 0).all()
        assert np.abs(found.sum((1, 2)) - 1).max() < 1e-12
        assert np.abs(found[:-1].sum(1) - found[1:].sum(2)).max(initial=0) < 1e-9
        best = by_quadratic_programme(v)
        near, far = np.sum((found - v) ** 2), np.sum((best - v) ** 2)
        assert near <= far + 1e-6 and np.abs(found - best).max() < 1e-4


def test_the_papers_descent_ends_at_the_same_tables():
    v = np.random.default_rng(1).normal(size=(4, 3, 3))
    found = project_chain_marginals(torch.tensor(v), tol=1e-10).numpy()
    early, late = (
        np.abs(by_block_coordinate_descent(v, n) - found).max() for n in (3, 3000)
    )
    assert late < 1e-6 < early


def test_differences_of_marginals_are_the_slope_of_the_dual():
    rng = np.random.default_rng(2)
    v = torch.tensor(rng.normal(size=(4, 3, 3)))
    agree, _ = agreement_rows(4, 3)

    def dual(shift):
        # the minimum of |b - v|^2 / 2 - <shift, B b> over simplices
        b = _project_tables(v, torch.tensor(shift), UNIT).numpy()
        return 0.5 * np.sum((b - v.numpy()) ** 2) - shift.ravel() @ (agree @ b.ravel())

    at, step = rng.normal(size=(3, 3)), 1e-6
    slope = -(
        agree @ _project_tables(v, torch.tensor(at), UNIT).numpy().ravel()
    ).reshape(3, 3)
    for t, j in np.ndindex(3, 3):
        e = np.zeros((3, 3))
        e[t, j] = step
        assert (dual(at + e) - dual(at - e)) / (2 * step) == pytest.approx(
            slope[t, j], abs=1e-6
        )


def test_marginals_of_a_law_stay_where_they_are():
    from smoothsp.oracles import Chain

    torch.manual_seed(0)
    chain = Chain(torch.randn(3, 6, 4).double(), torch.randn(4, 4).double())
    edges = chain.edge_marginals()
    torch.testing.assert_close(project_chain_marginals(edges), edges)
    single = torch.randn(5, 1, 4, 4)
    torch.testing.assert_close(
        project_chain_marginals(single).flatten(-2), project_simplex(single.flatten(-2))
    )
    assert project_chain_marginals(edges[:0]).shape == (0, 5, 4, 4)
    assert project_chain_marginals(edges[:, :0]).shape == (3, 0, 4, 4)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("size", thinned([1.0, 1e3, 1e6, 1e8], 4, 2))
def test_large_entries_take_few_iterations(size, ties):
    """No sequence is ahead of the point in the direction from the point to v."""
    generator = torch.Generator().manual_seed(0)
    for shape in ((3, 3), (8, 4), (12, 2), (5, 8)):
        T, S = shape
        v = torch.randn(4, T, S, S, generator=generator, dtype=torch.float64)
        v = size * (v.round() + torch.rand(v.shape, generator=generator) / size)
        if not ties:
            v = v + size * torch.randn(v.shape, generator=generator)
        found = project_chain_marginals(v, max_iterations=600)
        apart = found[:, :-1].sum(-2) - found[:, 1:].sum(-1)
        assert apart.abs().max() <= max(1e-8, 2e-15 * v.abs().max())
        best, _ = Chain(v.new_zeros(4, T + 1, S), v - found).decode()
        own = ((v - found) * found).sum((1, 2, 3))
        # tables agree up to the tolerance, which weighs as much as the entries
        assert (best - own <= 1e-6 * (1 + size)).all()


def test_what_is_wrong_with_tables_is_named():
    v = torch.zeros(2, 3, 3)
    with pytest.raises(ValueError, match="v: "):
        project_chain_marginals(v[:, :2])
    with pytest.raises(ValueError, match="v: "):
        project_chain_marginals(v / 0)
    with pytest.raises(TypeError, match="v: "):
        project_chain_marginals(v.half())
    for wrong, error in (
        (None, TypeError),
        (-1.0, ValueError),
        (math.nan, ValueError),
        (torch.ones(4), TypeError),
        (10**400, TypeError),
    ):
        with pytest.raises(error, match="tol: "):
            project_chain_marginals(v, tol=wrong)
    for budget, error in ((0, ValueError), (1.5, TypeError), (None, TypeError)):
        with pytest.raises(error, match="max_iterations: "):
            project_chain_marginals(v, max_iterations=budget)
    with pytest.raises(RuntimeError, match="max_iterations: "):
        project_chain_marginals(torch.randn(5, 3, 3), max_iterations=2)
