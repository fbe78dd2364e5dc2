"""One meaning for each field of every history, of solvers and of estimators."""

import numpy as np
import pytest
from scipy import sparse

from smoothsp._kernels.compilation import clock
from smoothsp.linear import (
    L1SVC,
    ChainGP,
    CrammerSingerSVC,
    HingeSVC,
    LPBoostClassifier,
    WestonWatkinsSVC,
)
from smoothsp.linear.problems import (
    BinaryProblem,
    CallbackProblem,
    ChainProblem,
    LeastSquaresProblem,
    StructureProblem,
)
from smoothsp.linear.solvers import (
    AGM,
    BCFW,
    BMRM,
    LBFGS,
    SDCA,
    SGD,
    SVRG,
    BatchFrankWolfe,
    CasimirSVRG,
    CoordinateDescent,
    Pragam,
    RegularisationPath,
    grid_search,
)
from tests.linear.solvers.test_primal_callbacks import behind_oracles
from tests.truth.linear_chain import random_chain
from tests.truth.structure_problems import known_problem

LAM, N, K = 0.3, 6, 4
CHAIN = random_chain(1, n=N)
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(N, 4))
START = RNG.normal(size=CHAIN.num_weights)
SIGNS = np.array([1, -1, 1, -1, 1, 1])
SMOOTH = {"loss": "hinge-l2", "mu": 0.4, "k": K}


def binary(**options):
    return BinaryProblem(ROWS, SIGNS, **options)


# made with a callback and options, on a problem
BY_EXAMPLE = {
    "BCFW": lambda **o: BCFW(refresh_every=2, **o),
    "BCFW, cached": lambda **o: BCFW(
        refresh_every=4, cache=True, steps="pairwise", **o
    ),
    "BCFW, averaged": lambda **o: BCFW(refresh_every=3, averaging=True, **o),
    "BCFW, in a box": lambda **o: BCFW(refresh_every=2, bounds=(-0.1, 0.2), **o),
    "BatchFrankWolfe": lambda **o: BatchFrankWolfe(**o),
    "BMRM": lambda **o: BMRM(**o),
    "SGD": lambda **o: SGD(evaluate_every=2, **o),
    "SGD, smoothed": lambda **o: SGD(evaluate_every=2, **SMOOTH, **o),
    "SVRG": lambda **o: SVRG(evaluate_every=2, mu=0.4, k=K, **o),
    "SVRG, not smoothed": lambda **o: SVRG(evaluate_every=2, loss="hinge", **o),
    "Casimir": lambda **o: CasimirSVRG(
        smoothness=9.0, evaluate_every=2, mu=0.4, k=K, **o
    ),
    "Casimir, adapt": lambda **o: CasimirSVRG(
        schedule="adapt", inner_passes=2, evaluate_every=2, k=K, **o
    ),
    "L-BFGS, smoothed": lambda **o: LBFGS(**SMOOTH, **o),
    "AGM": lambda **o: AGM(smoothing="l2", mu=0.1, certify_every=2, **o),
    "AGM, one memory": lambda **o: AGM(smoothing="l2", mu=0.1, memory="one", **o),
}
ALL = {
    **{name: (make, CHAIN) for name, make in BY_EXAMPLE.items()},
    "L-BFGS": (lambda **o: LBFGS(**o), CHAIN),
    "SDCA": (lambda **o: SDCA(refresh_every=2, **o), CHAIN),
    "SGD, likelihood": (lambda **o: SGD(loss="likelihood", **o), CHAIN),
    "AGM, likelihood": (lambda **o: AGM(loss="likelihood", **o), CHAIN),
    "AGM, dual": (lambda **o: AGM(scheme="dual", **o), CHAIN),
    "AGM, smoothed dual": (
        lambda **o: AGM(scheme="dual-smoothing", mu=0.1, **o),
        CHAIN,
    ),
    "AGM, decreasing": (lambda **o: AGM(scheme="decreasing", **o), binary(bias=True)),
    "AGM, two classes": (lambda **o: AGM(mu=0.1, prox="data", **o), binary()),
    "Pragam": (lambda **o: Pragam(**{"certify_every": 2, **o}), binary(bias=True)),
    "Pragam, rows": (
        lambda **o: Pragam(**{"certify_every": 2, **o}),
        BinaryProblem(sparse.csr_matrix(ROWS), SIGNS),
    ),
    "Pragam, adaptive": (
        lambda **o: Pragam(lipschitz="adaptive", **o),
        binary(bias=True),
    ),
    "CoordinateDescent": (
        lambda **o: CoordinateDescent(l1=0.1, **o),
        LeastSquaresProblem(ROWS, ROWS[:, 0] + 0.3),
    ),
}


