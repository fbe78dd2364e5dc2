"""Block-coordinate Frank-Wolfe that asks for several examples at a time."""

import numpy as np
import pytest

from smoothsp.linear.problems import (
    CallbackProblem,
    ChainProblem,
    Corner,
    Parts,
    Shared,
    StructureProblem,
)
from smoothsp.linear.solvers import BCFW, BMRM
from smoothsp.oracles import Chain
from tests.sweeps import thinned


def chains(shared, seed=0):
    rng = np.random.default_rng(seed)
    sizes = [3, 1, 4, 2, 3, 5]

    def build(potentials, batch):
        moves = potentials["moves"] if shared else potentials["scores"].new_zeros(2, 2)
        return Chain(potentials["scores"], moves, lengths=batch.sizes["scores"])

    features = {"scores": Parts(rng.normal(size=(sum(sizes), 3)), sizes, states=2)}
    if shared:
        features["moves"] = Shared((2, 2))
    y = [rng.integers(0, 2, size) for size in sizes]
    return StructureProblem(build, features, y)


def behind_an_oracle(seen):
    problem = chains(True)

    def worst(i, w):
        found = problem.worst(i, w)
        return found.psi, found.loss, found.key

    def many(rows, w):
        seen.append(rows)
        return [worst(i, w) for i in rows]

    return CallbackProblem(
        len(problem), problem.num_weights, worst, batch_oracle=many, sparse=True
    )


@pytest.mark.parametrize("shared", [False, True])
def test_outputs_of_many_examples_are_those_of_each(shared):
    problem, rng = chains(shared), np.random.default_rng(1)
    rows = [4, 0, 5, 2]
    for w in rng.normal(size=(3, problem.num_weights)):
        for i, found in zip(rows, problem.worst_many(rows, w), strict=True):
            alone = problem.worst(i, w)
            assert found.key == alone.key
            assert found.loss == pytest.approx(alone.loss, abs=1e-12)
            difference = found.psi - alone.psi
            assert np.abs(difference.toarray()).max() < 1e-12


WAYS = [{}, {"cache": True}, {"steps": "pairwise", "cache": True}]


# each way and each order of the examples is met
@pytest.mark.parametrize(
    ("settings", "sampling"),
    thinned(list(zip(WAYS, ["gap", "uniform", "permutation"], strict=True)), 2, 1),
)
def test_batches_reach_the_optimum_and_the_dual_never_falls(sampling, settings):
    problem, lam = chains(True), 0.2
    best = BMRM(lam=lam, tol=1e-9).solve(problem)
    seen = []
    solver = BCFW(
        lam=lam,
        batch_size=4,
        sampling=sampling,
        tol=1e-2,
        refresh_every=1,
        callback=seen.append,
        **settings,
    )
    found = solver.solve(problem)
    assert found.converged
    for at in seen:
        assert at.dual <= best.primal + 1e-9 and at.primal >= best.dual - 1e-9
    assert (np.diff([at.dual for at in seen]) >= -1e-12).all()


def test_a_batch_is_one_call_and_has_no_example_twice():
    seen = []
    problem = behind_an_oracle(seen)
    settings = {"lam": 0.05, "sampling": "uniform", "seed": 3, "max_passes": 6}
    found = BCFW(batch_size=4, refresh_every=100, **settings).solve(problem)
    assert seen and all(2 <= len(rows) <= 4 for rows in seen)
    assert all(len(set(rows)) == len(rows) for rows in seen)
    # the certificate at the end has one call an example
    calls = sum(len(rows) for rows in seen)
    assert calls <= found.oracle_calls - len(problem) <= 6 * len(problem)
    one = BCFW(batch_size=1, **settings).solve(problem)
    assert (one.w == BCFW(**settings).solve(chains(True)).w).all()


def test_wrong_batches_are_named():
    with pytest.raises(ValueError, match="batch_size: expected at least 1"):
        BCFW(lam=1.0, batch_size=0)
    compiled = ChainProblem(np.eye(3), [0, 1, 1], lengths=[2, 1])
    with pytest.raises(ValueError, match="batch_size: expected 1 for a problem of"):
        BCFW(lam=1.0, batch_size=2).solve(compiled)

    def worst(i, w):
        return Corner(np.ones(2), 1.0, None)

    with pytest.raises(TypeError, match="batch_oracle: expected a callable"):
        CallbackProblem(3, 2, worst, batch_oracle=3)
    short = CallbackProblem(3, 2, worst, batch_oracle=lambda rows, w: [])
    with pytest.raises(ValueError, match="an output for each of 2 examples, got 0"):
        BCFW(lam=1.0, batch_size=2).solve(short)
