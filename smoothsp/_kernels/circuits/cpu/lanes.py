"""Transposes between rows of potentials and lanes of vectors.

A table of potentials has a row (``ADDRESS``, ``WIDTH``, ``SHARED``, ``TARGET``) for
each array: scores ``[B, width]``, or ``[width]`` that all rows share.

L scores of each of L rows, one vector a row, are transposed in place, so that scores
are read and written as whole vectors. A block may write past the width of its array;
the next array, or the first definitions, are written later and replace these entries.
"""

import numpy as np
from numba.extending import register_jitable

from smoothsp._kernels.circuits.cpu.scaled_floats import exp_to_scaled, splat_like
from smoothsp._kernels.circuits.layout.circuit_arrays import (
    ADDRESS,
    SHARED,
    TARGET,
    WIDTH,
)
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors.arrays import carray
from smoothsp._kernels.vectors.simd import load, span, splat, store
from smoothsp._kernels.vectors.simd_masked import (
    load_masked,
    store_masked,
    transpose_block,
)


@register_jitable
def vector_of_ones(scratch):
    """Return a vector of ones of the scratch's float type."""
    return splat(scratch.dtype.type(1))


@subroutine
def gather_scores(table, B, rows, x, ones, L):
    """Fill item 0 of ``x`` with 0 and its leaves with scores, one row in each lane."""
    out = span(x)
    store(out, 0, ones - ones)
    first = 1
    for t in range(len(table)):
        width = table[t, WIDTH]
        if table[t, SHARED]:
            _broadcast_scores(
                carray(table[t, ADDRESS], (width,), x), first, out, ones, L
            )
        else:
            scores = span(carray(table[t, ADDRESS], (B * width,), x))
            for k in range(0, width, L):
                _transpose_block(scores, rows, width, k, first + k, out, ones, L)
        first += width


@subroutine
def gather_scaled(table, B, rows, m, e, ones, L):
    """Fill item 0 with 1 and leaves with exp(score), as ``m 2^e``.

    Return the largest absolute exponent of each lane.
    """
    out, exponents = span(m), span(e)
    zero = ones - ones
    store(out, 0, ones)
    store(exponents, 0, zero)
    max_abs_exponent = zero
    first = 1
    for t in range(len(table)):
        width = table[t, WIDTH]
        if table[t, SHARED]:
            _broadcast_scores(
                carray(table[t, ADDRESS], (width,), m), first, out, ones, L
            )
            max_abs_exponent = exp_to_scaled(
                out, exponents, first, first + width, max_abs_exponent, ones, L
            )
        else:
            scores = span(carray(table[t, ADDRESS], (B * width,), m))
            for k in range(0, width, L):
                _transpose_block(scores, rows, width, k, first + k, out, ones, L)
                last = first + (k + L if k + L < width else width)
                max_abs_exponent = exp_to_scaled(
                    out, exponents, first + k, last, max_abs_exponent, ones, L
                )
        first += width
    return max_abs_exponent


@subroutine
def _transpose_block(scores, rows, width, first_score, item, out, ones, L):
    """Write L scores of each row to items from ``item`` on; 0 in lanes without row."""
    zero = ones - ones
    for lane in range(L):
        v = zero
        if lane < len(rows):
            offset = rows[lane] * width + first_score
            # only the last load is masked: processors do not prefetch for masked loads
            if first_score + L <= width:
                v = load(scores, offset)
            else:
                v = load_masked(scores, offset, width - first_score, zero)
        store(out, (item + lane) * L, v)
    transpose_block(out, item * L)


@subroutine
def _broadcast_scores(scores, item, out, ones, L):
    """Write each score to all lanes of items from ``item`` on."""
    for q in range(len(scores)):
        store(out, (item + q) * L, splat_like(ones, np.float64(scores[q])))


@subroutine
def scatter_to_targets(x, table, B, rows, L):
    """Copy the leaves of x to the targets of a table, if it has any; overwrites x."""
    source = span(x)
    last = 1
    for t in range(len(table)):
        last += table[t, WIDTH]
    # last array first, since a square overwrites leaves of the next array
    for t in range(len(table) - 1, -1, -1):
        width = table[t, WIDTH]
        last -= width
        if table[t, TARGET] == 0:
            continue
        out = span(carray(table[t, TARGET], (B * width,), x))
        for k in range(0, width, L):
            transpose_block(source, (last + k) * L)
            for lane in range(len(rows)):
                v = load(source, (last + k + lane) * L)
                offset = rows[lane] * width + k
                if k + L <= width:
                    store(out, offset, v)
                else:
                    store_masked(out, offset, width - k, v)


@subroutine
def transpose_lanes(x, circuit, L):
    """Transpose x block by block, so that the entries of one lane are contiguous."""
    out = span(x)
    for item in range(0, circuit.num_items, L):
        transpose_block(out, item * L)


@subroutine(optimise=False)
def transposed_index(item, lane, L):
    """Index of an item's entry after ``transpose_lanes``."""
    # L is a power of two: the mask is the remainder
    column = item & (L - 1)
    return (item - column + lane) * L + column


@subroutine
def zero_items(x, circuit, low, high, ones, L):
    """Write 0 to item 0, to leaves, and to definitions ``low`` to ``high``."""
    out = span(x)
    heads = circuit.heads
    for i in range(0, (1 + circuit.num_row_leaves + circuit.num_shared_leaves) * L, L):
        store(out, i, ones - ones)
    for h in range(low, high):
        store(out, np.intp(heads[h]) * L, ones - ones)


@subroutine(optimise=False)
def run_start_and_step(runs, r, column, L):
    """Offset of a run's first left (column 1) or right (3) factor, and its step."""
    return np.intp(runs[r, column]) * L, np.intp(runs[r, column + 1]) * L


@subroutine
def definition_range(circuit, roots, rows):
    """Return the range of definitions that contains all below the rows' roots."""
    first, last = np.intp(len(circuit.heads)), np.intp(0)
    for row in rows:
        h = np.intp(circuit.definition[roots[row]])
        if h < 0:
            continue
        # a tile is computed as a whole
        while h + 1 < len(circuit.tiles) and circuit.tiles[h + 1] == 0:
            h += 1
        first_definition = np.intp(circuit.first_definition[roots[row]])
        last = h + 1 if h + 1 > last else last
        first = first_definition if first_definition < first else first
    return first if first < last else last, last
