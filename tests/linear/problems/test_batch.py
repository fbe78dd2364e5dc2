"""Sums over the whole set, against all outputs written down."""

import numpy as np
import pytest

from smoothsp.linear.problems import BatchProblem, CallbackProblem, MulticlassProblem
from tests.truth.linear_chain import corners, random_chain, random_rows

EPS = 1e-6
RNG = np.random.default_rng(3)
PROBLEMS = {
    "chain": random_chain(1, n=5, cost_scale=np.array([0.5, 1.0, 2.0, 1.0, 1.0])),
    "classes": MulticlassProblem(random_rows(RNG, 4, 3), [0, 2, 1, 0], num_labels=3),
    "one": random_chain(2, n=1, longest=1, boundaries=False),
}


def scores(problem, w, with_costs=True):
    """psi and z of every output of every example."""
    for i in range(len(problem)):
        psi, loss, _ = corners(problem, i)
        yield psi, with_costs * loss - psi @ w


def smooth(z, mu):
    """The largest entry smoothed by the entropy, from below, and its gradient."""
    u = np.exp((z - z.max()) / mu)
    return z.max() + mu * np.log(u.mean()), u / u.sum()


def mean(found):
    values, slopes = zip(*found, strict=True)
    return np.mean(values), np.mean(slopes, axis=0)


@pytest.mark.parametrize("name", PROBLEMS)
def test_sums_are_those_of_the_enumeration(name):
    problem = PROBLEMS[name]
    assert isinstance(problem, BatchProblem)
    w = RNG.normal(size=problem.num_weights)
    known = list(scores(problem, w))
    value, slope = problem.risk(w)
    expected = mean((z.max(), -psi[z.argmax()]) for psi, z in known)
    np.testing.assert_allclose(value, expected[0], rtol=1e-12)
    np.testing.assert_allclose(slope, expected[1], atol=1e-12)
    for mu in (0.3, 4.0):
        found = problem.smoothed_risk(w, mu)
        soft = [(psi, *smooth(z, mu)) for psi, z in known]
        expected = mean((value, -u @ psi) for psi, value, u in soft)
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-12)
        np.testing.assert_allclose(found[1], expected[1], atol=1e-12)
    found = problem.likelihood(w)
    soft = [(psi, z, *smooth(z, 1.0)) for psi, z in scores(problem, w, False)]
    expected = mean((v + np.log(len(z)), -u @ psi) for psi, z, v, u in soft)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-12)
    np.testing.assert_allclose(found[1], expected[1], atol=1e-12)
    counts = [len(z) for _, z in known]
    np.testing.assert_allclose(problem.diameter(), np.log(counts).mean(), rtol=1e-12)


@pytest.mark.parametrize("smoothing", ["entropy", "l2"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_smoothing_lies_below_by_at_most_mu_times_the_diameter(name, smoothing):
    problem = PROBLEMS[name]
    for mu in (1e-3, 0.5, 20.0):
        w = RNG.normal(size=problem.num_weights)
        below = problem.smoothed_risk(w, mu, smoothing)[0]
        risk, D = problem.risk(w)[0], problem.diameter(smoothing)
        assert risk - mu * D - 1e-10 <= below <= risk + 1e-10


def test_the_l2_smoothing_over_all_outputs_has_the_gradient_of_its_value():
    problem = random_chain(5, n=3, S=2, longest=2)
    w, v = RNG.normal(size=(2, problem.num_weights))
    slope = problem.smoothed_risk(w, 0.7, "l2", k=4)[1]
    up, down = (
        problem.smoothed_risk(w + h * v, 0.7, "l2", k=4)[0] for h in (EPS, -EPS)
    )
    np.testing.assert_allclose((up - down) / (2 * EPS), slope @ v, atol=1e-7)


def test_an_oracle_in_python_gives_the_sums_of_the_compiled_one():
    problem = PROBLEMS["chain"]

    def few(i, w, k):
        psi, loss, _ = corners(problem, i)
        order = np.argsort(psi @ w - loss, kind="stable")[:k]
        return [(psi[j], loss[j], int(j)) for j in order]

    def worst(i, w):
        return few(i, w, 1)[0]

    own = CallbackProblem(len(problem), problem.num_weights, worst, few)
    assert isinstance(own, BatchProblem)
    w = RNG.normal(size=problem.num_weights)
    for a, b in (
        (own.risk(w), problem.risk(w)),
        (own.smoothed_risk(w, 0.5), problem.smoothed_risk(w, 0.5, "l2")),
    ):
        np.testing.assert_allclose(a[0], b[0], rtol=1e-12)
        np.testing.assert_allclose(a[1], b[1], atol=1e-12)
    assert own.diameter() == problem.diameter("l2")
    for ask in (
        lambda: own.smoothed_risk(w, 0.5, "entropy"),
        lambda: own.diameter("entropy"),
        lambda: own.likelihood(w),
    ):
        with pytest.raises(TypeError, match="cannot sum over outputs"):
            ask()
