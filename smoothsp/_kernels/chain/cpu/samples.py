"""Samples of chains, walking back over what the scaled recursion leaves behind.

The label of a position, given the one after it, is i with a probability proportional to
``a(i) E(i, j)``; the last label with one proportional to ``a(i) exp(end(i))``.
"""

import numpy as np

from smoothsp._kernels.chain.cpu.forward_backward import (
    FOUND,
    RANGE_64,
    REACH,
    backward,
    cut_scratch,
    forward,
    sizes_of_scratch,
    take_exponentials,
)
from smoothsp._kernels.chain.cpu.forward_backward_float64 import drawn
from smoothsp._kernels.chain.cpu.records import Addresses, chain_at, longest_first
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import carray
from smoothsp._kernels.vectors.flush_to_zero import restore_fp_mode, set_flush_to_zero
from smoothsp._kernels.vectors.simd import get
from smoothsp._kernels.vectors.state_products import ROWS_PER_PASS


@kernel
def sample(where, in_lanes, over_states, K, uniforms, labels, pending):
    """Fill labels[B, K, T] like ``forward_backward_float64.sample``, in float64.

    But for the rows out of range: those are marked in pending[B]. Returns how many.
    """
    where = Addresses(*where)
    B, T, S, zeros = where.B, where.T, where.S, where.zeros
    chain, V = chain_at(where, True), len(zeros)
    given, out = carray(uniforms, (B, K, T), zeros), carray(labels, (B, K, T), np.int64)
    left, far = carray(pending, (B,), np.bool_), 0
    order = longest_first(chain.lengths, T)
    way = in_lanes, over_states
    size, unit, some = V, 1, 0
    if over_states is not None:
        size, unit, some = ROWS_PER_PASS, FOUND * V, B
    nodes = arrays.empty((some, T, S), zeros.dtype)
    sizes = sizes_of_scratch(B, T, S, V, over_states)
    room = arrays.empty(sizes[7], zeros.dtype)
    row = arrays.empty(T * S, zeros.dtype)
    reached, states = arrays.empty(S), arrays.empty(size * K, np.int64)
    control = set_flush_to_zero()
    kept = cut_scratch(room, T, zeros, sizes)
    take_exponentials(chain, kept, sizes[2], *way)
    for first in range(0, B, size):
        rows = order[first : first + size]
        # spans do not keep the array: used here, it lasts until the last block
        kept = cut_scratch(room, T, zeros, sizes)
        forward(rows, chain, kept, row, *way)
        backward(rows, chain, kept, nodes, *way)
        for x in range(len(rows)):
            reach = get(kept.found, x * unit + REACH * V)
            safe = chain.lengths[rows[x]] == 0 or 16 * S * reach <= RANGE_64
            left[rows[x]] = not safe
            far += not safe
            out[rows[x]] = -1
        _walk_back(rows, chain, kept, left, given, reached, states, out, over_states)
    restore_fp_mode(control)
    return far


@subroutine
def _walk_back(rows, chain, kept, left, uniforms, reached, states, labels, over_states):
    """Fill the labels of rows that are not left out, all rows a position at a time."""
    T, P, V, S, K = kept.T, kept.P, len(kept.zeros), len(reached), labels.shape[1]
    # from state to state, from row to row, and from state to state of a matrix
    step, stride, height = V, 1, S
    if over_states is not None:
        step, stride, height = 1, T * P, P
    for n in range(chain.lengths[rows[0]] - 1, -1, -1):
        for x in range(len(rows)):
            b = rows[x]
            own, t = chain.lengths[b], chain.steps[b, n]
            if n >= own or left[b]:
                continue
            o = n * P + x * stride
            for k in range(K):
                column, e, skip = kept.tail, 0, step
                if n < own - 1:
                    column, e, skip = kept.back, states[x * K + k] * height, 1
                total = 0.0
                for i in range(S):
                    total += get(kept.alphas, o + i * step) * get(column, e + i * skip)
                    reached[i] = total
                j = drawn(reached, uniforms[b, k, t] * total)
                labels[b, k, t] = states[x * K + k] = j
