"""Deliberate faults in compiled loops of chains and in the path, and their laws.

Run as ``python -m tests.mutations.linear FOLDER 1``; see ``tests/mutations/runner.py``.
"""

import itertools
import sys
from types import SimpleNamespace

import numpy as np

from smoothsp._kernels.linear.sampling_tree import fill_tree, sample_leaf, set_leaf
from smoothsp.linear.engines.compiled_objective import (
    LOSS_KERNELS,
    ChainObjective,
    Loss,
)
from smoothsp.linear.problems import MulticlassProblem
from smoothsp.linear.solvers import BCFW, SGD, SVRG, RegularisationPath
from smoothsp.linear.solvers.path import run
from tests.linear.problems.test_hashed_chain import (
    SOLVERS,
    test_iterates_are_those_on_the_enumeration,
)
from tests.linear.solvers import test_sdca
from tests.mutations.runner import report
from tests.truth.chain_losses import Truth, sgd, svrg_epoch
from tests.truth.frank_wolfe import as_callbacks
from tests.truth.linear_chain import corners, phi, random_chain

KERNELS, PATH = "_kernels/linear/", "linear/solvers/path/"

# name: (file, line, what stands there instead); the line occurs at least once
FAULTS = {
    "none": (KERNELS + "sparse_scores", "", ""),
    "half of the features": (
        KERNELS + "sparse_scores",
        "store(E, o + j, a + b)",
        "store(E, o + j, a)",
    ),
    "pair of the wrong row": (
        KERNELS + "sparse_scores",
        "score += weights[transition_offset + y[o + t - 1] * P + y[o + t]]",
        "score += weights[transition_offset + y[o + t] * P + y[o + t - 1]]",
    ),
    "no end": (
        KERNELS + "viterbi",
        "store(U, last + j, load(U, last + j) + load(weights, end_offset + j))",
        "store(U, last + j, load(U, last + j))",
    ),
    "traced back in the wrong column": (
        KERNELS + "viterbi",
        "j = _backtrack_label(U, o - P, weights, transition_offset + "
        "j, S, P, M[o + j])",
        "j = _backtrack_label(U, o - P, weights, transition_offset, S, P, M[o + j])",
    ),
    "cost not scaled": (
        KERNELS + "viterbi",
        "store(U, p + j, fma(cost_scale, load(costs, c + j), load(E, p + j)))",
        "store(U, p + j, load(costs, c + j) + load(E, p + j))",
    ),
    "best of few from all": (
        "_kernels/vectors/smoothed_hinge",
        "while k < count and total - k * z[k] < mu:",
        "while k < count:",
    ),
    "strength forgotten": (
        "_kernels/vectors/smoothed_hinge",
        "return h + mu / 2 * (1 - squared_norm)",
        "return h + (1 - squared_norm) / 2",
    ),
    "pairs of the sums transposed": (
        KERNELS + "forward_backward",
        "exp_transitions_T[j * P + i] = exp_transitions[i * P + j]",
        "exp_transitions_T[i * P + j] = exp_transitions[i * P + j]",
    ),
    "logarithms without the last score": (
        KERNELS + "forward_backward_log_space",
        "after = U[t * P + j] / mu + log_beta[t * P + j]",
        "after = log_beta[t * P + j]",
    ),
    "slope without gold": (
        KERNELS + "sequence_loss",
        "T, sequences.labels[o : o + T], -1.0, P, gradient.D, gradient.edges",
        "T, sequences.labels[o : o + T], -1.0, P, gradient.D, 0 * gradient.edges",
    ),
    "end of the first row": (
        KERNELS + "sequence_loss",
        "+ scale * load(D, o + j)",
        "+ scale * load(D, j)",
    ),
    "average of the step before": (
        KERNELS + "sgd",
        "C += averaging_weights[n] * r",
        "C += averaging_weights[n] * r / shrinkage",
    ),
    "tail not shrunk": (
        KERNELS + "sgd",
        "scale_array(shrinkage, transition_weights)",
        "scale_array(1.0, transition_weights)",
    ),
    "snapshot forgotten": (
        KERNELS + "svrg",
        "gradient.edges[e] -= snapshot_edges[i, e]",
        "gradient.edges[e] -= 0 * snapshot_edges[i, e]",
    ),
    "mean slope of the step before": (
        KERNELS + "svrg",
        "b = shrinkage * b + rate",
        "b = shrinkage * (b + rate)",
    ),
    "squares once": (
        KERNELS + "squared_norm",
        "total = fma(p, fma(double, a, splat_at(gram, g + t) * p), total)",
        "total = fma(p, a + splat_at(gram, g + t) * p, total)",
    ),
    "feature in another place": (
        KERNELS + "squared_norm",
        "used += 1",
        "used += 0",
    ),
    "draws from the left": (
        KERNELS + "sampling_tree",
        "remaining -= tree[q]",
        "remaining -= 0 * tree[q]",
    ),
    "a leaf without its parents": (
        KERNELS + "sampling_tree",
        "while q > 1:",
        "while q > 2:",
    ),
    "gap without the expected cost": (
        KERNELS + "frank_wolfe",
        "gaps[i] = max(sequence_weight(sequences, i) * gain - duals.ell[i], 0.0)",
        "gaps[i] = max(sequence_weight(sequences, i) * gain, 0.0)",
    ),
    "estimates not kept": (
        KERNELS + "frank_wolfe",
        "set_leaf(tree, i, duals.gap_estimates[i])",
        "set_leaf(tree, i, tree[1])",
    ),
    "divergence of inner positions added": (
        KERNELS + "dual_ascent",
        "outer[0] - inner[0],",
        "outer[0] + inner[0],",
    ),
    "steps too long": (
        KERNELS + "dual_ascent",
        "kappa = weight / rule.lam * squared_norm",
        "kappa = 0.1 * weight / rule.lam * squared_norm",
    ),
    "weights of pairs that do not occur": (
        KERNELS + "dual_ascent",
        "store(primal.w, q, load(primal.w, q) * load(primal.mask, q))",
        "store(primal.w, q, load(primal.w, q))",
    ),
    "logarithms of pairs without the first label": (
        KERNELS + "pair_marginals",
        "store(marginals.log_edge, e + i * S + j, log_a + both)",
        "store(marginals.log_edge, e + i * S + j, both)",
    ),
    "half a step": (
        KERNELS + "frank_wolfe_steps",
        "a = gamma * sequence_weight(sequences, i) / lam",
        "a = gamma * sequence_weight(sequences, i) / (2 * lam)",
    ),
    "more weight than there is": (
        KERNELS + "frank_wolfe_steps",
        "working_sets.alpha[b + slot] += gamma",
        "working_sets.alpha[b + slot] += 2 * gamma",
    ),
    "away too far": (
        KERNELS + "frank_wolfe_steps",
        "max_away_step = away_weight / (1.0 - away_weight) if "
        "away_weight < 1.0 else 0.0",
        "max_away_step = away_weight",
    ),
    "a shared weight of the label before": (
        KERNELS + "tied_weights",
        "a * values[values_offset + row + j]",
        "a * values[values_offset + row + max(j - 1, 0)]",
    ),
    "what meets is squared more than once": (
        KERNELS + "tied_weights",
        "sums[weight_index] = 0.0",
        "pass",
    ),
    "lazy weights read as they are": (
        KERNELS + "tied_weights",
        "buffer[row + j] = scale * weights[sequences.tied_index[first + row + j]]",
        "buffer[row + j] = weights[sequences.tied_index[first + row + j]]",
    ),
    "chord of the other end": (
        PATH + "run",
        "return low + weight * (high - low)",
        "return high + weight * (high - low)",
    ),
    "a bound for the better weights only": (
        PATH + "run",
        "return max(objectives) - dual_chord(above, below, lam)",
        "return min(objectives) - dual_chord(above, below, lam)",
    ),
    "steps too far are kept": (
        PATH + "run",
        "if bound > self.path_settings.eps:\n                previous_lambda =",
        "if False:\n                previous_lambda =",
    ),
    "complete too early": (
        PATH + "run",
        "if slope <= slack:",
        "if slope <= 9 * slack:",
    ),
    "gaps of another lambda": (
        PATH + "dual_point",
        "gaps = engine.gap_estimates + (1 - rho) * gap_slopes",
        "gaps = engine.gap_estimates + 0 * gap_slopes",
    ),
    "estimates for certain": (
        PATH + "dual_point",
        "if estimated_gap <= target_gap and self.has_exact_gaps:",
        "if estimated_gap <= target_gap:",
    ),
}


