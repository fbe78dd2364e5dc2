"""How sums over all outputs move along a direction of the leaves: second derivatives.

Along a direction d, the mean of an item moves with the covariance of its parts: one
sweep inwards and one outwards give the covariance of parts with d, which is the Hessian
of the log-partition times d. With ``q = z(a) z(b) / z(i)``, a product's share of its
item i,

    d(i)    = sum over products (a, b) of i of q (d(a) + d(b))      in order
    mu'(a) += mu'(i) q + mu(i) q (d(a) + d(b) - d(i))               in reverse

and b gets the same terms as a. z and mu are those of ``inside_outside``. The five
arrays m, e, d, mu and mu' are ``[items, L]``. If an item has one product, q is 1.
"""

import numpy as np

from smoothsp._kernels.circuits.cpu.inside_outside import outside
from smoothsp._kernels.circuits.cpu.lanes import (
    bounds,
    clear,
    factor,
    gather,
    one_of,
    scatter,
)
from smoothsp._kernels.circuits.cpu.scaled_floats import (
    constant,
    faintest,
    lowest,
    origin,
    power2,
)
from smoothsp._kernels.circuits.layout.addresses import (
    circuit_at,
    potentials_at,
    rows_at,
)
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors.simd import fma, load, maximum, select_lt, span, store
from smoothsp._kernels.vectors.simd_compare import any_not_equal


@kernel
def inside_outside_jvp(
    first, last, circuit, rows, scores, along, room, outwards, means
):
    """Fill means[B]: of ``along`` over the outputs of the rows ``order[first:last]``.

    And, if ``outwards``, the targets of ``scores`` with the derivatives of marginals
    along that direction. ``scores`` and ``along`` are tables of potentials of float64.
    ``room`` is ``[5, size]`` of float64, the first two of which ``inwards`` has
    just filled for these rows, no more than there are lanes.
    """
    circuit, rows = circuit_at(circuit), rows_at(rows)
    scores, along = potentials_at(scores), potentials_at(along)
    B = len(rows.roots)
    L = 64 // room.itemsize
    one = one_of(room)
    m, e, d, mu, to = room[0], room[1], room[2], room[3], room[4]
    lanes = rows.order[first:last]
    low, high = bounds(circuit, rows.roots, lanes)
    gather(along, B, lanes, d, one, L)
    _means(room, circuit, low, high, one, L)
    if outwards:
        clear(mu, circuit, low, high, one, L)
        clear(to, circuit, low, high, one, L)
    for lane in range(len(lanes)):
        row = lanes[lane]
        at = rows.roots[row] * L + lane
        means[row] = d[at]
        if outwards and m[at] > 0:
            mu[at] = 1
    if outwards:
        outside(m, e, mu, circuit, low, high, one, L)
        _moves(room, circuit, low, high, one, L)
        scatter(to, scores, B, lanes, L)


@subroutine
def _means(room, circuit, low, high, one, L):
    """The mean direction of each item: over its products, by their shares of it."""
    m, e, d = span(room[0]), span(room[1]), span(room[2])
    heads, starts, runs = circuit.heads, circuit.starts, circuit.runs
    zero = one - one
    start, none = constant(one, origin(L)), constant(one, lowest(L))
    for h in range(low, high):
        out = np.intp(heads[h]) * L
        first, last = starts[h], starts[h + 1]
        if last - first == 1 and runs[first, 0] == 1:
            a, b = np.intp(runs[first, 1]) * L, np.intp(runs[first, 3]) * L
            store(d, out, load(d, a) + load(d, b))
            continue
        total, mean = load(m, out), zero
        shift = start + select_lt(zero, total, zero - load(e, out), none)
        share = select_lt(zero, total, one / maximum(total, one), zero)
        for r in range(first, last):
            a, step_a = factor(runs, r, 1, L)
            b, step_b = factor(runs, r, 3, L)
            for _ in range(runs[r, 0]):
                k = (load(e, a) + load(e, b)) + shift
                q = load(m, a) * load(m, b) * share * power2(k)
                mean = fma(q, load(d, a) + load(d, b), mean)
                a += step_a
                b += step_b
        store(d, out, mean)


@subroutine
def _moves(room, circuit, low, high, one, L):
    """Fill derivatives of marginals: ``mu' q + mu q (d' - d)`` from each product.

    q is a product's share of its item, d' the direction along it, d the item's mean.
    """
    m, e, d = span(room[0]), span(room[1]), span(room[2])
    mu, to = span(room[3]), span(room[4])
    heads, starts, runs = circuit.heads, circuit.starts, circuit.runs
    zero = one - one
    faint = constant(one, faintest(L))
    start, none = constant(one, origin(L)), constant(one, lowest(L))
    for h in range(high - 1, low - 1, -1):
        out = np.intp(heads[h]) * L
        g, move = load(mu, out), load(to, out)
        if not any_not_equal(g, zero):
            continue
        first, last = starts[h], starts[h + 1]
        if last - first == 1 and runs[first, 0] == 1:
            a, b = np.intp(runs[first, 1]) * L, np.intp(runs[first, 3]) * L
            store(to, a, load(to, a) + move)
            store(to, b, load(to, b) + move)
            continue
        total, mean = load(m, out), load(d, out)
        shift = start + select_lt(zero, total, zero - load(e, out), none)
        share = select_lt(faint, g, one / maximum(total, one), zero)
        for r in range(first, last):
            a, step_a = factor(runs, r, 1, L)
            b, step_b = factor(runs, r, 3, L)
            for _ in range(runs[r, 0]):
                k = (load(e, a) + load(e, b)) + shift
                q = load(m, a) * load(m, b) * share * power2(k)
                v = q * fma(g, load(d, a) + load(d, b) - mean, move)
                # an item may be both factors: read after the write
                store(to, a, load(to, a) + v)
                store(to, b, load(to, b) + v)
                a += step_a
                b += step_b
