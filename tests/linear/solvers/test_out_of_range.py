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
    grid_search,
)
from tests.sweeps import thinned

RNG = np.random.default_rng(0)
X, Y, LENGTHS = RNG.normal(size=(9, 3)), RNG.integers(3, size=9), [4, 3, 2]
SENTENCES = [X[:4], X[4:7], X[7:]]
TAGS = [Y[:4].tolist(), Y[4:7].tolist(), Y[7:].tolist()]


def chain(scale, **options):
    return ChainProblem(X * scale, Y, lengths=LENGTHS, num_labels=3, **options)


SOLVERS = {
    **{
        f"BCFW, {steps}, {cache}": BCFW(lam=0.1, steps=steps, cache=cache)
        for steps in ("fw", "pairwise", "away", "safeguarded", "best")
        for cache in (False, True)
    },
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


@pytest.mark.parametrize("scale", [1e155, 1e300])
@pytest.mark.parametrize("name", SOLVERS)
def test_features_whose_squares_overflow_are_named(name, scale):
    for problem in (chain(scale), MulticlassProblem(X * scale, Y)):
        with pytest.raises(ValueError, match=r"features: expected .* scale the feat"):
            SOLVERS[name].solve(problem)
    with pytest.raises(ValueError, match="features: expected words whose squared"):
        grid_search(chain(scale), [1.0])


@pytest.mark.parametrize("name", STEPS)
def test_steps_that_overflow_are_no_result(name):
    with pytest.raises((ValueError, FloatingPointError), match=r"rate|shorter steps"):
        STEPS[name].solve(chain(1e155))


@pytest.mark.parametrize(
    ("name", "scale"),
    thinned(itertools.product(SOLVERS | STEPS, [1e-160, 1e-30, 1e60, 1e100, 1e145]), 3),
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


def test_a_scale_of_features_and_lambda_is_one_of_weights():
    """w for features s x and lambda s^2 is w / s; powers of two round nothing."""
    for steps in ("fw", "pairwise"):
        for power in (-400, 400):
            scale = 2.0**power
            lam = 0.1 * scale * scale
            found = BCFW(lam=lam, steps=steps, tol=1e-3).solve(
                MulticlassProblem(X * scale, Y)
            )
            same = BCFW(lam=0.1, steps=steps, tol=1e-3).solve(MulticlassProblem(X, Y))
            assert found.gap == same.gap <= 1e-3
            assert found.primal == same.primal
            np.testing.assert_array_equal(found.w * scale, same.w)


@pytest.mark.parametrize("power", [-300, 0, 300, 600, 900, 1010])
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


def test_scores_that_overflow_on_the_way_only():
    # one label of four words of 8e307 has 3.2e308, the other 2.4e308 and is gold
    problem = ChainProblem(
        np.ones((4, 1)), [1, 1, 1, 1], lengths=[4], num_labels=2, boundaries=False
    )
    w = np.zeros(problem.num_weights)
    w[:2] = 8e307, 6e307
    assert problem.hinges(w)[0] == pytest.approx(8e307, rel=1e-12)
    assert problem.decode(w).tolist() == [0, 0, 0, 0]
    w[:2] = 6e307, 8e307
    assert problem.hinges(w).tolist() == [0.0]


def test_values_that_do_not_fit_name_w():
    problem = chain(1.0)
    w = np.ldexp(np.random.default_rng(1).normal(size=problem.num_weights), 1022)
    with pytest.raises(ValueError, match="w: expected weights, and costs"):
        problem.hinges(w)
    with pytest.raises(ValueError, match="w: expected weights"):
        problem.primal(w, 1.0)
    # lambda/2 |w|^2 fits although |w|^2 does not
    one = MulticlassProblem(np.array([[0.0], [1e-300]]), [0, 1])
    v = np.array([1e160, 0.0])
    assert one.primal(v, 1e-300) == pytest.approx(5e19 + 1)


@pytest.mark.parametrize("scale", [1e155, 1e300])
def test_taggers_name_X(scale):
    large = [x * scale for x in SENTENCES]
    for tagger in (ChainSVM(), ChainSVM(l2=0.1), ChainCRF()):
        with pytest.raises(ValueError, match=r"X: expected .* scale the features"):
            tagger.fit(large, TAGS)
        assert not hasattr(tagger, "coef_")
    for solver in ("sgd", "svrg"):
        with pytest.raises(FloatingPointError, match="rate"):
            ChainSVM(solver=solver).fit(large, TAGS)
    # tagging needs scores alone
    tagger = ChainSVM(solver="sgd").fit(SENTENCES, TAGS)
    for one, two in zip(
        tagger.predict([x * 2.0**1000 for x in SENTENCES]),
        tagger.predict([x * 2.0**40 for x in SENTENCES]),
        strict=True,
    ):
        np.testing.assert_array_equal(one, two)


def test_paths_of_vast_goals_and_costs_end():
    path = RegularisationPath(eps=1e300).solve(MulticlassProblem(X, Y, num_labels=3))
    assert path.complete and len(path.points) == 1
    costs = 1e30 * (1 - np.eye(3))
    path = RegularisationPath(max_passes=3000).solve(
        MulticlassProblem(X, Y, cost=costs)
    )
    assert not path.complete and path.points
    with pytest.raises(TypeError, match="lams: expected a sequence"):
        grid_search(MulticlassProblem(X, Y, num_labels=3), 1.0)
