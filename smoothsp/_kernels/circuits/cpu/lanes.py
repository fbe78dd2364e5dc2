"""Scores of rows into lanes, and answers of lanes back to rows.

A table of potentials has a row for each array, of ``ADDRESS``, ``WIDTH``, ``SHARED``
and ``TARGET``: scores ``[B, width]``, or ``[width]`` that all rows share.

Rows become lanes in squares: L scores of each of L rows, one vector a row, are
transposed in place. So scores are read and written as whole vectors, and none is moved
alone. A square may write past the width of its array. The next array, or the first
definitions, are written later and replace that.
"""

import numpy as np
from numba.extending import register_jitable

from smoothsp._kernels.circuits.cpu.scaled_floats import constant, enter
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
def one_of(room):
    """A vector of ones of the room's float type."""
    return splat(room.dtype.type(1))


@subroutine
def gather(table, B, rows, x, one, L):
    """Fill item 0 of ``x`` with 0 and its leaves with scores, one row in each lane."""
    out = span(x)
    store(out, 0, one - one)
    first = 1
    for t in range(len(table)):
        width = table[t, WIDTH]
        if table[t, SHARED]:
            _repeat(carray(table[t, ADDRESS], (width,), x), first, out, one, L)
        else:
            scores = span(carray(table[t, ADDRESS], (B * width,), x))
            for k in range(0, width, L):
                _square(scores, rows, width, k, first + k, out, one, L)
        first += width


@subroutine
def gather_numbers(table, B, rows, m, e, one, L):
    """The same as numbers ``m 2^e``; returns each lane's largest absolute exponent."""
    out, exponents = span(m), span(e)
    zero = one - one
    store(out, 0, one)
    store(exponents, 0, zero)
    reach = zero
    first = 1
    for t in range(len(table)):
        width = table[t, WIDTH]
        if table[t, SHARED]:
            _repeat(carray(table[t, ADDRESS], (width,), m), first, out, one, L)
            reach = enter(out, exponents, first, first + width, reach, one, L)
        else:
            scores = span(carray(table[t, ADDRESS], (B * width,), m))
            for k in range(0, width, L):
                _square(scores, rows, width, k, first + k, out, one, L)
                last = first + (k + L if k + L < width else width)
                reach = enter(out, exponents, first + k, last, reach, one, L)
        first += width
    return reach


@subroutine
def _square(scores, rows, width, k, item, out, one, L):
    """Write scores k to k + L of rows to items from ``item`` on; 0 without a row."""
    zero = one - one
    for lane in range(L):
        v = zero
        if lane < len(rows):
            place = rows[lane] * width + k
            # only the last load is masked: processors do not prefetch for masked loads
            if k + L <= width:
                v = load(scores, place)
            else:
                v = load_masked(scores, place, width - k, zero)
        store(out, (item + lane) * L, v)
    transpose_block(out, item * L)


@subroutine
def _repeat(scores, item, out, one, L):
    """Write each score to all lanes of items from ``item`` on."""
    for q in range(len(scores)):
        store(out, (item + q) * L, constant(one, np.float64(scores[q])))


@subroutine
def scatter(x, table, B, rows, L):
    """Copy the leaves of x to the targets of a table, if any; overwrites x."""
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
                place = rows[lane] * width + k
                if k + L <= width:
                    store(out, place, v)
                else:
                    store_masked(out, place, width - k, v)


@subroutine
def turn(x, circuit, L):
    """Turn x square by square, so that numbers of one lane lie side by side."""
    out = span(x)
    for item in range(0, circuit.num_items, L):
        transpose_block(out, item * L)


@subroutine(optimise=False)
def beside(item, lane, L):
    """Where the number of an item is after ``turn``."""
    column = item & (L - 1)
    return (item - column + lane) * L + column


@subroutine
def clear(x, circuit, low, high, one, L):
    """Write 0 to all lanes of item 0, leaves, and definitions ``low`` to ``high``."""
    out = span(x)
    heads = circuit.heads
    for i in range(0, (1 + circuit.num_row_leaves + circuit.num_shared_leaves) * L, L):
        store(out, i, one - one)
    for h in range(low, high):
        store(out, np.intp(heads[h]) * L, one - one)


@subroutine(optimise=False)
def factor(runs, r, column, L):
    """Where the first left (1) or right (3) factor of a run is, and the step."""
    return np.intp(runs[r, column]) * L, np.intp(runs[r, column + 1]) * L


@subroutine
def bounds(circuit, roots, rows):
    """The range of definitions that holds all that the rows need."""
    first, last = np.intp(len(circuit.heads)), np.intp(0)
    for row in rows:
        h = np.intp(circuit.definition[roots[row]])
        if h < 0:
            continue
        # a tile is computed as a whole
        while h + 1 < len(circuit.tiles) and circuit.tiles[h + 1] == 0:
            h += 1
        since = np.intp(circuit.first_definition[roots[row]])
        last = h + 1 if h + 1 > last else last
        first = since if since < first else first
    return first if first < last else last, last
