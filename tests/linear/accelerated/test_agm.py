"""Regularised risks by accelerated methods: schemes, certificates, theorems."""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import linprog, minimize
from sklearn.linear_model import ElasticNet as PeerElasticNet

from smoothsp.linear.problems import (
    BinaryProblem,
    CallbackProblem,
    ChainProblem,
    Corner,
    F1Problem,
    LeastSquaresProblem,
    LPBoostProblem,
    Parts,
    ROCAreaProblem,
    StructureProblem,
)
from smoothsp.linear.solvers import (
    AGM,
    BMRM,
    LBFGS,
    ElasticNetBall,
    Pragam,
    minimise_composite,
)
from smoothsp.oracles import ProjectiveDependencies
from tests.sweeps import thinned

SCHEMES = ("primal-smoothing", "dual-smoothing", "dual")
MEMORIES = ("infinite", "one")


def binary(bias, n=40, size=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, size))
    noisy = X @ rng.normal(size=size) + rng.normal(size=n) + 0.4
    return BinaryProblem(X, np.where(noisy > 0, 1, -1), bias=bias)


def chains(seed=0):
    rng = np.random.default_rng(seed)
    X, labels = rng.normal(size=(15, 3)), rng.integers(0, 3, 15)
    return ChainProblem(X, labels, lengths=[5, 1, 3, 6])


def trees(seed=0):
    rng = np.random.default_rng(seed)

    def build(potentials, batch):
        words = batch.sizes["arcs"][:, 0] - 1
        return ProjectiveDependencies(potentials["arcs"], lengths=words)

    arcs = Parts(rng.normal(size=(16 + 9, 4)), [[4, 4], [3, 3]])
    return StructureProblem(build, {"arcs": arcs}, [[2, 0, 2], [0, 1]])


def of_the_set(kind, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(14, 3))
    return kind(X, np.where(X[:, 0] + rng.normal(size=14) > 0.5, 1, -1))


SETS = [lambda: of_the_set(F1Problem), lambda: of_the_set(ROCAreaProblem)]


def best_of(problem, lam):
    found = BMRM(lam=lam, tol=1e-9).solve(problem)
    return found.dual, found.primal


MAKERS = [lambda: binary(False), lambda: binary(True), chains, trees, *SETS]


@pytest.mark.parametrize(
    ("make", "scheme", "memory"),
    thinned([*itertools.product(MAKERS, SCHEMES, MEMORIES)][::2], 5),
)
def test_every_certificate_holds_and_the_gap_closes(make, scheme, memory):
    problem = make()
    low, high = best_of(problem, 0.05)
    seen = []
    solver = AGM(lam=0.05, scheme=scheme, memory=memory, tol=1e-3, callback=seen.append)
    found = solver.solve(problem)
    assert found.converged
    for certificate in seen:
        assert certificate.dual <= high + 1e-9
        assert certificate.primal >= low - 1e-9
        assert certificate.gap == pytest.approx(
            certificate.primal - certificate.dual, abs=1e-12
        )
    risk, _ = problem.risk(found.w)
    assert found.primal == pytest.approx(0.025 * found.w @ found.w + risk)
    assert found.primal <= high + 1e-3


def test_tangents_are_below_the_risk_and_touch_where_smoothing_ends():
    rng = np.random.default_rng(1)
    some = [make() for make in (trees, *SETS)]
    for problem in (binary(False), binary(True), chains(), *some):
        size = problem.num_weights
        both = ("entropy", "l2")
        if problem in some[1:]:
            both = ("entropy",) if problem is some[1] else ("l2",)
        for mu in (1.0, 1e-3):
            for smoothing in both:
                w = rng.normal(size=size)
                tangent = problem.smoothed_tangent(w, mu, smoothing)
                value, slope, offset = tangent
                again = problem.smoothed_risk(w, mu, smoothing)
                # two loops of compiled code, which round in their own ways
                np.testing.assert_allclose(value, again[0], rtol=1e-14)
                np.testing.assert_allclose(slope, again[1], rtol=1e-13, atol=1e-15)
                for v in (w, *rng.normal(size=(5, size))):
                    assert v @ slope + offset <= problem.risk(v)[0] + 1e-10
                # (54): its own d is between 0 and D
                d = (w @ slope + offset - value) / mu
                assert -1e-9 <= d <= problem.diameter(smoothing) + 1e-9
                if smoothing == "entropy" or problem.num_weights == 5:
                    assert w @ slope + offset >= value - 1e-12


