"""Solvers of ``smoothsp.linear`` on chains: seconds of a pass for one sentence.

A pass is n calls of the oracle. Its time is that from one certificate to the next, so
a small part of a certificate is in it.
"""

import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from scipy import sparse

from smoothsp.linear import Certificate
from smoothsp.linear.problems import ChainProblem
from smoothsp.linear.solvers import BCFW, SVRG
from training.races import Answer, Racer

RAW = "oracle and products"
RATE = 0.02  # of SVRG
REPEATS = 5


def bcfw(problem: ChainProblem, lam: float, passes: int, **options: Any) -> Racer:
    """``passes`` of them between two certificates; the first ones do not count."""
    solver = BCFW(
        lam=lam, tol=0, refresh_every=passes, max_passes=3 * passes, **options
    )
    kind = "BCPFW" if options["steps"] == "pairwise" else "BCFW"
    return Racer(
        f"{kind}, {options['sampling']}",
        lambda: solver.solve(problem),
        lambda found: Answer(found.primal, a_pass(found.history) / len(problem)),
    )


def svrg(problem: ChainProblem, lam: float, passes: int, loss: str) -> Racer:
    """An epoch is two passes: the gradient, and its steps."""
    epochs = max(passes // 2, 1)
    solver = SVRG(
        lam=lam, loss=loss, rate=RATE, evaluate_every=epochs, max_passes=3 * epochs
    )
    return Racer(
        f"SVRG, {loss}",
        lambda: solver.solve(problem),
        lambda found: Answer(found.primal, a_pass(found.history) / 2 / len(problem)),
    )


def a_pass(history: list[Certificate]) -> float:
    """Seconds, the least between two certificates."""
    return min(
        (later.seconds - record.seconds) / (later.passes - record.passes)
        for record, later in itertools.pairwise(history)
    )


def raw(problem: ChainProblem, w: np.ndarray) -> Racer:
    """What no pass can do without, at fixed weights and sentence after sentence.

    Scores and the worst labelling by ``hinges``, then the features of positions whose
    label is wrong in it, added to the weights of both labels.
    """
    found = worst_labels(problem, w)
    moved = w.copy()
    offsets, size = problem.offsets, problem.num_labels
    rows = problem.indptr, problem.indices, problem.values
    labels, border = problem.labels, problem.num_features * size

    def call() -> float:
        began = time.perf_counter()
        problem.hinges(w)
        add_wrong(*rows, offsets, labels, found, 1e-9, size, border, moved)
        return time.perf_counter() - began

    return Racer(RAW, least(call), lambda x: Answer(seconds=x / len(problem)))


def least(call: Callable[[], float]) -> Callable[[], float]:
    """Of a few calls: they are short."""
    return lambda: min(call() for _ in range(REPEATS))


def worst_labels(problem: ChainProblem, w: np.ndarray) -> np.ndarray:
    """``(positions,)``: of largest cost plus score.

    Costs are the weights of as many features more: which label is the gold one.
    """
    S = problem.num_labels
    scales = np.repeat(problem.cost_scale, np.diff(problem.offsets))
    every = np.arange(len(scales) + 1)
    shape = len(scales), problem.num_features
    matrices = [
        sparse.csr_matrix((problem.values, problem.indices, problem.indptr), shape),
        sparse.csr_matrix((scales, problem.labels, every), (len(scales), S)),
    ]
    augmented = ChainProblem(
        sparse.hstack(matrices, format="csr"),
        problem.labels,
        problem.offsets,
        num_labels=S,
        boundaries=problem.boundaries,
    )
    W, *others = problem.split(w)
    if not problem.boundaries:
        others = others[:1]
    parts = [x.ravel() for x in (W, problem.cost, *others)]
    return augmented.decode(np.concatenate(parts))


@njit(cache=True, nogil=True, error_model="numpy")
def add_wrong(indptr, indices, values, offsets, labels, found, a, S, border, w):
    """``w += a (phi(gold) - phi(found))``, all sentences, without their ends."""
    for i in range(len(offsets) - 1):
        for t in range(offsets[i], offsets[i + 1]):
            gold, y = labels[t], found[t]
            if gold != y:
                for e in range(indptr[t], indptr[t + 1]):
                    f = indices[e] * S
                    w[f + gold] += a * values[e]
                    w[f + y] -= a * values[e]
            if t > offsets[i] and (gold != y or labels[t - 1] != found[t - 1]):
                w[border + labels[t - 1] * S + gold] += a
                w[border + found[t - 1] * S + y] -= a
