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
    MulticlassProblem,
    Parts,
    ROCAreaProblem,
    StructureProblem,
)
from smoothsp.linear.solvers import (
    AGM,
    BMRM,
    LBFGS,
    CappedSimplex,
    ElasticNet,
    ElasticNetBall,
    Pragam,
    minimise_composite,
)
from smoothsp.linear.solvers.accelerated.scaled_hinge import ScaledHinge
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
    thinned(itertools.product(MAKERS, SCHEMES, MEMORIES), 5),
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


@pytest.mark.parametrize("smoothing", ["entropy", "l2"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_both_smoothings_reach_the_optimum(smoothing, scheme):
    for problem in (
        binary(True),
        MulticlassProblem(np.eye(4)[[0, 1, 2, 3, 1]], [0, 1, 2, 0, 0]),
    ):
        known = hasattr(problem, "smoothed_tangent")
        if not known and scheme != "primal-smoothing":
            continue
        _, high = best_of(problem, 0.1)
        found = AGM(lam=0.1, smoothing=smoothing, scheme=scheme, tol=1e-3).solve(
            problem
        )
        assert found.converged and found.primal <= high + 1e-3


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
                assert value == again[0] and (slope == again[1]).all()
                for v in (w, *rng.normal(size=(5, size))):
                    assert v @ slope + offset <= problem.risk(v)[0] + 1e-10
                # (54): its own d is between 0 and D
                d = (w @ slope + offset - value) / mu
                assert -1e-9 <= d <= problem.diameter(smoothing) + 1e-9
                if smoothing == "entropy" or problem.num_weights == 5:
                    assert w @ slope + offset >= value - 1e-12


@pytest.mark.parametrize("memory", MEMORIES)
def test_smoothing_in_the_primal_takes_the_steps_that_theorem_19_allows(memory):
    lam, eps = 0.05, 0.02
    problem = binary(True)
    n, D = len(problem), problem.diameter("l2")
    norm = np.linalg.norm(problem.X, 2) ** 2 / n
    mu = eps / D
    best = minimise_w(problem, lam)
    far = float(best @ best) / 2
    low, _ = best_of(problem, lam)
    # per sample: D |A|^2 is half of the largest eigenvalue of X'X / n
    c = 4 * D * norm
    steps = min(
        math.sqrt(c * far) / eps,
        1 + math.log(c * far / eps**2) / 2 / math.log1p(math.sqrt(lam * eps / c)),
    )
    seen = []
    solver = AGM(
        lam=lam,
        memory=memory,
        mu=mu,
        adaptive=False,
        lipschitz=norm / mu,
        tol=0.0,
        max_passes=math.ceil(steps),
        callback=seen.append,
    )
    solver.solve(problem)
    assert len(seen) == math.ceil(steps)
    assert seen[-1].primal - low <= 2 * eps


@pytest.mark.parametrize(
    ("make", "smoothing"),
    [
        (lambda: binary(True, n=9), "l2"),
        (chains, "entropy"),
        (trees, "entropy"),
        (SETS[0], "entropy"),
        (SETS[1], "l2"),
    ],
    ids=["bias", "chains", "trees", "f1", "roc"],
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


def minimise_w(problem, lam):
    return BMRM(lam=lam, tol=1e-10).solve(problem).w


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("scheme", ["dual", "dual-smoothing"])
def test_the_dual_closes_its_gap_as_fast_as_theorem_20_says(memory, scheme):
    lam, eps = 0.05, 0.02
    problem = binary(True)
    n = len(problem)
    # d is half of sum n alpha^2, which is 1-strongly convex in its norm
    norm = np.linalg.norm(problem.X, 2) ** 2 / n
    M = D = problem.diameter("l2")
    L = norm / lam
    seen = []
    mu = eps / D if scheme == "dual-smoothing" else None
    solver = AGM(
        lam=lam,
        memory=memory,
        scheme=scheme,
        mu=mu,
        adaptive=False,
        lipschitz=L,
        tol=1e-9,
        max_passes=200,
        callback=seen.append,
    )
    solver.solve(problem)
    error = 0.0 if mu is None else eps
    for k, certificate in enumerate(seen, 1):
        # section 5.3, and (61) with what smoothing costs
        steps = k if memory == "infinite" else k - 1
        bound = 4 * L * M / (steps + 1) ** 2 + error
        assert certificate.gap <= 1.001 * bound + 1e-6


def test_smoothing_in_the_primal_has_a_bound_that_falls():
    # the gap of the smoothed problem, for weights that tangents make
    lam, mu = 0.1, 0.1
    problem = binary(False)
    L = np.linalg.norm(problem.X, 2) ** 2 / len(problem) / mu

    def smoothed(w):
        return problem.smoothed_risk(w, mu, "l2")

    gaps = []

    def note(k, value, bound):
        gaps.append(value - bound)

    simple = ElasticNet(l2=lam)
    found = minimise_composite(
        smoothed,
        simple,
        np.zeros(5),
        lipschitz=L,
        adaptive=False,
        tol=0.0,
        max_iterations=120,
        callback=note,
    )
    w = found.x
    for k, gap in enumerate(gaps, 1):
        # T16: lam / (2 (1 + lam A)) |w(alpha)|^2, and |w(alpha)| <= R / lam
        A = max((k + 1) ** 2 / (4 * L), (1 + math.sqrt(lam / 4 / L)) ** (2 * k - 2) / L)
        longest = np.linalg.norm(problem.X, axis=1).max() / lam
        assert gap <= lam / (2 * (1 + lam * A)) * longest**2 + 1e-10
    assert gaps[-1] < 1e-3 * gaps[0]
    _, slope = smoothed(w)
    assert np.linalg.norm(slope + lam * w) < 1e-2


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


@pytest.mark.parametrize(
    ("lam", "cap"),
    thinned([(0.0, 0.3), (0.1, 0.3), (0.1, math.inf), (0.0, math.inf)], 2),
)
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
    # Omega* of (51), without the minus that is printed there
    v = rng.normal(size=6)
    simple = CappedSimplex(6, 0.1, 0.3)
    dual = minimize(
        lambda b: 0.1 * np.log(np.mean(np.exp((v - b) / 0.1))) + 0.3 * b.sum(),
        np.full(6, 0.1),
        bounds=[(0, None)] * 6,
        options={"ftol": 1e-15, "gtol": 1e-10},
    )
    assert simple.conjugate(v) == pytest.approx(dual.fun, abs=1e-6)


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


def test_scales_of_samples_never_make_it_harder():
    rng = np.random.default_rng(4)
    better = 0
    for seed in range(10):
        X = rng.normal(size=(30, 6)) * 10 ** rng.normal(0, 0.7, (30, 1))
        y = np.where(X[:, 0] + rng.normal(size=30) > 0, 1, -1)
        problem = BinaryProblem(X, y, bias=bool(seed % 2))
        scaled = ScaledHinge(problem)
        uniform, lengths, _ = scaled.constants
        exact = np.linalg.norm(X / np.sqrt(30 * scaled.scales)[:, None], 2) ** 2
        assert min(scaled.constants) == pytest.approx(exact, rel=0.05)
        assert exact <= 1.05 * np.linalg.norm(X, 2) ** 2 / 30
        better += lengths < 0.8 * uniform
        assert scaled.scales.mean() == pytest.approx(1)
        w, mu, D = rng.normal(size=6) / 10, 0.1, scaled.diameter()
        risk, (value, slope, offset) = (
            problem.risk(w)[0],
            scaled.smoothed_tangent(w, mu),
        )
        assert risk - mu * D <= value + 1e-12 <= risk + 2e-12
        for v in rng.normal(size=(5, 6)):
            assert v @ slope + offset <= problem.risk(v)[0] + 1e-12
            step = 1e-6
            ahead, _ = scaled.smoothed_risk_of_scores(X @ (w + step * v), mu)
            behind, _ = scaled.smoothed_risk_of_scores(X @ (w - step * v), mu)
            assert (ahead - behind) / (2 * step) == pytest.approx(v @ slope, abs=1e-5)
    assert better >= 8


def test_decreasing_smoothing_is_that_of_excessive_gaps():
    problem = binary(True)
    settings = {"lam": 0.1, "tol": 1e-4, "certify_every": 5}
    found = AGM(scheme="decreasing", adaptive=False, **settings).solve(problem)
    other = Pragam(**settings).solve(problem)
    assert found.converged and (found.w == other.w).all()
    part = AGM(scheme="decreasing", adaptive=False, max_passes=20, **settings)
    rest = AGM(scheme="decreasing", adaptive=False, **settings)
    resumed = rest.solve(problem, resume=part.solve(problem).state)
    assert (resumed.w == found.w).all()
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
    del first.state["examples"]  # as before there were such marks
    with pytest.raises(ValueError, match=r"got \(5,\). Was it another problem"):
        AGM(lam=0.1, tol=1e-4).solve(binary(False, size=4), resume=first.state)


def test_problems_without_tangents_are_told_so():
    problem = CallbackProblem(1, 2, lambda i, w: Corner(np.array([1.0, 0.0]), 1.0))
    with pytest.raises(TypeError, match="smoothed_tangent"):
        AGM(lam=0.1, scheme="dual").solve(problem)