@pytest.mark.parametrize(
    ("make", "smoothing"),
    [(lambda: binary(True, n=9), "l2"), (trees, "entropy"), (SETS[1], "l2")],
    ids=["bias", "trees", "roc"],
)
def test_smoothed_risks_lie_between_and_have_their_gradient(make, smoothing):
    # T14: (54), and differences
    problem, rng = make(), np.random.default_rng(2)
    for mu in (3.0, 0.3, 0.01):
        D = problem.diameter(smoothing)
        for _ in range(3):
            w = rng.normal(size=problem.num_weights)
            risk, (value, slope) = (
                problem.risk(w)[0],
                problem.smoothed_risk(w, mu, smoothing),
            )
            assert risk - mu * D - 1e-9 <= value <= risk + 1e-9
            v = rng.normal(size=len(w))
            step = 1e-5 * mu
            ahead, behind = (
                problem.smoothed_risk(w + s * v, mu, smoothing)[0]
                for s in (step, -step)
            )
            assert (ahead - behind) / (2 * step) == pytest.approx(v @ slope, abs=1e-6)


def test_annealed_smoothing_is_certified_too():
    problem = chains()
    _, high = best_of(problem, 0.1)
    seen = []
    solver = AGM(lam=0.1, anneal=True, tol=1e-3, callback=seen.append)
    found = solver.solve(problem)
    assert found.converged and found.primal <= high + 1e-3
    assert all(x.dual <= high + 1e-9 for x in seen)


def test_the_likelihood_of_chains_is_that_of_newtons_methods():
    problem = chains()
    other = LBFGS(lam=0.1, tol=1e-10).solve(problem)
    for memory in MEMORIES:
        found = AGM(lam=0.1, loss="likelihood", memory=memory, tol=1e-9).solve(problem)
        assert found.converged
        # strong duality of the corrected (50)
        assert found.dual <= other.primal + 1e-12
        assert found.primal == pytest.approx(other.primal, abs=1e-8)


def test_the_elastic_net_is_that_of_scikit_learn():
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(50, 8)), rng.normal(size=50) * 2
    problem = LeastSquaresProblem(X, y)
    lam, l1 = 0.2, 0.3
    peer = PeerElasticNet(
        alpha=(lam + l1) / 2, l1_ratio=l1 / (lam + l1), fit_intercept=False, tol=1e-12
    ).fit(X, y)
    for memory in MEMORIES:
        solver = AGM(lam=lam, l1=l1, loss="likelihood", memory=memory, tol=1e-10)
        found = solver.solve(problem)
        assert found.converged
        assert np.abs(found.w - peer.coef_).max() < 1e-4
    # the ball that its solution touches has the same one
    w = found.w
    radius = 1.5 * float(np.abs(w).sum()) + float(w @ w) / 2
    ball = ElasticNetBall(1.5, 1.0, radius)
    assert l1 / lam == pytest.approx(1.5)
    inside = minimise_composite(
        problem.likelihood, ball, np.zeros(8), tol=1e-9, max_iterations=5000
    )
    assert inside.converged and np.abs(inside.x - w).max() < 1e-4


@pytest.mark.parametrize("memory", MEMORIES)
def test_absolute_values_alone_have_a_certificate(memory):
    problem = binary(True)
    n, size, l1 = len(problem), problem.num_weights, 0.05
    # w+, w-, b and one slack a sample
    signed = problem.y[:, None] * problem.X
    rows = np.hstack([-signed, signed, -problem.y[:, None], -np.eye(n)])
    costs = np.r_[np.full(2 * size, l1), 0.0, np.full(n, 1 / n)]
    bounds = [(0, None)] * (2 * size) + [(None, None)] + [(0, None)] * n
    exact = linprog(costs, A_ub=rows, b_ub=-np.ones(n), bounds=bounds).fun
    seen = []
    solver = AGM(lam=0.0, l1=l1, memory=memory, tol=2e-3, callback=seen.append)
    found = solver.solve(problem)
    assert found.converged and found.primal <= exact + 2e-3
    assert all(x.dual <= exact + 1e-9 <= x.primal + 2e-9 for x in seen)


