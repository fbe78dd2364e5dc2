"""Samples of chains: forward pass of the scaled recursion, then backward sampling.

The label of a position, given the one after it, is i with a probability proportional to
``a(i) E(i, j)``; the last label with one proportional to ``a(i) exp(end(i))``.
"""

import numpy as np

from smoothsp._kernels.chain.cpu.forward_backward import (
    NUM_STATS,
    RANGE_64,
    UNDERFLOW_BOUND,
    backward_pass,
    fill_shared_scores,
    forward_pass,
    scratch_sizes,
    split_scratch,
)
from smoothsp._kernels.chain.cpu.forward_backward_float64 import invert_cdf
from smoothsp._kernels.chain.cpu.records import (
    Addresses,
    chain_from_addresses,
    order_by_length,
)
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import carray
from smoothsp._kernels.vectors.flush_to_zero import restore_fp_mode, set_flush_to_zero
from smoothsp._kernels.vectors.simd import get_number
from smoothsp._kernels.vectors.state_products import ROWS_PER_PASS


@kernel
def sample(addresses, in_lanes, over_states, K, uniforms, labels, pending):
    """Fill labels[B, K, T] like ``forward_backward_float64.sample``, in float64.

    But for the rows out of range: those are marked in pending[B]. Returns how many.
    """
    addresses = Addresses(*addresses)
    B, T, S, zeros = addresses.B, addresses.T, addresses.S, addresses.zeros
    chain, V = chain_from_addresses(addresses, True), len(zeros)
    uniform_array, out = (
        carray(uniforms, (B, K, T), zeros),
        carray(labels, (B, K, T), np.int64),
    )
    is_pending, num_out_of_range = carray(pending, (B,), np.bool_), 0
    order = order_by_length(chain.lengths, T)
    layout = in_lanes, over_states
    rows_per_block, stats_stride, num_node_rows = V, 1, 0
    if over_states is not None:
        rows_per_block, stats_stride, num_node_rows = ROWS_PER_PASS, NUM_STATS * V, B
    nodes = arrays.empty((num_node_rows, T, S), zeros.dtype)
    sizes = scratch_sizes(B, T, S, V, over_states)
    memory = arrays.empty(sizes[7], zeros.dtype)
    row = arrays.empty(T * S, zeros.dtype)
    cumulative, states = arrays.empty(S), arrays.empty(rows_per_block * K, np.int64)
    saved_mode = set_flush_to_zero()
    scratch = split_scratch(memory, T, zeros, sizes)
    fill_shared_scores(chain, scratch, sizes[2], *layout)
    for first in range(0, B, rows_per_block):
        rows = order[first : first + rows_per_block]
        # spans do not keep the array: used here, it lasts until the last block
        scratch = split_scratch(memory, T, zeros, sizes)
        forward_pass(rows, chain, scratch, row, *layout)
        backward_pass(rows, chain, scratch, nodes, *layout)
        for x in range(len(rows)):
            underflow_bound = get_number(
                scratch.stats, x * stats_stride + UNDERFLOW_BOUND * V
            )
            is_safe = (
                chain.lengths[rows[x]] == 0 or 16 * S * underflow_bound <= RANGE_64
            )
            is_pending[rows[x]] = not is_safe
            num_out_of_range += not is_safe
            out[rows[x]] = -1
        _sample_backward(
            rows,
            chain,
            scratch,
            is_pending,
            uniform_array,
            cumulative,
            states,
            out,
            over_states,
        )
    restore_fp_mode(saved_mode)
    return num_out_of_range


@subroutine
def _sample_backward(
    rows, chain, scratch, is_pending, uniforms, cumulative, states, labels, over_states
):
    """Sample the labels of rows that are not pending, from the last position back.

    All rows of a block take a step together. The label is the first i whose cumulative
    sum exceeds the uniform number times the total.
    """
    T, P, V, S, K = (
        scratch.T,
        scratch.P,
        len(scratch.zeros),
        len(cumulative),
        labels.shape[1],
    )
    # from state to state, from row to row, and from state to state of a matrix
    state_stride, row_stride, column_stride = V, 1, S
    if over_states is not None:
        state_stride, row_stride, column_stride = 1, T * P, P
    for n in range(chain.lengths[rows[0]] - 1, -1, -1):
        for x in range(len(rows)):
            b = rows[x]
            length, t = chain.lengths[b], chain.steps[b, n]
            if n >= length or is_pending[b]:
                continue
            o = n * P + x * row_stride
            for k in range(K):
                column, e, column_step = scratch.exp_end, 0, state_stride
                if n < length - 1:
                    column, e, column_step = (
                        scratch.exp_transitions_t,
                        states[x * K + k] * column_stride,
                        1,
                    )
                total = 0.0
                for i in range(S):
                    total += get_number(
                        scratch.alphas, o + i * state_stride
                    ) * get_number(column, e + i * column_step)
                    cumulative[i] = total
                j = invert_cdf(cumulative, uniforms[b, k, t] * total)
                labels[b, k, t] = states[x * K + k] = j