def run(name, problem=None, **options):
    """A solution of a few passes, and its certificates with weights and states."""
    make, usual = ALL[name]
    seen = []

    def look(certificate):
        seen.append((certificate, certificate.w, certificate.state))

    options = {"lam": LAM, "tol": 0.0, "max_passes": 7, "callback": look, **options}
    solver = make(**options)
    # at weights 0 outputs tie
    begin = {"start": START} if name == "L-BFGS, smoothed" else {}
    problem = usual if problem is None else problem
    return solver.solve(problem, **begin), seen, solver


def plain(problem, solver, w):
    """The objective that the user named."""
    loss = getattr(solver, "loss", "hinge")
    likelihood = getattr(loss, "name", loss) == "likelihood"
    risk = problem.likelihood if likelihood else problem.risk
    l1 = getattr(solver, "l1", 0.0) * np.abs(w).sum()
    return LAM / 2 * w @ w + l1 + risk(w)[0]


@pytest.mark.parametrize("name", ALL)
def test_values_are_those_of_the_weights(name):
    problem = ALL[name][1]
    solution, seen, solver = run(name)
    assert seen and len(seen) == len(solution.history)
    names = ("primal", "dual", "gap", "smoothed_primal", "passes")
    best = min(at.minimised for at, _, _ in run(name, max_passes=300)[1])
    smooths = getattr(solver, "loss", None) == SGD(lam=LAM, **SMOOTH).loss
    smooths &= getattr(solver, "schedule", "const") != "adapt"
    for at, w, state in seen:
        assert at.primal == pytest.approx(plain(problem, solver, w), rel=1e-12)
        assert np.array_equal(state["w"], w) and w.shape == (problem.num_weights,)
        assert np.isnan(at.smoothed_primal) == (not smooths)
        if smooths:
            # smoothed from above here, and from below there
            lift = SMOOTH["mu"] * problem.diameter("l2")
            risk = problem.smoothed_risk(w, SMOOTH["mu"], "l2", K)[0] + lift
            assert at.smoothed_primal == pytest.approx(LAM / 2 * w @ w + risk)
            assert at.minimised == at.smoothed_primal > at.primal
        if not np.isnan(at.gap):
            assert at.gap == pytest.approx(at.minimised - at.dual, abs=1e-12)
            assert at.dual <= best + 1e-9
    last = seen[-1][0]
    assert np.array_equal(solution.w, seen[-1][1])
    for field in names:
        np.testing.assert_equal(getattr(solution, field), getattr(last, field))
    with pytest.raises(ValueError, match=r"^w: expected access within the callback"):
        _ = last.w


class Counter:
    """An oracle in Python, and its calls."""

    def __init__(self, problem):
        inner, self.calls = behind_oracles(problem), 0

        def one(i, w):
            self.calls += 1
            return inner.max_oracle(i, w)

        def few(i, w, k):
            self.calls += 1
            return inner.topk_oracle(i, w, k)

        self.problem = CallbackProblem(len(problem), problem.num_weights, one, few)


