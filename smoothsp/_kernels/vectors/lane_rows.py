"""Transpose rows of arrays into lanes of vectors, and back.

Rows are read and written in whole vectors; L x L blocks are then transposed in place.
An array of lanes is ``[count, L]``, followed by padding of one such block.
"""

from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors.simd import aligned_span, load, span, splat, store
from smoothsp._kernels.vectors.simd_masked import (
    load_masked,
    store_masked,
    transpose_block,
)


@subroutine
def gather_lanes(emissions, steps, lengths, rows, N, row_scratch, zeros, block):
    """Fill ``block[N, S, L]`` with the real positions of rows, 0 in idle lanes.

    A row without masked gaps is read in place; otherwise its real positions are first
    copied to ``row_scratch``.
    """
    T, S = emissions.shape[1], emissions.shape[2]
    L = len(zeros)
    zero = splat(zeros[0])
    blocks = aligned_span(block)
    for lane in range(L):
        length = lengths[rows[lane]] if lane < len(rows) else 0
        source = span(emissions)
        offset = 0
        if length > 0:
            b = rows[lane]
            offset = (b * T + steps[b, 0]) * S
            if steps[b, length - 1] - steps[b, 0] != length - 1:
                for n in range(length):
                    for s in range(S):
                        row_scratch[n * S + s] = emissions[b, steps[b, n], s]
                source = span(row_scratch)
                offset = 0
        # vector l of block k holds cells k to k + L of row l, until it is transposed
        for k in range(0, N * S, L):
            values = load_masked(source, offset + k, length * S - k, zero)
            store(blocks, (k + lane) * L, values)
    transpose_blocks(N * S, zeros, block)


@subroutine
def transpose_blocks(count, zeros, block):
    """Transpose the L x L blocks of the first ``count`` rows in place."""
    L = len(zeros)
    blocks = aligned_span(block)
    for k in range(0, count, L):
        transpose_block(blocks, k * L)


@subroutine
def scatter_lanes(steps, lengths, rows, skip, row_scratch, zeros, block, nodes):
    """Fill rows of nodes[B, T, S] from transposed blocks, 0 at masked positions.

    Rows with ``skip[b]`` stay unchanged.
    """
    T, S = nodes.shape[1], nodes.shape[2]
    L = len(zeros)
    blocks = aligned_span(block)
    for lane in range(len(rows)):
        b = rows[lane]
        length = lengths[b]
        if skip[b]:
            continue
        if length < T:
            nodes[b] = 0
        if length == 0:
            continue
        if steps[b, length - 1] - steps[b, 0] == length - 1:
            offset = (b * T + steps[b, 0]) * S
            _store_lane(blocks, lane, length * S, L, span(nodes), offset)
            continue
        _store_lane(blocks, lane, length * S, L, span(row_scratch), 0)
        for n in range(length):
            for s in range(S):
                nodes[b, steps[b, n], s] = row_scratch[n * S + s]


@subroutine
def scatter_flat_lanes(count, rows, skip, zeros, block, array):
    """Fill rows of the flat ``array[B, count]`` from transposed blocks.

    Rows with ``skip[b]`` stay unchanged.
    """
    blocks = aligned_span(block)
    out = span(array)
    for lane in range(len(rows)):
        if not skip[rows[lane]]:
            _store_lane(blocks, lane, count, len(zeros), out, rows[lane] * count)


@subroutine(forceinline=True)
def _store_lane(blocks, lane, count, L, out, offset):
    """Copy the ``count`` numbers of a lane from transposed blocks to out[offset:]."""
    for k in range(0, count, L):
        store_masked(out, offset + k, count - k, load(blocks, (k + lane) * L))
