"""Sums over all outputs: log-partition, and marginals of every leaf."""

import math

import numpy as np
from numba import njit

from smoothsp._kernels.circuits.cpu.lanes import bounds, gather, one_of, scatter
from smoothsp._kernels.circuits.cpu.numbers import (
    LN2,
    constant,
    enter,
    faintest,
    furthest,
    lowest,
    power2,
    put_number,
)
from smoothsp._kernels.compilation import kernel
from smoothsp._kernels.vectors.simd import fma, larger, load, span, store, where_below
from smoothsp._kernels.vectors.simd_compare import differ


@kernel
def sums(
    first, last, circuit, rows, own, shared, room, outwards, value, far, marginals
):
    """Fill value[B] in float64 and, if ``outwards``, marginals[B, P + Q].

    For the rows ``rows.order[first:last]``. ``far[b]`` says that scores of row b are
    too large for the float type of ``room`` ``[3, size]``, which is scratch: its answer
    is none then. The value of a row without a possible output is -inf.
    """
    L = 64 // room.itemsize
    one = one_of(room)
    m, e, mu = room[0], room[1], room[2]
    leaves = 1 + circuit.own + circuit.shared
    for begin in range(first, last, L):
        lanes = rows.order[begin : min(begin + L, last)]
        low, high = bounds(circuit, rows.roots, lanes)
        gather(own, shared, lanes, m, L)
        store(span(mu), 0, enter(m, e, leaves, one, L))
        for lane in range(len(lanes)):
            row = lanes[lane]
            most = max(circuit.uses[rows.roots[row]], 1)
            far[row] = np.float64(mu[lane]) * most > furthest(L)
        inside(m, e, circuit, low, high, one, L)
        if outwards:
            mu[: circuit.items * L] = 0
        for lane in range(len(lanes)):
            row = lanes[lane]
            at = rows.roots[row] * L + lane
            z = np.float64(m[at])
            value[row] = math.log(z) + np.float64(e[at]) * LN2 if z > 0 else -np.inf
            if outwards and z > 0:
                mu[at] = 1
        if outwards:
            outside(m, e, mu, circuit, low, high, one, L)
            scatter(mu, lanes, L, marginals)


@njit(error_model="numpy", no_cpython_wrapper=True)
def inside(m, e, circuit, low, high, one, L):
    """Every item from definition ``low`` to ``high``: the sum of its products.

    The largest exponent first, then ``sum m_a m_b 2^(e_a + e_b - top)``, at least 1.
    """
    m, e = span(m), span(e)
    heads, starts, runs = circuit.heads, circuit.starts, circuit.runs
    none = constant(one, lowest(L))
    zero = one - one
    for h in range(low, high):
        first, last = starts[h], starts[h + 1]
        out = np.intp(heads[h]) * L
        if last - first == 1 and runs[first, 0] == 1:
            a, b = np.intp(runs[first, 1]) * L, np.intp(runs[first, 3]) * L
            total = load(m, a) * load(m, b)
            put_number(m, e, out, total, load(e, a) + load(e, b), none)
            continue
        top = none
        for r in range(first, last):
            n = np.intp(runs[r, 0])
            a, step_a = np.intp(runs[r, 1]) * L, np.intp(runs[r, 2]) * L
            b, step_b = np.intp(runs[r, 3]) * L, np.intp(runs[r, 4]) * L
            for i in range(n):
                k = load(e, a + i * step_a) + load(e, b + i * step_b)
                top = larger(k, top)
        total = zero
        for r in range(first, last):
            n = np.intp(runs[r, 0])
            a, step_a = np.intp(runs[r, 1]) * L, np.intp(runs[r, 2]) * L
            b, step_b = np.intp(runs[r, 3]) * L, np.intp(runs[r, 4]) * L
            for i in range(n):
                p, q = a + i * step_a, b + i * step_b
                k = load(e, p) + load(e, q) - top
                total = fma(load(m, p) * load(m, q), power2(k), total)
        put_number(m, e, out, total, top, none)


@njit(error_model="numpy", no_cpython_wrapper=True)
def outside(m, e, mu, circuit, low, high, one, L):
    """Marginals of all items from those of the roots.

    Of an item's marginal each product takes its share of the item's sum, and gives it
    to both factors.
    """
    m, e, mu = span(m), span(e), span(mu)
    heads, starts, runs = circuit.heads, circuit.starts, circuit.runs
    zero = one - one
    faint = constant(one, faintest(L))
    for h in range(high - 1, low - 1, -1):
        out = np.intp(heads[h]) * L
        g = load(mu, out)
        # what no row reaches may hold anything
        if not differ(g, zero):
            continue
        first, last = starts[h], starts[h + 1]
        if last - first == 1 and runs[first, 0] == 1:
            a, b = np.intp(runs[first, 1]) * L, np.intp(runs[first, 3]) * L
            store(mu, a, load(mu, a) + g)
            store(mu, b, load(mu, b) + g)
            continue
        g = where_below(faint, g, g / larger(load(m, out), one), zero)
        top = load(e, out)
        for r in range(first, last):
            n = np.intp(runs[r, 0])
            a, step_a = np.intp(runs[r, 1]) * L, np.intp(runs[r, 2]) * L
            b, step_b = np.intp(runs[r, 3]) * L, np.intp(runs[r, 4]) * L
            if step_b == 0:
                # summed in a register: else each product waits for the last one's store
                total = zero
                s, k = g * load(m, b), load(e, b) - top
                for i in range(n):
                    p = a + i * step_a
                    v = s * load(m, p) * power2(load(e, p) + k)
                    store(mu, p, load(mu, p) + v)
                    total = total + v
                store(mu, b, load(mu, b) + total)
                continue
            for i in range(n):
                p, q = a + i * step_a, b + i * step_b
                k = load(e, p) + load(e, q) - top
                v = g * load(m, p) * load(m, q) * power2(k)
                store(mu, p, load(mu, p) + v)
                store(mu, q, load(mu, q) + v)
