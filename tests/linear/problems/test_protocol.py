"""Any object with num_weights, a length and ``worst`` is a problem to every solver."""

import numpy as np
import pytest

from smoothsp.linear.problems import (
    CallbackProblem,
    Corner,
    LinearProblem,
    MulticlassProblem,
    TopKLinearProblem,
)
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
from tests.truth.frank_wolfe import as_callbacks
from tests.truth.linear_chain import corners, random_chain

CHAIN = random_chain(4, n=4, S=3, d=4, longest=3)


class Own:
    """A problem of a user's own, which inherits from nothing."""

    def __init__(self, chain=CHAIN):
        self.outputs = [corners(chain, i)[:2] for i in range(len(chain))]
        self.num_weights = chain.num_weights

    def __len__(self):
        return len(self.outputs)

    def worst(self, i, w):
        return self.worst_few(i, w, 1)[0]

    def worst_few(self, i, w, k):
        psi, loss = self.outputs[i]
        order = np.argsort(psi @ w - loss, kind="stable")[:k]
        return [Corner(psi[j], loss[j], int(j)) for j in order]


class WorstOnly:
    """The same without the k worst outputs."""

    def __init__(self):
        own = Own()
        self.num_weights, self.worst, self._n = own.num_weights, own.worst, len(own)

    def __len__(self):
        return self._n


SOLVERS = [
    BCFW(lam=0.2, tol=1e-2),
    BCFW(lam=0.2, tol=1e-4, steps="best", cache=True),
    BatchFrankWolfe(lam=0.2, max_passes=200),
    SGD(lam=0.2, loss="hinge", max_passes=5),
    SGD(lam=0.2, loss="hinge-l2", max_passes=5),
    SVRG(lam=0.2, max_passes=5),
    CasimirSVRG(lam=0.2, max_passes=5),
    LBFGS(lam=0.2, loss="hinge-l2", max_passes=20),
]


@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_takes_what_the_protocol_says(solver):
    own = Own()
    assert isinstance(own, LinearProblem) and isinstance(own, TopKLinearProblem)
    given = CallbackProblem(len(own), own.num_weights, own.worst, own.worst_few)
    found, wanted = solver.solve(own), solver.solve(given)
    np.testing.assert_array_equal(found.w, wanted.w)
    assert found.primal == wanted.primal


def test_paths_and_grids_take_it():
    path = RegularisationPath(eps=0.3).solve(Own())
    assert path.complete
    w = path.evaluate(0.2)
    assert CHAIN.primal(w, 0.2) <= BCFW(lam=0.2, tol=1e-3).solve(CHAIN).primal + 0.3
    assert grid_search(Own(), [1.0, 0.5]).complete


def test_every_problem_of_the_package_is_one():
    classes = MulticlassProblem(np.eye(3), [0, 1, 2])
    for problem in (CHAIN, classes, as_callbacks(CHAIN)):
        assert isinstance(problem, LinearProblem)
    rng = np.random.default_rng(0)
    for problem in (CHAIN, classes):
        for w in rng.normal(size=(3, problem.num_weights)):
            for i in range(len(problem)):
                psi, loss, _ = corners(problem, i)
                corner = problem.worst(i, w)
                value = corner.loss - corner.psi @ w
                assert value == pytest.approx((loss - psi @ w).max())
                assert problem.hinges(w)[i] == pytest.approx(value)
    with pytest.raises(IndexError, match="i: expected 0 to 2, got 3"):
        classes.worst(3, np.zeros(9))


def test_what_is_no_problem_raises():
    for solver in (*SOLVERS, RegularisationPath()):
        with pytest.raises(TypeError, match=r"LinearProblem, which has.* got ndarray"):
            solver.solve(np.eye(3))
    one = WorstOnly()
    assert isinstance(one, LinearProblem) and not isinstance(one, TopKLinearProblem)
    assert SGD(lam=0.2, loss="hinge", max_passes=2).solve(one).passes == 2
    with pytest.raises(
        ValueError, match=r"without worst_few, .*implement worst_few\(i, w, k\)"
    ):
        SGD(lam=0.2, loss="hinge-l2").solve(one)
    one.worst = lambda i, w: Corner(np.zeros(3), 0.0, 0)
    with pytest.raises(ValueError, match="worst: expected psi of"):
        SGD(lam=0.2, loss="hinge").solve(one)
