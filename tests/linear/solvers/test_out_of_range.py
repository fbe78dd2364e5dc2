"""Numbers near the ends of float64: exact where that is possible, or else refused."""

import itertools

import numpy as np
import pytest

from smoothsp.linear import ChainCRF, ChainSVM
from smoothsp.linear.problems import ChainProblem, MulticlassProblem
from smoothsp.linear.solvers import (
    BCFW,
    LBFGS,
    SGD,
    SVRG,
    BatchFrankWolfe,
    CasimirSVRG,
    RegularisationPath,
)
from tests.sweeps import thinned

RNG = np.random.default_rng(0)
X, Y, LENGTHS = RNG.normal(size=(9, 3)), RNG.integers(3, size=9), [4, 3, 2]
SENTENCES = [X[:4], X[4:7], X[7:]]
TAGS = [Y[:4].tolist(), Y[4:7].tolist(), Y[7:].tolist()]


def chain(scale, **options):
    return ChainProblem(X * scale, Y, lengths=LENGTHS, num_labels=3, **options)


SOLVERS = {
    "BCFW": BCFW(lam=0.1, steps="fw"),
    "BCFW, pairwise": BCFW(lam=0.1, steps="pairwise", cache=True),
    "BCFW, best": BCFW(lam=0.1, steps="best"),
    "averaged": BCFW(lam=0.1, averaging=True),
    "boxed": BCFW(lam=0.1, bounds=(-1.0, 1.0)),
    "batch": BatchFrankWolfe(lam=0.1),
    "L-BFGS": LBFGS(lam=0.1),
    "L-BFGS, hinge": LBFGS(lam=0.1, loss="hinge-l2"),
    "path": RegularisationPath(),
}
STEPS = {
    "SGD": SGD(lam=0.1),
    "SGD, likelihood": SGD(lam=0.1, loss="likelihood"),
    "SVRG": SVRG(lam=0.1),
    "Casimir": CasimirSVRG(lam=0.1),
}


@pytest.mark.parametrize("name", SOLVERS)
def test_features_whose_squares_overflow_are_named(name):
    with pytest.raises(ValueError, match=r"features: expected .* scale the feat"):
        SOLVERS[name].solve(MulticlassProblem(X * 1e155, Y))


@pytest.mark.parametrize("name", STEPS)
def test_steps_that_overflow_are_no_result(name):
    with pytest.raises((ValueError, FloatingPointError), match=r"rate|shorter steps"):
        STEPS[name].solve(chain(1e155))


@pytest.mark.parametrize(
    ("name", "scale"),
    thinned(itertools.product(SOLVERS | STEPS, [1e-160, 1e60, 1e145]), 2),
)
def test_what_comes_out_is_finite_and_certified(name, scale):
    solver = (SOLVERS | STEPS)[name]
    if name == "path":
        solver = RegularisationPath(max_passes=50)
    problem = chain(scale)
    try:
        found = solver.solve(problem)
    except (ValueError, FloatingPointError) as error:
        # no weights that are worth anything, said so
        assert "scale the features" in str(error) or "rate" in str(error)
        return
    for point in found.points if name == "path" else [found]:
        assert np.isfinite(point.w).all() and np.isfinite(point.primal)
    if name.startswith(("BCFW", "boxed", "batch")):
        assert found.primal == pytest.approx(problem.primal(found.w, 0.1))
        assert 0 <= found.gap == pytest.approx(found.primal - found.dual)


@pytest.mark.parametrize("power", [0, 300, 1010])
def test_hinges_and_labels_at_any_weights(power):
    problem = chain(1.0)
    w = np.random.default_rng(1).normal(size=problem.num_weights)
    large = np.ldexp(w, power)
    if power >= 0:
        np.testing.assert_array_equal(problem.decode(large), problem.decode(w))
    if power >= 300:
        # costs are nothing beside scores
        free = chain(1.0, cost=np.zeros((3, 3)))
        np.testing.assert_allclose(
            np.ldexp(problem.hinges(large), -power), free.hinges(w), rtol=1e-12
        )
        # as a whole and from the few rows that are read
        part = problem.subset([1])
        assert part.hinges(large)[0] == problem.hinges(large)[1]


def test_values_that_do_not_fit_name_w():
    problem = chain(1.0)
    w = np.ldexp(np.random.default_rng(1).normal(size=problem.num_weights), 1022)
    with pytest.raises(ValueError, match="w: expected weights, and costs"):
        problem.hinges(w)
    with pytest.raises(ValueError, match="w: expected weights"):
        problem.primal(w, 1.0)


def test_taggers_name_X():
    large = [x * 1e155 for x in SENTENCES]
    for tagger in (ChainSVM(), ChainCRF()):
        with pytest.raises(ValueError, match=r"X: expected .* scale the features"):
            tagger.fit(large, TAGS)
        assert not hasattr(tagger, "coef_")
    with pytest.raises(FloatingPointError, match="rate"):
        ChainSVM(solver="sgd").fit(large, TAGS)