@pytest.mark.long
@pytest.mark.parametrize(("lam", "cap"), [(0.1, 0.3), (0.0, math.inf)])
def test_boosting_on_the_simplex(cap, lam):
    rng = np.random.default_rng(3)
    U = rng.uniform(-1, 1, (12, 6))
    problem = LPBoostProblem(U)
    if lam:
        best = minimize(
            lambda x: x[-1] + lam * np.sum(x[:-1] * np.log(6 * x[:-1])),
            np.r_[np.full(6, 1 / 6), 1.0],
            bounds=[(1e-9, min(cap, 1.0))] * 6 + [(None, None)],
            constraints=[
                {"type": "eq", "fun": lambda x: x[:-1].sum() - 1},
                {"type": "ineq", "fun": lambda x: x[-1] - U @ x[:-1]},
            ],
            options={"ftol": 1e-12, "maxiter": 500},
            method="SLSQP",
        ).fun
    else:
        best = linprog(
            np.r_[np.zeros(6), 1.0],
            A_ub=np.hstack([U, -np.ones((12, 1))]),
            b_ub=np.zeros(12),
            A_eq=np.r_[np.ones(6), 0.0][None],
            b_eq=[1.0],
            bounds=[(0, min(cap, 1.0))] * 6 + [(None, None)],
        ).fun
    for scheme in SCHEMES if lam else SCHEMES[:1]:
        for memory in MEMORIES:
            solver = AGM(
                lam=lam,
                domain="simplex",
                cap=cap,
                scheme=scheme,
                memory=memory,
                tol=1e-3,
                certify_every=5,
            )
            found = solver.solve(problem)
            assert found.converged
            assert found.dual <= best + 1e-7 and found.primal >= best - 1e-7
            assert found.w.sum() == pytest.approx(1) and found.w.max() <= cap + 1e-9


@pytest.mark.parametrize("scheme", SCHEMES)
def test_bounds_by_power_iteration_are_bounds(scheme):
    for prox in ("uniform", "data"):
        problem = binary(True)
        _, high = best_of(problem, 0.1)
        solver = AGM(lam=0.1, scheme=scheme, prox=prox, adaptive=False, tol=1e-3)
        found = solver.solve(problem)
        assert found.converged and found.primal <= high + 1e-3
    with pytest.raises(ValueError, match="lipschitz: expected a bound"):
        AGM(lam=0.1, scheme=scheme, adaptive=False).solve(chains())


def test_decreasing_smoothing_is_that_of_excessive_gaps():
    problem = binary(True)
    settings = {"lam": 0.1, "tol": 1e-4, "certify_every": 5}
    found = AGM(scheme="decreasing", adaptive=False, **settings).solve(problem)
    other = Pragam(**settings).solve(problem)
    assert found.converged and (found.w == other.w).all()
    assert AGM(scheme="decreasing", **settings).solve(problem).converged
    with pytest.raises(TypeError, match="expected a BinaryProblem"):
        AGM(scheme="decreasing", **settings).solve(chains())
    with pytest.raises(TypeError, match="prox: expected 'uniform'"):
        AGM(prox="data", **settings).solve(chains())


def test_a_start_is_where_it_starts():
    problem = binary(False)
    first = AGM(lam=0.1, tol=1e-4).solve(problem)
    again = AGM(lam=0.1, tol=1e-4).solve(problem, start=first)
    assert again.converged and again.passes < first.passes
    with pytest.raises(ValueError, match="start: expected None for a dual scheme"):
        AGM(lam=0.1, scheme="dual").solve(problem, start=first)
    with pytest.raises(ValueError, match=r"start: expected \(5,\) weights"):
        AGM(lam=0.1).solve(problem, start=np.zeros(3))


@pytest.mark.parametrize("build", [chains, trees])
def test_projections_over_more_outputs_than_tangents_have_raise(build):
    for scheme in ("dual", "dual-smoothing"):
        solver = AGM(lam=0.1, scheme=scheme, smoothing="l2")
        with pytest.raises(ValueError, match="smoothing: expected 'entropy' for a"):
            solver.solve(build())
    assert AGM(lam=0.1, scheme="dual", smoothing="l2").solve(five_classes()).converged


def five_classes():
    rng = np.random.default_rng(0)
    X, labels = rng.normal(size=(20, 3)), np.arange(20) % 5
    return ChainProblem(X, labels, lengths=[1] * 20)


def test_problems_without_tangents_raise():
    problem = CallbackProblem(1, 2, lambda i, w: Corner(np.array([1.0, 0.0]), 1.0))
    with pytest.raises(TypeError, match="smoothed_tangent"):
        AGM(lam=0.1, scheme="dual").solve(problem)
