"""Cutting planes against other solvers of the same problems, and their bounds."""

import sys

import numpy as np
import pytest
from scipy import sparse
from sklearn.svm import SVC

from smoothsp._kernels.combinatorial.cutting_planes import BLOCK
from smoothsp.linear import HingeSVC
from smoothsp.linear.problems import BinaryProblem, CallbackProblem, ChainProblem
from smoothsp.linear.solvers import BCFW, BMRM
from smoothsp.linear.solvers.cutting_planes.models import AllCuts, AveragedCut

INNER = ["qp", "line-search"]


def noisy(seed, n=150, d=6):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = np.sign(X @ rng.normal(size=d) + 0.5 + rng.normal(size=n))
    return X, y


@pytest.mark.parametrize(("seed", "lam"), [(0, 1.0), (1, 1e-2), (2, 1e-4)])
def test_the_optimum_of_two_classes(seed, lam):
    X, y = noisy(seed)
    exact = HingeSVC(
        C=1 / (lam * len(y)),
        fit_intercept=False,
        tol=1e-8,
        stopping="objective",
        max_epochs=100_000,
    ).fit(X, y)
    found = BMRM(lam=lam, tol=1e-9).solve(BinaryProblem(sparse.csr_array(X), y))
    assert found.converged
    last = exact.history_[-1]
    assert lam * last.dual <= found.primal * (1 + 1e-12)
    assert found.dual <= lam * last.primal * (1 + 1e-12)
    hinges = np.maximum(1 - y * (X @ found.w), 0).mean()
    assert found.primal == pytest.approx(lam / 2 * found.w @ found.w + hinges)


@pytest.mark.parametrize(("lam", "weighted"), [(1e-1, True), (1e-3, False)])
def test_the_optimum_with_a_bias_that_costs_nothing(lam, weighted):
    X, y = noisy(5)
    weights = np.random.default_rng(0).integers(0, 4, len(y)) * 1.0
    problem = BinaryProblem(X, y, bias=True, weights=weights if weighted else None)
    found = BMRM(lam=lam, tol=1e-9).solve(problem)
    exact = SVC(kernel="linear", C=1 / (lam * len(y)), tol=1e-9)
    exact.fit(X, y, sample_weight=weights if weighted else None)
    w, b = exact.coef_[0], exact.intercept_[0]
    costs = weights if weighted else np.ones(len(y))
    primal = lam / 2 * w @ w + (costs * np.maximum(1 - y * (X @ w + b), 0)).mean()
    b = problem.optimal_bias(found.w)
    mine = (costs * np.maximum(1 - y * (X @ found.w + b), 0)).mean()
    assert found.primal == pytest.approx(lam / 2 * found.w @ found.w + mine)
    # theirs stops at a violation, not at a gap
    assert found.converged and found.primal <= primal + 1e-9
    assert found.primal == pytest.approx(primal, abs=1e-6)
    np.testing.assert_allclose(found.w, w, atol=1e-3)


def chains(seed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 5, 12)
    labels = rng.integers(3, size=lengths.sum())
    features = rng.normal(size=(len(labels), 4)) + np.eye(3, 4)[labels]
    return ChainProblem(features, labels, lengths=lengths)


@pytest.mark.parametrize("lam", [1.0, 0.03])
def test_one_slack_for_a_structure(lam):
    problem = chains(0)
    exact = BCFW(lam=lam, steps="pairwise", tol=1e-7, max_passes=5000).solve(problem)
    found = BMRM(lam=lam, tol=1e-7).solve(problem)
    assert found.converged and exact.converged
    assert found.primal == pytest.approx(exact.primal, abs=2e-7)
    again = CallbackProblem(len(problem), problem.num_weights, problem.worst)
    same = BMRM(lam=lam, tol=1e-7).solve(again)
    assert same.primal == pytest.approx(found.primal, abs=2e-7)
    assert found.oracle_calls == len(problem) * (found.passes + 1)


@pytest.mark.parametrize("inner", INNER)
def test_bounds_hold_at_every_certificate(inner):
    X, y = noisy(3)
    problem, lam = BinaryProblem(X, y, bias=True), 1e-2
    best = BMRM(lam=lam, tol=1e-10).solve(problem).primal
    found = BMRM(lam=lam, inner=inner, tol=1e-4, max_passes=300).solve(problem)
    dual = np.array([at.dual for at in found.history])
    primal = np.array([at.primal for at in found.history])
    gap = np.array([at.gap for at in found.history])
    assert (dual <= best + 1e-12).all() and (primal >= best - 1e-10).all()
    assert (np.diff(dual) >= 0).all() and (np.diff(primal) <= 0).all()
    np.testing.assert_allclose(gap, primal - dual, atol=1e-15)
    # the theorem's upper bound on the number of rounds
    G = np.linalg.norm(X, axis=1).mean()
    for eps in (0.5, 0.1, 0.02):
        rounds = 1 + int((gap <= eps).argmax())
        assert rounds <= np.log2(lam / G**2) + 8 * G**2 / (lam * eps) - 4


