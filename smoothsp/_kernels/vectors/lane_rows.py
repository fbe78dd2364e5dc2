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
def gather(emissions, steps, lengths, rows, N, row, zeros, block):
    """Fill ``block[N, S, L]`` with the real positions of rows, 0 where a lane is idle.

    A row without holes is read where it stands; of others the real positions are copied
    to ``row`` first, scratch of one row.
    """
    T, S = emissions.shape[1], emissions.shape[2]
    L = len(zeros)
    zero = splat(zeros[0])
    out = aligned_span(block)
    for x in range(L):
        own = lengths[rows[x]] if x < len(rows) else 0
        source = span(emissions)
        at = 0
        if own > 0:
            b = rows[x]
            at = (b * T + steps[b, 0]) * S
            if steps[b, own - 1] - steps[b, 0] != own - 1:
                for n in range(own):
                    for s in range(S):
                        row[n * S + s] = emissions[b, steps[b, n], s]
                source = span(row)
                at = 0
        for k in range(0, N * S, L):
            some = load_masked(source, at + k, own * S - k, zero)
            store(out, (k + x) * L, some)
    transpose_blocks(N * S, zeros, block)


@subroutine
def transpose_blocks(count, zeros, block):
    """Transpose each square of a block in place: rows become lanes, lanes rows."""
    L = len(zeros)
    squares = aligned_span(block)
    for k in range(0, count, L):
        transpose_block(squares, k * L)


@subroutine
def scatter(steps, lengths, rows, skip, row, zeros, block, nodes):
    """Fill rows of nodes from a transposed block, 0 where no position is real.

    Rows with ``skip[b]`` are left untouched.
    """
    T, S = nodes.shape[1], nodes.shape[2]
    L = len(zeros)
    squares = aligned_span(block)
    for x in range(len(rows)):
        b = rows[x]
        own = lengths[b]
        if skip[b]:
            continue
        if own < T:
            nodes[b] = 0
        if own == 0:
            continue
        if steps[b, own - 1] - steps[b, 0] == own - 1:
            at = (b * T + steps[b, 0]) * S
            _unload(squares, x, own * S, L, span(nodes), at)
            continue
        _unload(squares, x, own * S, L, span(row), 0)
        for n in range(own):
            for s in range(S):
                nodes[b, steps[b, n], s] = row[n * S + s]


@subroutine
def scatter_whole(count, rows, skip, zeros, block, array):
    """Fill ``array[B, count]``, given flat, from a transposed block.

    Rows with ``skip[b]`` are left untouched.
    """
    squares = aligned_span(block)
    out = span(array)
    for x in range(len(rows)):
        if not skip[rows[x]]:
            _unload(squares, x, count, len(zeros), out, rows[x] * count)


@subroutine(forceinline=True)
def _unload(squares, x, count, L, out, at):
    """Write the ``count`` numbers of row x, now in whole vectors, to ``out[at:]``."""
    for k in range(0, count, L):
        store_masked(out, at + k, count - k, load(squares, (k + x) * L))
