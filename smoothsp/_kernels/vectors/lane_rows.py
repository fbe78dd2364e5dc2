"""Rows of arrays into lanes and back.

A row is read and written in whole vectors, L of which are transposed at a time. Blocks
of lanes are ``[count, L]`` and followed by room for one such square.
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
    """Fill ``block[N, S, L]`` with the real positions of rows, 0 where a lane is idle.

    A row without holes is read where it stands; of others the real positions are copied
    to ``row`` first, scratch of one row.
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
        for k in range(0, N * S, L):
            values = load_masked(source, offset + k, length * S - k, zero)
            store(blocks, (k + lane) * L, values)
    transpose_blocks(N * S, zeros, block)


@subroutine
def transpose_blocks(count, zeros, block):
    """Transpose each square of a block in place: rows become lanes, lanes rows."""
    L = len(zeros)
    blocks = aligned_span(block)
    for k in range(0, count, L):
        transpose_block(blocks, k * L)


@subroutine
def scatter_lanes(steps, lengths, rows, skip, row_scratch, zeros, block, nodes):
    """Fill rows of nodes from a transposed block, 0 where no position is real.

    Rows with ``skip[b]`` are left untouched.
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
    """Fill ``array[B, count]``, given flat, from a transposed block.

    Rows with ``skip[b]`` are left untouched.
    """
    blocks = aligned_span(block)
    out = span(array)
    for lane in range(len(rows)):
        if not skip[rows[lane]]:
            _store_lane(blocks, lane, count, len(zeros), out, rows[lane] * count)


@subroutine(forceinline=True)
def _store_lane(blocks, lane, count, L, out, offset):
    """Write the ``count`` numbers of row x, now in whole vectors, to ``out[at:]``."""
    for k in range(0, count, L):
        store_masked(out, offset + k, count - k, load(blocks, (k + lane) * L))
