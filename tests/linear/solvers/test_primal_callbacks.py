"""Solvers of the primal on Python oracles: twins of the compiled loops for chains."""

from types import SimpleNamespace

import numpy as np
import pytest

from smoothsp.linear.problems import CallbackProblem
from smoothsp.linear.solvers import LBFGS, SGD, SVRG, CasimirSVRG
from tests.truth.chain_losses import Truth
from tests.truth.linear_chain import corners, random_chain

UNEVEN = np.array([[0, 1, 2], [0.5, 0, 1], [3, 1, 0]])
CHAIN = random_chain(1, cost=UNEVEN, cost_scale=np.linspace(0.3, 2, 6))
# not 0, where labellings tie
START = SimpleNamespace(w=np.random.default_rng(0).normal(size=CHAIN.num_weights))
LAM = 0.2


def behind_oracles(problem, topk=True):
    known = [corners(problem, i) for i in range(len(problem))]

    def few(i, w, k):
        psi, loss, outputs = known[i]
        best = np.argsort(-(loss - psi @ w), kind="stable")[:k]
        return [(psi[y], loss[y], outputs[y]) for y in best]

    return CallbackProblem(
        len(problem),
        problem.num_weights,
        lambda i, w: few(i, w, 1)[0],
        topk_oracle=few if topk else None,
    )


CALLBACKS = behind_oracles(CHAIN)
SOLVERS = {
    "SGD": lambda **o: SGD(lam=LAM, **o),
    "SGD, last iterate": lambda **o: SGD(lam=LAM, averaging="none", **o),
    "SGD, pegasos": lambda **o: SGD(
        lam=LAM, decay="pegasos", sampling="uniform", averaging="uniform", **o
    ),
    "SGD, smoothed": lambda **o: SGD(
        lam=LAM, loss="hinge-l2", k=4, average_after=1, **o
    ),
    "SVRG": lambda **o: SVRG(lam=LAM, k=3, mu=0.7, **o),
    "SVRG, not smoothed": lambda **o: SVRG(lam=LAM, loss="hinge", **o),
    "Casimir, const": lambda **o: CasimirSVRG(lam=LAM, k=4, smoothness=9.0, **o),
    "Casimir, adapt": lambda **o: CasimirSVRG(
        lam=LAM, schedule="adapt", warm_start="extrapolation", inner_passes=2, **o
    ),
}


@pytest.mark.parametrize("name", SOLVERS)
def test_both_engines_have_the_same_iterates(name):
    make = SOLVERS[name]
    compiled, plain = (
        make(max_passes=5, seed=3, evaluate_every=2).solve(problem, start=START)
        for problem in (CHAIN, CALLBACKS)
    )
    np.testing.assert_allclose(plain.w, compiled.w, rtol=0, atol=1e-9)
    assert plain.oracle_calls == compiled.oracle_calls
    for one, other in zip(plain.history, compiled.history, strict=True):
        assert (one.passes, one.oracle_calls) == (other.passes, other.oracle_calls)
        assert one.primal == pytest.approx(other.primal, abs=1e-9)


def test_lbfgs_has_the_same_optimum():
    # over all labellings the loss is smooth
    k = max(len(cost) for _, cost in Truth(CHAIN, "hinge-l2").corners)
    solver = LBFGS(lam=LAM, loss="hinge-l2", k=k, tol=1e-9)
    compiled, plain = (solver.solve(p, start=START) for p in (CHAIN, CALLBACKS))
    assert plain.converged and compiled.converged
    np.testing.assert_allclose(plain.w, compiled.w, atol=1e-4)
    assert abs(plain.primal - compiled.primal) <= 2e-9


@pytest.mark.parametrize(
    "solver",
    [
        SGD(lam=1.0, loss="hinge-l2"),
        SVRG(lam=1.0),
        CasimirSVRG(lam=1.0),
        LBFGS(lam=1.0, loss="hinge-l2"),
    ],
)
def test_a_missing_oracle_is_named(solver):
    with pytest.raises(
        ValueError, match=r"without topk_oracle, .*implement topk_oracle"
    ):
        solver.solve(behind_oracles(CHAIN, topk=False))


@pytest.mark.parametrize("loss", ["likelihood", "hinge-entropy"])
def test_losses_that_no_callback_computes_raise(loss):
    with pytest.raises(ValueError, match="loss: expected 'hinge' or 'hinge-l2'"):
        SGD(lam=1.0, loss=loss).solve(CALLBACKS)


def test_wrong_oracles():
    psi = np.ones(2)

    def solve(answers):
        problem = CallbackProblem(
            1, 2, lambda i, w: (psi, 1.0, 1), topk_oracle=lambda i, w, k: answers
        )
        SVRG(lam=0.1).solve(problem)

    with pytest.raises(TypeError, match="topk_oracle: expected a callable or None"):
        CallbackProblem(1, 2, lambda i, w: None, topk_oracle=3)
    with pytest.raises(ValueError, match="topk_oracle: expected 1 to 5 outputs"):
        solve([])
    with pytest.raises(ValueError, match=r"topk_oracle: expected psi of \(2,\)"):
        solve([(np.ones(3), 1.0, 1)])
    with pytest.raises(ValueError, match="topk_oracle: expected finite psi"):
        solve([(psi, -1.0, 1)])
    with pytest.raises(TypeError, match="expected a function topk_oracle"):
        behind_oracles(CHAIN, topk=False).worst_few(0, START.w, 2)
    with pytest.raises(ValueError, match=r"start: expected \(30,\) weights"):
        SGD(lam=1.0).solve(CALLBACKS, start=np.zeros(3))
