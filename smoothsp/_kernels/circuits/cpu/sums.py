"""Sums over all outputs: log-partition, and marginals of every leaf."""

import math

import numpy as np
from numba import njit

from smoothsp._kernels.circuits.cpu.lanes import (
    bounds,
    gather_numbers,
    one_of,
    scatter,
)
from smoothsp._kernels.circuits.cpu.numbers import (
    LN2,
    constant,
    faintest,
    furthest,
    highest,
    lowest,
    origin,
    power2,
    put_number,
)
from smoothsp._kernels.compilation import kernel
from smoothsp._kernels.vectors.simd import (
    fma,
    larger,
    load,
    smaller,
    span,
    store,
    where_below,
)
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
    for begin in range(first, last, L):
        lanes = rows.order[begin : min(begin + L, last)]
        low, high = bounds(circuit, rows.roots, lanes)
        reach = gather_numbers(own, shared, lanes, m, e, one, L)
        store(span(mu), 0, reach)
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

    ``sum m_a m_b 2^(e_a + e_b - top)``, where top is the first product's exponent: any
    will do that is not far below the largest. If it is, all again with the largest.
    """
    m, e = span(m), span(e)
    heads, starts, runs = circuit.heads, circuit.starts, circuit.runs
    none = constant(one, lowest(L))
    most, half = constant(one, highest(L)), constant(one, 2.0 ** (highest(L) / 2))
    for h in range(low, high):
        first, last = starts[h], starts[h + 1]
        out = np.intp(heads[h]) * L
        if last == first:
            put_number(m, e, out, one - one, none, none)
            continue
        a, b = np.intp(runs[first, 1]) * L, np.intp(runs[first, 3]) * L
        top = load(e, a) + load(e, b)
        if last - first == 1 and runs[first, 0] == 1:
            put_number(m, e, out, load(m, a) * load(m, b), top, none)
            continue
        total = _total(m, e, runs, first, last, top, most, one, L)
        if differ(larger(total, half), half):
            top = _top(e, runs, first, last, none, L)
            total = _total(m, e, runs, first, last, top, most, one, L)
        put_number(m, e, out, total, top, none)


@njit(error_model="numpy", forceinline=True, no_cpython_wrapper=True)
def _top(e, runs, first, last, top, L):
    """The largest exponent of the products."""
    for r in range(first, last):
        a, step_a = np.intp(runs[r, 1]) * L, np.intp(runs[r, 2]) * L
        b, step_b = np.intp(runs[r, 3]) * L, np.intp(runs[r, 4]) * L
        for _ in range(runs[r, 0]):
            top = larger(load(e, a) + load(e, b), top)
            a += step_a
            b += step_b
    return top


@njit(error_model="numpy", forceinline=True, no_cpython_wrapper=True)
def _total(m, e, runs, first, last, top, most, one, L):
    """The sum of the products over ``2^top``; too large if one is far above it."""
    start = constant(one, origin(L))
    most = start + most
    shift = start - top
    total = one - one
    for r in range(first, last):
        a, step_a = np.intp(runs[r, 1]) * L, np.intp(runs[r, 2]) * L
        b, step_b = np.intp(runs[r, 3]) * L, np.intp(runs[r, 4]) * L
        for _ in range(runs[r, 0]):
            k = smaller((load(e, a) + load(e, b)) + shift, most)
            total = fma(load(m, a) * load(m, b), power2(k), total)
            a += step_a
            b += step_b
    return total


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
    start, none = constant(one, origin(L)), constant(one, lowest(L))
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
        total = load(m, out)
        g = where_below(faint, g, g / larger(total, one), zero)
        # of what is impossible nobody takes a share, however large
        shift = start + where_below(zero, total, zero - load(e, out), none)
        for r in range(first, last):
            a, step_a = np.intp(runs[r, 1]) * L, np.intp(runs[r, 2]) * L
            b, step_b = np.intp(runs[r, 3]) * L, np.intp(runs[r, 4]) * L
            if step_b == 0:
                # summed in a register: else each product waits for the last one's store
                sum_ = zero
                s, k = g * load(m, b), load(e, b) + shift
                for _ in range(runs[r, 0]):
                    v = s * load(m, a) * power2(load(e, a) + k)
                    store(mu, a, load(mu, a) + v)
                    sum_ = sum_ + v
                    a += step_a
                store(mu, b, load(mu, b) + sum_)
                continue
            for _ in range(runs[r, 0]):
                k = (load(e, a) + load(e, b)) + shift
                v = (g * power2(k)) * (load(m, a) * load(m, b))
                store(mu, a, load(mu, a) + v)
                store(mu, b, load(mu, b) + v)
                a += step_a
                b += step_b
