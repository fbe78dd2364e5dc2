"""The K best labellings of one sequence, for the maximum smoothed by ``L2``.

Viterbi gives the best one; lazy enumeration over its prefix scores gives the rest.
"""

from typing import NamedTuple

import numpy as np

from smoothsp._kernels.chain.cpu.k_best import Prefixes, k_best
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.linear.viterbi import viterbi
from smoothsp._kernels.vectors import arrays


class KBestBuffers(NamedTuple):
    """Scratch: scores as ``chain.cpu.k_best`` reads them, K labellings and weights."""

    emissions: np.ndarray
    transitions: np.ndarray
    steps: np.ndarray
    columns: np.ndarray
    labels: np.ndarray
    valid: np.ndarray
    z: np.ndarray
    u: np.ndarray


@subroutine
def make_k_best_buffers(longest, S, P, K):
    """Allocate buffers for sequences of up to ``longest`` positions."""
    steps = arrays.empty((1, longest), np.int64)
    for t in range(longest):
        steps[0, t] = t
    return KBestBuffers(
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
def k_best_labellings(T, S, P, weights, transition_offset, U, M, y, buffers, scratch):
    """Fill ``labels``, best first, and their scores z; return their number."""
    # Viterbi turns U into prefix scores, but enumeration needs the scores as well.
    for t in range(T):
        for j in range(S):
            buffers.emissions[0, t, j] = U[t * P + j]
    if T > 1:
        for i in range(S):
            for j in range(S):
                # transposed: enumeration reads the transitions into a label together
                buffers.columns[j * P + i] = weights[transition_offset + i * P + j]
    viterbi(T, S, weights, transition_offset, P, U, M, y)
    for t in range(T):
        buffers.labels[0, 0, t] = y[t]
    buffers.valid[0, 0] = True
    potentials = (buffers.emissions, buffers.transitions, buffers.steps, True)
    out = buffers.labels, buffers.valid, buffers.z.reshape(1, len(buffers.z))
    k_best(0, T, 0, Prefixes(*potentials, buffers.columns, U, P), scratch, out)
    count = 0
    for k in range(len(buffers.z)):
        # fewer than K labellings exist for short sequences
        if not buffers.valid[0, k]:
            break
        # recomputed in float64 from the scores, in time order
        z = buffers.emissions[0, 0, buffers.labels[0, k, 0]]
        for t in range(1, T):
            i, j = buffers.labels[0, k, t - 1], buffers.labels[0, k, t]
            z += buffers.columns[j * P + i] + buffers.emissions[0, t, j]
        buffers.z[k] = z
        count += 1
    return count
