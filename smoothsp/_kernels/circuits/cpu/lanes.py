"""Scores of rows into lanes, and answers of lanes back to rows."""

import numpy as np
from numba import njit
from numba.extending import register_jitable

from smoothsp._kernels.vectors.simd import load, span, splat, store
from smoothsp._kernels.vectors.simd_parts import load_some, store_some, transpose


@register_jitable
def one_of(room):
    """A vector of ones of the room's float type."""
    return splat(room.dtype.type(1))


@njit(error_model="numpy", no_cpython_wrapper=True)
def gather(own, shared, rows, x, L):
    """Item 0 and the leaves of ``x``: 0, rows of own[B, P], shared[Q]; a row a lane."""
    P = own.shape[1]
    zero = splat(x.dtype.type(0))
    source, out = span(own), span(x)
    store(out, 0, zero)
    for k in range(0, P, L):
        for lane in range(L):
            if lane < len(rows):
                some = load_some(source, rows[lane] * P + k, P - k, zero)
                store(out, (1 + k + lane) * L, some)
            else:
                store(out, (1 + k + lane) * L, zero)
        transpose(out, (1 + k) * L)
    for q in range(len(shared)):
        store(out, (1 + P + q) * L, splat(x.dtype.type(shared[q])))


@njit(error_model="numpy", no_cpython_wrapper=True)
def scatter(x, rows, L, out):
    """Items 1 to the width of ``out`` to rows of it; spoils x."""
    P = out.shape[1]
    source, target = span(x), span(out)
    for k in range(0, P, L):
        transpose(source, (1 + k) * L)
        for lane in range(len(rows)):
            at = rows[lane] * P + k
            store_some(target, at, P - k, load(source, (1 + k + lane) * L))


@njit(error_model="numpy", no_cpython_wrapper=True)
def bounds(circuit, roots, rows):
    """The first definition that one of the rows needs, and that after the last."""
    first, last = np.intp(len(circuit.heads)), np.intp(0)
    for row in rows:
        last = max(last, np.intp(circuit.place[roots[row]]) + 1)
        first = min(first, np.intp(circuit.since[roots[row]]))
    return min(first, last), last
