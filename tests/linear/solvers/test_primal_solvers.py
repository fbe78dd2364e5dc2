"""Solvers of the primal against enumeration and the recurrences of the papers."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import minimize

from smoothsp.linear.engines.compiled_objective import ChainObjective, Loss
from smoothsp.linear.problems import MulticlassProblem
from smoothsp.linear.solvers import LBFGS, SGD, SVRG, CasimirSVRG
from smoothsp.linear.solvers.casimir import estimate_example_smoothness
from smoothsp.optim.schedules import subgradient_rate
from tests.sweeps import thinned
from tests.truth.chain_losses import Truth, sgd, svrg_epoch
from tests.truth.linear_chain import random_chain, random_rows

LOSSES = ["hinge", "hinge-l2", "hinge-entropy", "likelihood"]
SMOOTH = LOSSES[1:]
UNEVEN = np.array([[0, 1, 2], [0.5, 0, 1], [3, 1, 0]])


def multiclass(seed=0, n=7):
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=n)
    labels[:3] = np.arange(3)
    return MulticlassProblem(random_rows(rng, n, 4), labels, cost=UNEVEN)


PROBLEMS = {
    "chain": random_chain(0),
    "costs": random_chain(1, cost=UNEVEN, cost_scale=np.linspace(0.3, 2, 6)),
    "no boundaries": random_chain(2, boundaries=False),
    "many labels": random_chain(3, n=3, S=9, longest=2),
    "multiclass": multiclass(),
}


def random_weights(problem, seed=0, scale=1.0):
    return scale * np.random.default_rng(seed).normal(size=problem.num_weights)


@pytest.mark.parametrize(
    ("name", "loss", "scale"),
    thinned(itertools.product(PROBLEMS, LOSSES, [0.0, 1.0, 300.0]), 5),
)
def test_losses_and_slopes_are_those_of_enumeration(name, loss, scale):
    problem = PROBLEMS[name]
    for mu, k in ((0.01, 2), (1.0, 3), (40.0, 7)):
        truth = Truth(problem, loss, mu, k)
        objective = ChainObjective(problem, Loss(loss, mu, k), 0.1)
        w = random_weights(problem, scale=scale)
        flat, G = problem.padded_weights(w), objective.zero_buffer()
        value, _, _ = objective.gradient(flat, mu, G)
        expected, slope = truth.mean(w)
        np.testing.assert_allclose(value, expected, rtol=1e-10, atol=1e-12 * scale)
        np.testing.assert_allclose(
            objective.losses(flat, mu),
            [truth.one(i, w)[0] for i in range(len(problem))],
            rtol=1e-10,
            atol=1e-12 * scale,
        )
        # at weights 0 labellings tie, and any of them gives a slope
        if scale:
            found = problem.plain_weights(G)
            np.testing.assert_allclose(found, slope, rtol=1e-8, atol=1e-9)
        assert not (G.reshape(-1, problem.row_width)[:, problem.num_labels :]).any()


def test_sums_out_of_range_are_done_over_in_logarithms():
    problem = random_chain(4, n=4, longest=6)
    w = random_weights(problem, 3, 1e3)
    for mu in (1e-3, 0.1, 1.0):
        truth = Truth(problem, "hinge-entropy", mu)
        objective = ChainObjective(problem, Loss("hinge-entropy", mu), 0.1)
        G = objective.zero_buffer()
        value, nodes, _ = objective.gradient(
            problem.padded_weights(w), mu, G, per_example=True
        )
        expected, slope = truth.mean(w)
        assert np.isfinite(nodes).all()
        np.testing.assert_allclose(value, expected, rtol=1e-12)
        np.testing.assert_allclose(problem.plain_weights(G), slope, atol=1e-9)


def orders(seed, passes, n, sampling="uniform"):
    for number in range(passes):
        stream = np.random.Generator(np.random.PCG64([seed, number]))
        uniform = sampling == "uniform"
        yield stream.integers(n, size=n) if uniform else stream.permutation(n)


@pytest.mark.parametrize(
    ("loss", "decay", "averaging"),
    thinned(
        itertools.product(
            LOSSES,
            ["step", "constant", "inverse-sqrt"],
            ["weighted", "uniform", "none"],
        ),
        5,
    ),
)
def test_lazy_steps_are_eager_steps(loss, decay, averaging):
    problem, lam, passes = PROBLEMS["costs"], 0.3, 4
    n = len(problem)
    solver = SGD(
        lam=lam, loss=loss, rate=0.2, decay=decay, period=1.5, averaging=averaging,
        average_after=1, max_passes=passes, seed=3,
    )  # fmt: skip
    found = solver.solve(problem)
    last, mean = sgd(
        Truth(problem, loss),
        lam,
        orders(3, passes, n, "permutation"),
        lambda t: 0.2 * subgradient_rate(decay, t, t_0=9),
        lambda t: (t > n) * (t - n if averaging == "weighted" else 1.0),
        np.zeros(problem.num_weights),
    )
    expected = last if averaging == "none" else mean
    np.testing.assert_allclose(found.w, expected, atol=1e-11)
    least = problem_objective(problem, loss, found.w, lam)
    assert found.history[-1].minimised == pytest.approx(least)


def problem_objective(problem, loss, w, lam):
    """Smoothing included."""
    mu = 0.0 if loss == "hinge" else 1.0
    return Truth(problem, loss).objective(w, lam, mu)[0]


@pytest.mark.parametrize("lam", [2.0, 0.01])
def test_pegasos_and_its_weighted_average(lam):
    problem = PROBLEMS["multiclass"]
    solver = SGD(lam=lam, decay="pegasos", sampling="uniform", max_passes=5, seed=1)
    _, mean = sgd(
        Truth(problem, "hinge"),
        lam,
        orders(1, 5, len(problem)),
        lambda t: 1 / (lam * t),
        lambda t: t,
        np.zeros(problem.num_weights),
    )
    np.testing.assert_allclose(solver.solve(problem).w, mean, rtol=1e-9, atol=1e-10)


def test_scales_that_vanish_are_folded_in():
    # each step shrinks the weights to a tenth: the scale is folded in every fourth
    problem, lam = PROBLEMS["chain"], 4.5
    solver = SGD(
        lam=lam, rate=0.2, decay="constant", max_passes=20, averaging="uniform"
    )
    _, mean = sgd(
        Truth(problem, "hinge"),
        lam,
        orders(0, 20, len(problem), "permutation"),
        lambda t: 0.2,
        lambda t: 1.0,
        np.zeros(problem.num_weights),
    )
    np.testing.assert_allclose(solver.solve(problem).w, mean, atol=1e-11)


@pytest.mark.parametrize("loss", SMOOTH)
@pytest.mark.parametrize("name", ["costs", "multiclass"])
def test_svrg_is_the_recurrence(name, loss):
    problem, lam = PROBLEMS[name], 0.2
    # not from 0, where labellings tie
    w = random_weights(problem)
    found = SVRG(lam=lam, loss=loss, rate=0.1, max_passes=3, seed=5).solve(
        problem, start=SimpleNamespace(w=w)
    )
    for order in orders(5, 3, len(problem)):
        w = svrg_epoch(Truth(problem, loss), lam, order, 0.1, w, 1.0)
    np.testing.assert_allclose(found.w, w, atol=1e-11)
    looks = 1 if loss == "likelihood" else 2
    assert found.oracle_calls == (6 + looks) * len(problem)


@pytest.mark.parametrize("warm_start", ["prox-center", "extrapolation", "prev-iterate"])
@pytest.mark.parametrize("schedule", ["const", "adapt"])
def test_casimir_is_algorithm_4(schedule, warm_start):
    problem, lam, passes = PROBLEMS["chain"], 0.05, 4
    n = len(problem)
    truth = Truth(problem, "hinge-entropy")
    solver = CasimirSVRG(
        lam=lam, schedule=schedule, loss="hinge-entropy", smoothness=30.0, rate=0.03,
        warm_start=warm_start, max_passes=passes, mu=2.0, seed=2,
    )  # fmt: skip
    const = schedule == "const"
    kappa = 30 / n - lam if const else lam
    rate = 1 / (30 + lam + kappa) if const else 0.03
    # for constant kappa alpha and beta are too
    q = lam / (lam + kappa)
    beta = (1 - math.sqrt(q)) / (1 + math.sqrt(q))
    w = z = z_before = np.zeros(problem.num_weights)
    for k, order in enumerate(orders(2, passes, n), start=1):
        mu = 2.0 if const else 2.0 * (1 - math.sqrt(q) / 2) ** (k / 2)
        x = {
            "prox-center": z,
            "prev-iterate": w,
            "extrapolation": w + kappa / (kappa + lam) * (z - z_before),
        }[warm_start]
        x = svrg_epoch(truth, lam, order, rate, x, mu, kappa, z)
        w, z, z_before = x, x + beta * (x - w), z
    np.testing.assert_allclose(solver.solve(problem).w, w, atol=1e-11)


@pytest.mark.parametrize("schedule", ["const", "adapt"])
def test_casimir_begins_anew_where_the_smoothed_objective_rises(schedule):
    """Where the k-th epoch would start, against where the one before did."""
    problem, lam, passes, restarts = PROBLEMS["chain"], 0.01, 60, 0
    n, truth = len(problem), Truth(problem, "hinge-entropy")
    solver = CasimirSVRG(
        lam=lam, schedule=schedule, loss="hinge-entropy", smoothness=30.0, rate=0.03,
        max_passes=passes, mu=2.0, seed=2, kappa=0.5, evaluate_every=passes,
    )  # fmt: skip
    root = math.sqrt(lam / (lam + 0.5))
    beta = (1 - root) / (1 + root)
    rate = 1 / (30 + lam + 0.5) if schedule == "const" else 0.03
    w = z = z_before = np.zeros(problem.num_weights)
    before = math.inf
    for k, order in enumerate(orders(2, passes, n), start=1):
        mu = 2.0 if schedule == "const" else 2.0 * (1 - root / 2) ** (k / 2)
        x = w + 0.5 / (0.5 + lam) * (z - z_before)
        if truth.objective(x, lam, mu)[0] > before:
            x, z, restarts = w, w, restarts + 1
        before = truth.objective(x, lam, mu)[0]
        x = svrg_epoch(truth, lam, order, rate, x, mu, 0.5, z)
        w, z, z_before = x, x + beta * (x - w), z
    found = solver.solve(problem)
    np.testing.assert_allclose(found.w, w, atol=1e-9)
    assert restarts >= 2
    # a certificate looks at the smoothed hinge and at the hinge
    assert found.oracle_calls == (2 * passes + restarts + 2) * n


def optimum(truth, lam, mu, size):
    found = minimize(
        truth.objective, np.zeros(size), args=(lam, mu), jac=True, method="BFGS",
        options={"gtol": 1e-9, "maxiter": 2000},
    )  # fmt: skip
    return found.x, found.fun


def hinge_optimum(problem, lam):
    """From the dual over all labellings, by an outside solver of quadratic programs."""
    import cvxpy as cp

    truth = Truth(problem, "hinge")
    w = cp.Variable(problem.num_weights)
    losses = [cp.max(cost - psi @ w) for psi, cost in truth.corners]
    value = cp.Problem(
        cp.Minimize(lam / 2 * cp.sum_squares(w) + sum(losses) / len(losses))
    ).solve(solver="CLARABEL")
    return float(value)


SMOOTHED = {
    "sgd": lambda **given: SGD(rate=0.05, decay="inverse-sqrt", **given),
    "svrg": lambda **given: SVRG(rate=0.02, **given),
    "const": lambda **given: CasimirSVRG(**given),
    "adapt": lambda **given: CasimirSVRG(schedule="adapt", rate=0.01, **given),
}


@pytest.mark.parametrize(
    ("name", "loss"),
    thinned(
        [
            ("sgd", "likelihood"),
            ("svrg", "hinge-l2"),
            ("const", "hinge-entropy"),
            ("adapt", "hinge-l2"),
            ("adapt", "likelihood"),
        ],
        2,
    ),
)
def test_a_history_reports_the_objective_that_is_minimised_and_bounds_it(name, loss):
    problem, lam, mu = PROBLEMS["costs"], 0.3, 0.5
    solver = SMOOTHED[name](lam=lam, loss=loss, mu=mu, max_passes=60, evaluate_every=5)
    found = solver.solve(problem)
    truth = Truth(problem, loss)
    if name == "adapt" and loss != "likelihood":
        # with a smoothing that falls that is the hinge
        lowest = hinge_optimum(problem, lam)
        value = problem.primal(found.w, lam)
    else:
        mu = 1.0 if loss == "likelihood" else mu
        lowest = optimum(truth, lam, mu, problem.num_weights)[1]
        value = truth.objective(found.w, lam, mu)[0]
    if loss != "likelihood":
        assert found.primal == pytest.approx(problem.primal(found.w, lam))
    assert found.history[-1].minimised == pytest.approx(value)
    for at in found.history:
        assert at.dual <= lowest + 1e-7 and at.minimised >= lowest - 1e-7
        assert at.gap == pytest.approx(at.minimised - at.dual)
    # the bound comes close
    assert found.gap < 0.7 * found.history[0].gap


@pytest.mark.parametrize(
    ("name", "loss"),
    thinned([("costs", "likelihood"), ("multiclass", "hinge-entropy")], 2),
)
def test_smooth_solvers_reach_the_optimum(name, loss):
    problem, lam = PROBLEMS[name], 0.1
    truth = Truth(problem, loss)
    w, lowest = optimum(truth, lam, 1.0, problem.num_weights)
    found = LBFGS(lam=lam, loss=loss, tol=1e-10).solve(problem)
    assert found.converged
    assert found.gap <= 1e-10
    assert found.dual - 1e-9 <= lowest <= found.primal + 1e-9
    np.testing.assert_allclose(found.w, w, atol=1e-4)
    slow = SVRG(lam=lam, loss=loss, rate=0.05, max_passes=900).solve(problem)
    np.testing.assert_allclose(slow.w, w, atol=1e-4)


@pytest.mark.parametrize(
    ("scale", "loss"), thinned([(0.2, "hinge-entropy"), (30.0, "hinge-l2")], 2)
)
def test_the_smoothness_that_is_found_bounds_how_slopes_turn(scale, loss):
    rng = np.random.default_rng(0)
    X, y = scale * rng.normal(size=(30, 4)), rng.integers(3, size=30)
    problem, mu, lam = MulticlassProblem(X, y), 0.5, 1e-3 * scale**2
    objective = ChainObjective(problem, Loss(loss, mu), lam)
    bound, calls = estimate_example_smoothness(objective, 0)
    assert calls > 60
    # a Hessian is at most |x|^2 / mu times that of the projection, or of the softmax
    highest = 2 * (X**2).sum(1).max() / mu
    assert bound <= highest
    seen = []
    solver = CasimirSVRG(
        lam=lam, loss=loss, mu=mu, tol=0, max_passes=25, evaluate_every=5,
        callback=lambda record: seen.append(record),
    )  # fmt: skip
    found = solver.solve(problem)
    at = [np.zeros(problem.num_weights), found.w, 2 * found.w]
    slopes = []
    for w in at:
        G = objective.zero_buffer()
        objective.gradient(objective.as_start_weights(w), mu, G)
        slopes.append(objective.unpad(G))
    for i, j in ((0, 1), (1, 2), (0, 2)):
        turn = np.linalg.norm(slopes[i] - slopes[j])
        assert turn <= bound * np.linalg.norm(at[i] - at[j])
    # oracle calls of the searches are counted, and the objective falls
    same = CasimirSVRG(
        lam=lam, loss=loss, mu=mu, smoothness=bound, max_passes=25, evaluate_every=5
    ).solve(problem)
    assert same.w.tobytes() == found.w.tobytes()
    assert found.oracle_calls == same.oracle_calls + calls
    assert (
        seen[-1].primal < objective.losses(objective.as_start_weights(at[0]), mu).mean()
    )
