"""The K best labellings of one sequence, over which a maximum is smoothed.

The best by Viterbi, the others by lazy enumeration over its prefix scores.
"""

from typing import NamedTuple

import numpy as np

from smoothsp._kernels.chain.cpu.k_best import Prefixes, k_best
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.linear.viterbi import best_labels
from smoothsp._kernels.vectors import arrays


class Ranking(NamedTuple):
    """Scratch: scores as ``ranking`` reads them, K labellings and their weights."""

    emissions: np.ndarray
    transitions: np.ndarray
    steps: np.ndarray
    columns: np.ndarray
    labels: np.ndarray
    valid: np.ndarray
    z: np.ndarray
    u: np.ndarray


@subroutine
def ranking(longest, S, P, K):
    """Room for sequences of up to ``longest`` positions."""
    steps = arrays.empty((1, longest), np.int64)
    for t in range(longest):
        steps[0, t] = t
    return Ranking(
        arrays.zeros((1, longest, S)),
        arrays.zeros((1, 1, S, S)),
        steps,
        arrays.zeros((S + 1) * P),
        arrays.zeros((1, K, longest), np.int32),
        arrays.zeros((1, K), np.bool_),
        arrays.zeros(K),
        arrays.zeros(K),
    )


@subroutine
def few_best(T, S, P, weights, moves, U, M, y, r, space):
    """Fill ``r.labels``, best first, with their scores ``r.z``; return how many."""
    # Viterbi turns U into prefix scores, but enumeration needs the scores as well
    for t in range(T):
        for j in range(S):
            r.emissions[0, t, j] = U[t * P + j]
    if T > 1:
        for i in range(S):
            for j in range(S):
                r.columns[j * P + i] = weights[moves + i * P + j]
    best_labels(T, S, weights, moves, P, U, M, y)
    for t in range(T):
        r.labels[0, 0, t] = y[t]
    r.valid[0, 0] = True
    parts = (r.emissions, r.transitions, r.steps, True)
    out = r.labels, r.valid, r.z.reshape(1, len(r.z))
    k_best(0, T, 0, Prefixes(*parts, r.columns, U, P), space, out)
    count = 0
    for k in range(len(r.z)):
        if not r.valid[0, k]:
            break
        z = r.emissions[0, 0, r.labels[0, k, 0]]
        for t in range(1, T):
            i, j = r.labels[0, k, t - 1], r.labels[0, k, t]
            z += r.columns[j * P + i] + r.emissions[0, t, j]
        r.z[k] = z
        count += 1
    return count