@pytest.mark.parametrize("name", BY_EXAMPLE)
def test_oracle_calls_are_those_that_happen(name):
    counter = Counter(CHAIN)
    counts = []

    def look(certificate):
        counts.append(counter.calls == certificate.oracle_calls)

    found, _, _ = run(name, counter.problem, callback=look)
    assert found.oracle_calls == counter.calls > 0
    assert counts and all(counts)
    compiled = run(name)[0]
    assert compiled.oracle_calls == found.oracle_calls
    again = run(name, max_passes=3)[0]
    going_on = ALL[name][0](lam=LAM, tol=0.0, max_passes=7)
    resumed = going_on.solve(CHAIN, resume=again.state)
    assert resumed.oracle_calls == compiled.oracle_calls


QUESTIONS = ("risk", "smoothed_risk", "smoothed_tangent", "likelihood")


OF_SETS = [
    name
    for name, (_, problem) in ALL.items()
    if problem is CHAIN and (name not in BY_EXAMPLE or name.startswith("AGM"))
]


@pytest.mark.parametrize("name", OF_SETS)
def test_whole_sets_count_each_example(name, monkeypatch):
    counts = []
    for question in QUESTIONS:
        usual = getattr(ChainProblem, question)

        def counted(problem, *given, usual=usual):
            counts.append(len(problem))
            return usual(problem, *given)

        monkeypatch.setattr(ChainProblem, question, counted)
    found = run(name)[0]
    if name.startswith("AGM"):
        assert found.oracle_calls == sum(counts) > 0
    else:
        # a pass and a certificate; those of L-BFGS cost nothing
        looks = 0 if name == "L-BFGS" else len(found.history)
        assert found.oracle_calls == N * (found.passes + looks)


@pytest.mark.parametrize("name", ["Pragam", "Pragam, adaptive", "AGM, decreasing"])
def test_pragam_counts_projections_and_risks(name, monkeypatch):
    counts = []
    for question in ("project", "risk_of_scores"):
        usual = getattr(BinaryProblem, question)

        def counted(problem, *given, usual=usual):
            counts.append(len(problem))
            return usual(problem, *given)

        monkeypatch.setattr(BinaryProblem, question, counted)
    assert run(name)[0].oracle_calls == sum(counts) > 0


def test_pragam_counts_rows_as_dense_ones():
    dense, rows = run("Pragam", binary()), run("Pragam, rows")
    assert dense[0].oracle_calls == rows[0].oracle_calls


@pytest.mark.parametrize("name", ["SGD, smoothed", "SVRG", "Casimir, adapt", "BCFW"])
def test_structures_count_their_examples(name, monkeypatch):
    problem = known_problem("chain").problem
    counts = []
    usual = StructureProblem._prepare

    def counted(problem, w, chosen):
        counts.append(len(chosen))
        return usual(problem, w, chosen)

    monkeypatch.setattr(StructureProblem, "_prepare", counted)
    assert run(name, problem)[0].oracle_calls == sum(counts) > 0


@pytest.mark.parametrize("kind", [HingeSVC, WestonWatkinsSVC, CrammerSingerSVC])
def test_estimators_count_samples_and_show_weights(kind):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40, 3))
    y = X[:, :3].argmax(1) if kind is not HingeSVC else (X[:, 0] > 0.2).astype(int)
    y[:6] = (y[:6] + 1) % (2 if kind is HingeSVC else 3)
    seen = []

    def look(certificate):
        seen.append((certificate, certificate.w, certificate.state["w"]))

    model = kind(
        tol=1e-6, shrinking=False, certify_every=1, callback=look, fit_intercept=False
    ).fit(X, y)
    for k, (at, w, stored) in enumerate(seen):
        assert np.array_equal(w, stored)
        margins = X @ (w if w.ndim == 2 else np.stack([0 * w, w], 1))
        if kind is HingeSVC:
            hinge = np.maximum(0, 1 - (2 * y - 1) * (X @ w)).sum()
            assert at.primal == pytest.approx(w @ w / 2 + hinge)
        else:
            assert margins.shape == (40, 3)
        # a sweep solves each sample, a certificate looks at it
        if k and kind is not HingeSVC:
            assert at.oracle_calls - seen[k - 1][0].oracle_calls in (80, 120)
        assert at.oracle_calls > 0
    seconds = [at.seconds for at, _, _ in seen]
    assert seconds == sorted(seconds) and seconds[0] > 0
    coef = seen[-1][1].T
    np.testing.assert_allclose(np.squeeze(model.coef_), coef, atol=1e-3)