def test_the_step_of_the_line_search_is_that_of_both_formulas():
    X, y = noisy(1)
    problem, lam = BinaryProblem(X, y), 1e-2
    model = AveragedCut(lam)
    w = np.zeros(problem.num_weights)
    for t in range(60):
        value, slope = problem.risk(w)
        p, offset, *_ = model.average if t else (0.0 * w, 0.0)
        dual = offset - p @ p / (2 * lam)
        objective = lam / 2 * w @ w + value
        model = model.add(slope, value - w @ slope)
        if t:
            gap = lam * (objective - dual)
            eta = np.clip(gap / ((slope - p) @ (slope - p)), 0, 1)
            np.testing.assert_allclose(
                model.average.p, (1 - eta) * p + eta * slope, rtol=1e-6
            )
            # no other step between the two does better
            reached = model.average.offset - model.average.p @ model.average.p / (
                2 * lam
            )
            for other in np.linspace(0, 1, 21):
                q = (1 - other) * p + other * slope
                b = (1 - other) * offset + other * (value - w @ slope)
                assert b - q @ q / (2 * lam) <= reached + 1e-12
        w = -model.average.p / lam


@pytest.mark.parametrize("size", [1, 8, 9, 2 * BLOCK + 3])
def test_products_and_mean_are_those_of_the_cuts(size):
    rng, lam, kept = np.random.default_rng(size), 0.5, []
    model = AllCuts(size, lam, drop_after=2)
    # less room than there are cuts: the second half is in a larger one
    model.buffer = type(model.buffer).allocate(5, size)
    for _ in range(12):
        slope, offset = rng.normal(size=size), float(rng.normal())
        model = model.add(slope, offset)
        kept.append((offset, slope))
        offsets, weights = model.state()["offsets"], model.state()["weights"]
        kept = [cut for cut in kept if cut[0] in offsets]
        b, G = np.array([b for b, _ in kept]), np.array([g for _, g in kept])
        assert (model.state()["slopes"] == G).all() and (offsets == b).all()
        products = model.state()["products"]
        np.testing.assert_allclose(products, G @ G.T, rtol=1e-12, atol=1e-10)
        assert (products == products.T).all()
        np.testing.assert_allclose(model.average.p, weights @ G, rtol=1e-12, atol=1e-13)
        # a maximum of the dual: no cut has a steeper ascent
        slopes = lam * b - G @ model.average.p
        assert slopes.max() <= weights @ slopes + 1e-9 * max(1, size)
    assert len(model.buffer.gradients) > 5 or size == 1


def test_forgotten_cuts_do_not_change_the_optimum():
    X, y = noisy(4)
    problem = BinaryProblem(X, y)
    kept = BMRM(lam=1e-3, tol=1e-8, drop_after=None).solve(problem)
    dropped = BMRM(lam=1e-3, tol=1e-8, drop_after=2).solve(problem)
    assert kept.converged and dropped.converged
    assert dropped.primal == pytest.approx(kept.primal, abs=2e-8)
    assert len(kept.state["offsets"]) == kept.passes
    assert len(dropped.state["offsets"]) < kept.passes / 2
    assert (np.diff([at.dual for at in dropped.history]) >= 0).all()


class _AtLine:
    """Ctrl-C before the n-th line of passes and certificates, by a tracer."""

    INSIDE = ("advance", "_evaluate", "add", "certify")

    def __init__(self, n):
        self.left, self.before = n, sys.gettrace()

    def __call__(self, frame, event, _):
        code = frame.f_code
        inside = code.co_name in self.INSIDE and "cutting_planes" in code.co_filename
        if not inside or self.left <= 0:
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self


@pytest.mark.parametrize("inner", INNER)
def test_ctrl_c_anywhere_in_a_pass_leaves_a_state_that_goes_on(inner):
    X, y = noisy(6, n=40)
    options = {"lam": 1e-2, "inner": inner, "tol": 0, "drop_after": 2}
    problem = BinaryProblem(sparse.csr_array(X), y)
    whole = BMRM(max_passes=12, **options).solve(problem)
    state = BMRM(max_passes=8, **options).solve(problem).state
    assert whole.passes == 12
    interrupted = 0
    for n in range(1, 120, 9):
        at = _AtLine(n)
        sys.settrace(at)
        try:
            found = BMRM(max_passes=12, **options).solve(problem, resume=state)
        finally:
            sys.settrace(at.before)
        interrupted += found.interrupted
        again = BMRM(max_passes=12, **options).solve(problem, resume=found.state)
        assert again.w.tobytes() == whole.w.tobytes()
        assert again.dual == whole.dual and again.oracle_calls == whole.oracle_calls
    assert interrupted > 8


def test_a_start_takes_the_first_tangent():
    X, y = noisy(9)
    problem = BinaryProblem(X, y)
    first = BMRM(lam=1e-2, tol=1e-6).solve(problem)
    again = BMRM(lam=1e-2, tol=1e-6).solve(problem, start=first)
    assert again.history[0].primal <= first.primal
    assert again.passes <= first.passes
    with pytest.raises(ValueError, match=r"start: expected \(6,\) weights"):
        BMRM(lam=1e-2).solve(problem, start=np.zeros(5))
    with pytest.raises(ValueError, match="start: expected finite"):
        BMRM(lam=1e-2).solve(problem, start=np.full(6, np.nan))


def test_wrong_parameters_are_named():
    with pytest.raises(ValueError, match="lam: expected a positive number"):
        BMRM(lam=0)
    with pytest.raises(ValueError, match="inner: expected one of"):
        BMRM(lam=1, inner="newton")
    with pytest.raises(ValueError, match="drop_after: expected at least 1"):
        BMRM(lam=1, drop_after=0)
