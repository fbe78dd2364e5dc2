"""The binary dual on dense and on sparse rows, and gaps that leave samples out."""

import copy

import numpy as np
import pytest
from scipy import sparse

from smoothsp.linear import HingeSVC
from smoothsp.linear.descent.binary_dual import BinaryHingeDual
from smoothsp.linear.inputs.sparse_matrices import DenseRows, as_sparse_sample_rows
from tests.truth.svm_objectives import blobs, primal

ROUNDING = {np.float64: 1e-12, np.float32: 2e-5}
FORMS = {"dense": DenseRows, "sparse": lambda X: as_sparse_sample_rows(X, 0.0)}


def drawn(form, dtype=np.float64, d=5, n=80, seed=0):
    """A problem, its samples and its labels, 1 or -1."""
    X, y = blobs(n, d, 2, seed, dtype)
    X[np.random.default_rng(seed).random(X.shape) < 0.2] = 0
    X[0, 0], signs = 1, np.where(y == 1, 1, -1).astype(dtype)
    bounds = np.random.default_rng(seed).uniform(0.1, 1, n).astype(dtype)
    rows = FORMS[form](X)
    problem = BinaryHingeDual(rows, signs, bounds, rows.squared_norms, False, None)
    problem.rebuild_from_duals()
    return problem, X.astype(np.float64), signs, bounds.astype(np.float64)


def halves(problem, stream, times):
    """Sweeps over half of the samples, each time others."""
    n = len(problem.coefficients)
    for _ in range(times):
        order = stream.permutation(n)[: n // 2]
        problem.sweep(order, 0, len(order))
        yield


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("form", FORMS)
def test_what_a_certificate_leaves_out_has_no_gap(form, dtype):
    problem, X, signs, bounds = drawn(form, dtype)
    left_out = 0
    for _ in halves(problem, np.random.default_rng(1), 150):
        parts = problem.certify()
        left_out += len(signs) - problem.num_checked
        w, a = problem.weights.astype(float), problem.coefficients.astype(float)
        m = 1 - signs * (X @ w)
        above, below = np.maximum(m, 0), np.maximum(-m, 0)
        close = {"rtol": ROUNDING[dtype], "atol": ROUNDING[dtype] * len(signs)}
        gaps = (bounds - a) * above + a * below
        np.testing.assert_allclose(parts.gaps, gaps, **close)
        np.testing.assert_allclose(parts.primal, w @ w / 2 + bounds @ above, **close)
        np.testing.assert_allclose(parts.dual, a.sum() - w @ w / 2, **close)
        at_stake = bounds[(a > 0) | (above > 0)].sum()
        np.testing.assert_allclose(parts.loss_at_zero, at_stake, rtol=0.03)
    assert left_out > 20 * len(signs)


@pytest.mark.parametrize("form", FORMS)
def test_a_certificate_is_to_the_bit_one_that_looks_at_all(form):
    problem, *_ = drawn(form)
    for _ in halves(problem, np.random.default_rng(2), 100):
        whole = copy.deepcopy(problem)
        whole._recheck_radius[:] = -1
        mine, theirs = problem.certify(), whole.certify()
        assert whole.num_checked == len(mine.gaps)
        np.testing.assert_array_equal(mine.gaps, theirs.gaps)
        assert (mine.primal, mine.dual) == (theirs.primal, theirs.dual)


@pytest.mark.parametrize("form", FORMS)
def test_weights_computed_anew_are_looked_at_by_all(form):
    problem, X, signs, bounds = drawn(form)
    for _ in halves(problem, np.random.default_rng(4), 5):
        problem.certify()
    problem.rebuild_from_duals()
    parts, w = problem.certify(), problem.weights
    assert problem.num_checked == len(signs)
    losses = bounds * np.maximum(0, 1 - signs * (X @ w))
    np.testing.assert_allclose(parts.primal, w @ w / 2 + losses.sum(), rtol=1e-14)


@pytest.mark.parametrize("d", [1, 7, 8, 19, 33])
def test_dense_and_sparse_rows_take_the_same_steps(d):
    pair = [drawn(form, d=d) for form in FORMS]
    streams = [np.random.default_rng(3) for _ in pair]
    steps = [halves(p, s, 8) for (p, *_), s in zip(pair, streams, strict=True)]
    for _ in zip(*steps, strict=True):
        dense, compressed = (problem for problem, *_ in pair)
        np.testing.assert_allclose(
            dense.coefficients, compressed.coefficients, atol=1e-12
        )
        np.testing.assert_allclose(dense.weights, compressed.weights, atol=1e-12)
    for problem, X, signs, _ in pair:
        expected = X.T @ (signs * problem.coefficients)
        np.testing.assert_allclose(problem.weights, expected, atol=1e-12)
        problem.rebuild_from_duals()
        np.testing.assert_allclose(problem.weights, expected, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_optimum_depends_on_no_form(dtype):
    X, y = blobs(60, 9, 2, 0, dtype)
    found = []
    # columns of zeros make the second sparse
    for given in (X, sparse.csr_array(np.hstack([X, np.zeros_like(X), 0 * X]))):
        model = HingeSVC(tol=1e-5, fit_intercept=True, random_state=0).fit(given, y)
        W = np.append(model.coef_[0][:9], model.intercept_)[None]
        wide = np.hstack([X, np.ones((60, 1))])
        found.append(primal(HingeSVC, W, wide, y, 1.0))
        assert model.history_[-1].primal == pytest.approx(found[-1], rel=1e-6)
    assert found[0] == pytest.approx(found[1], rel=3e-5)