def test_estimators_of_other_loops_have_the_fields():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(30, 3))
    y = (X[:, 0] + 0.3 * rng.normal(size=30) > 0).astype(int)
    seen = []
    L1SVC(tol=1e-3, callback=lambda at: seen.append((at.w, at.state["w"]))).fit(X, y)
    assert seen and all(np.array_equal(*pair) for pair in seen)
    model = L1SVC(tol=1e-3).fit(X, y)
    assert model.history_[-1].oracle_calls >= 30 * model.history_[-1].passes
    boosted = LPBoostClassifier(tol=0.2, lam=0.5).fit(X, y)
    passes = [at.passes for at in boosted.history_]
    assert passes == list(range(1, boosted.n_iter_ + 1))
    assert boosted.history_[-1].oracle_calls == boosted.n_iter_
    with pytest.raises(ValueError, match=r"^w: expected access"):
        kernel = {"kernel": "rbf", "callback": lambda at: at.w}
        WestonWatkinsSVC(**kernel).fit(X, y)
    gp = ChainGP(C=1.0).fit([X[:4], X[4:9]], [y[:4], y[4:9]])
    assert gp.history_[-1].oracle_calls == 2 * gp.n_passes_


def test_paths_and_grids_have_weights_and_calls():
    path = RegularisationPath(eps=0.3, max_points=3).solve(CHAIN)
    grid = grid_search(CHAIN, [1.0, 0.5])
    for found in (path, grid):
        assert found.state["w"].shape == found.points[-1].w.shape
        for point in found.points:
            assert point.dual == point.primal - point.gap


def test_seconds_are_without_compilation(monkeypatch):
    now = [10.0]
    monkeypatch.setattr(clock.time, "perf_counter", lambda: now[0])
    begun = clock.seconds_without_compilation()
    now[0] += 1
    with clock.exclude_compilation():
        now[0] += 50
        # of another thread
        with clock.exclude_compilation():
            now[0] += 7
        assert clock.seconds_without_compilation() - begun == 1
    now[0] += 2
    assert clock.seconds_without_compilation() - begun == 3


def test_runs_use_that_clock(monkeypatch):
    now = [10.0]
    monkeypatch.setattr(clock, "seconds_without_compilation", lambda: now[0])

    def look(_):
        now[0] += 1

    found = BCFW(lam=LAM, tol=0, refresh_every=1, max_passes=4, callback=look)
    assert [at.seconds for at in found.solve(CHAIN).history] == [0, 1, 2, 3]
    path = RegularisationPath(eps=0.3, max_points=3, callback=look).solve(CHAIN)
    assert [point.seconds for point in path.points] == [0, 1, 2]
    y = (ROWS[:, 0] > 0).astype(int)
    model = HingeSVC(tol=1e-9, certify_every=1, callback=look).fit(ROWS, y)
    assert [at.seconds for at in model.history_] == list(range(len(model.history_)))


@pytest.mark.parametrize("name", ["BCFW", "SDCA", "SGD", "SVRG, not smoothed"])
def test_a_run_that_was_over_has_its_certificate_again(name):
    # at the end of a budget, between two certificates
    solution, _, solver = run(name, max_passes=5, callback=None)
    again = solver.solve(ALL[name][1], resume=solution.state)
    assert again.primal == solution.primal and again.w.tolist() == solution.w.tolist()
    assert len(again.history) == len(solution.history)
    assert again.oracle_calls == solution.oracle_calls