def problems():
    uneven = np.array([[0, 1, 2], [0.5, 0, 1], [3, 1, 0]])
    scales = np.linspace(0.3, 2, 5)
    yield random_chain(1, n=5, cost=uneven, cost_scale=scales)
    yield random_chain(3, n=3, S=9, longest=2)


def check_losses() -> None:
    for problem in problems():
        check_losses_of(problem)


def check_losses_of(problem) -> None:
    close = np.testing.assert_allclose
    for loss, scale in itertools.product(LOSS_KERNELS, (1.0, 1e3)):
        w = scale * np.random.default_rng(0).normal(size=problem.num_weights)
        truth = Truth(problem, loss, 0.7, 3)
        objective = ChainObjective(problem, Loss(loss, 0.7, 3), 0.1)
        G = objective.zero_buffer()
        value, _, _ = objective.gradient(problem.padded_weights(w), 0.7, G)
        expected, slope = truth.mean(w)
        close(value, expected, rtol=1e-9)
        close(problem.plain_weights(G), slope, rtol=1e-7, atol=1e-8)
    close(problem.hinges(w), [truth_hinge(problem, i, w) for i in range(len(problem))])
    best = problem.decode(w)
    for i in range(len(problem)):
        y = best[problem.offsets[i] : problem.offsets[i + 1]]
        every = itertools.product(range(problem.num_labels), repeat=len(y))
        close(phi(problem, i, y) @ w, max(phi(problem, i, z) @ w for z in every))


