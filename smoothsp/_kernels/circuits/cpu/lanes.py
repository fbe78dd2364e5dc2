"""Scores of rows into lanes, and answers of lanes back to rows."""

import numpy as np
from numba import njit
from numba.extending import register_jitable

from smoothsp._kernels.circuits.cpu.numbers import constant, enter
from smoothsp._kernels.vectors.simd import load, span, splat, store
from smoothsp._kernels.vectors.simd_parts import load_some, store_some, transpose


@register_jitable
def one_of(room):
    """A vector of ones of the room's float type."""
    return splat(room.dtype.type(1))


@njit(error_model="numpy", no_cpython_wrapper=True)
def gather(own, shared, rows, x, one, L):
    """Item 0 and the leaves of ``x``: 0, rows of own[B, P], shared[Q]; a row a lane."""
    P = own.shape[1]
    source, out = span(own), span(x)
    store(out, 0, one - one)
    for k in range(0, P, L):
        _square(source, rows, P, k, out, one, L)
    for q in range(len(shared)):
        store(out, (1 + P + q) * L, constant(one, shared[q]))


@njit(error_model="numpy", no_cpython_wrapper=True)
def gather_numbers(own, shared, rows, m, e, one, L):
    """The same as numbers ``m 2^e``; the largest size of an exponent of a lane."""
    P = own.shape[1]
    source, m, e = span(own), span(m), span(e)
    zero = one - one
    store(m, 0, one)
    store(e, 0, zero)
    reach = zero
    for k in range(0, P, L):
        _square(source, rows, P, k, m, one, L)
        last = min(1 + k + L, 1 + P)
        reach = enter(m, e, 1 + k, last, reach, one, L)
    for q in range(len(shared)):
        store(m, (1 + P + q) * L, constant(one, shared[q]))
    return enter(m, e, 1 + P, 1 + P + len(shared), reach, one, L)


@njit(error_model="numpy", no_cpython_wrapper=True)
def _square(source, rows, P, k, out, one, L):
    """Leaves k to k + L of the rows, 0 in lanes without a row."""
    zero = one - one
    at = (1 + k) * L
    for lane in range(L):
        v = zero
        if lane < len(rows):
            v = load_some(source, rows[lane] * P + k, P - k, zero)
        store(out, at + lane * L, v)
    transpose(out, at)


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
