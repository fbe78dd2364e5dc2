"""The best outputs of groups of eight rows: ``chain_max_cpu.viterbi`` by groups."""

import numpy as np
from numba import njit

from smoothsp._kernels import chain_max_cpu


@njit(cache=True, nogil=True, error_model="numpy")
def viterbi(
    first,
    last,
    emissions,
    transitions,
    start,
    end,
    steps,
    lengths,
    shared,
    order,
    zeros,
    labels,
):
    """Fill labels[B, T] for the rows ``order[first * L : last * L]``, L zeros."""
    L, B = len(zeros), len(lengths)
    value = np.empty(B, np.float64)
    chain_max_cpu.viterbi(
        first * L, min(last * L, B), emissions, transitions, start, end, steps, lengths,
        shared, order, labels, 0.0, labels, value,
    )  # fmt: skip