def truth_hinge(problem, i, w):
    psi, loss, _ = corners(problem, i)
    return (loss - psi @ w).max()


def check_primal_solvers() -> None:
    problem = next(problems())
    begin = np.random.default_rng(1).normal(size=problem.num_weights)
    start, n = SimpleNamespace(w=begin), len(problem)

    def order(passes, uniform):
        for number in range(passes):
            stream = np.random.Generator(np.random.PCG64([0, number]))
            yield stream.integers(n, size=n) if uniform else stream.permutation(n)

    truth = Truth(problem, "hinge-l2")
    found = SGD(lam=0.8, loss="hinge-l2", rate=0.3, decay="constant", max_passes=3)
    _, mean = sgd(truth, 0.8, order(3, False), lambda t: 0.3, lambda t: float(t), begin)
    np.testing.assert_allclose(found.solve(problem, start=start).w, mean, atol=1e-9)
    found = SVRG(lam=0.8, rate=0.3, max_passes=2).solve(problem, start=start)
    w = begin
    for drawn in order(2, True):
        w = svrg_epoch(truth, 0.8, drawn, 0.3, w, 1.0)
    np.testing.assert_allclose(found.w, w, atol=1e-9)


def check_dual_solvers() -> None:
    # few features: lengths by features; many: by products of words
    check_dual_solver(next(problems()))
    check_dual_solver(random_chain(2, n=4, d=2, longest=8, S=2))


def check_dual_solver(problem) -> None:
    for steps in ("fw", "pairwise", "away"):
        solver = BCFW(lam=0.05, steps=steps, tol=0.0, max_passes=9, refresh_every=3)
        one, other = (solver.solve(p) for p in (problem, as_callbacks(problem)))
        np.testing.assert_allclose(one.w, other.w, atol=1e-9)
        for mine, theirs in zip(one.history, other.history, strict=True):
            np.testing.assert_allclose(mine.gap, theirs.gap, atol=1e-10)
            np.testing.assert_allclose(mine.primal - mine.dual, mine.gap, atol=1e-10)
            np.testing.assert_allclose(problem.primal(one.w, 0.05), one.primal)


def check_shared_weights() -> None:
    for name in SOLVERS:
        test_iterates_are_those_on_the_enumeration(name, 7)


def check_draws() -> None:
    numbers, tree = np.array([1.0, 0.0, 3.0, 2.0, 4.0]), np.zeros(16)
    fill_tree(numbers, tree)
    for new in (0.0, 5.0):
        numbers[2] = new
        set_leaf(tree, 2, new)
        sums = np.cumsum(numbers)
        for u in np.linspace(0.01, 0.99, 12):
            expected = int(np.searchsorted(sums, u * sums[-1], side="right"))
            assert sample_leaf(tree, u) == expected


def check_paths() -> None:
    check_path(random_chain(0, n=6, S=3, d=1, longest=2))
    check_path(MulticlassProblem(np.eye(4), [0, 1, 2, 1]))


def check_path(problem) -> None:
    run._INITIAL_LOG_STEP = run._MAX_LOG_STEP = 9.0
    path = RegularisationPath(eps=0.1, smallest=0.02).solve(problem)
    end = max(path.ends_at * (1 + 1e-12), path.points[-1].lam / 4)
    for lam in np.geomspace(path.points[0].lam, end, 12):
        best = BCFW(lam=lam, steps="pairwise", tol=1e-4, max_passes=400).solve(problem)
        above = problem.primal(path.evaluate(lam), lam) - best.dual
        assert above <= 0.1 + best.gap + 1e-9
    if path.complete:
        assert problem.hinges(path.points[-1].w).mean() <= 0.1
    for above, below in itertools.pairwise(path.points):
        assert run.crossing_lambda(above, below)[1] <= 0.1
    for p in path.points:
        np.testing.assert_allclose(p.primal, problem.primal(p.w, p.lam))
        exact = BCFW(lam=p.lam, steps="pairwise", tol=1e-4, max_passes=400)
        assert p.gap <= 0.08 + 1e-12
        assert p.primal - p.gap <= exact.solve(problem).primal + 1e-12


def check_dual_ascent() -> None:
    for name in ("chain", "weights", "pairs that occur", "classes"):
        problem = test_sdca.PROBLEMS[name]
        order = [i % len(problem) for i in range(2 * len(problem))]
        for lam in (0.02, 3.0):
            test_sdca.check_visits(problem, order, lam)
    test_sdca.test_marginals_at_weights_are_those_of_enumeration(3000.0)


LAWS = {
    "losses": check_losses,
    "sgd svrg": check_primal_solvers,
    "norms frank_wolfe frank_wolfe_steps": check_dual_solvers,
    "parts": check_shared_weights,
    "draws": check_draws,
    "dual_ascent pair_marginals": check_dual_ascent,
    "run dual_point": check_paths,
}


if __name__ == "__main__":
    report(FAULTS, LAWS, sys.argv[1:])
