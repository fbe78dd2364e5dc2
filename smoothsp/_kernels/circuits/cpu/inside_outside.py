"""Inside-outside: log-partition of each row, and marginals of the leaves.

With z = 1 for the empty product, z = exp(score) for a leaf, and mu(root) = 1,

    z(i)  = sum over products (a, b) of i of z(a) z(b)         definitions in order
    mu(a) = sum over products (a, b) of mu(i) z(a) z(b) / z(i)          in reverse

The second sum is over the products of all items i. Definitions are visited after all
their uses, so that mu(i) is complete; each adds its terms to both factors.

z is a scaled float ``m 2^e`` of ``scaled_floats``: no sum overflows or underflows, and
no product costs an exponential. m, e and mu are ``[num_items, L]``, a row of the batch
in each lane, so that sums over products stay within a lane.

Chains have a separate recursion. This one reads its products from arrays, and serves
all other dynamic programmes, at the cost of an exponent per number.
"""

import numpy as np

from smoothsp._kernels.circuits.cpu.lanes import (
    definition_range,
    gather_scaled,
    run_start_and_step,
    scatter_to_targets,
    vector_of_ones,
    zero_items,
)
from smoothsp._kernels.circuits.cpu.scaled_floats import (
    exponent_limit,
    max_sum_exponent,
    min_marginal,
    pow2,
    pow2_bias,
    splat_like,
    store_scaled,
    zero_exponent,
)
from smoothsp._kernels.circuits.layout.addresses import (
    load_circuit,
    load_potential_table,
    load_row_roots,
)
from smoothsp._kernels.circuits.layout.circuit_arrays import TILE
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors.arrays import carray
from smoothsp._kernels.vectors.double_double import log_scaled, normalise
from smoothsp._kernels.vectors.simd import (
    fma,
    load,
    maximum,
    minimum,
    select_lt,
    span,
    store,
)
from smoothsp._kernels.vectors.simd_compare import any_not_equal


@kernel
def inside_outside(first, last, circuit, rows, scores, scratch, with_marginals, out):
    """Fill ``out`` and, if ``with_marginals``, the targets of ``scores``.

    For the rows ``rows.order[first:last]``. ``scores`` is a table of potentials; its
    targets receive marginals. Scores, targets and ``scratch``, ``[3, size]``, are of
    the same float type. ``out`` are three addresses: value_dd[B, 2], the double-double
    log-partition, -inf of an infeasible row; out_of_range[B], float64, 1 if the row's
    scores are too large for float32 and its results are invalid; value[B], the
    log-partition in the float type, or 0.

    Return the number of rows that are out of range.
    """
    circuit, rows = load_circuit(circuit), load_row_roots(rows)
    scores = load_potential_table(scores)
    L = 64 // scratch.itemsize
    B = len(rows.roots)
    value_dd, out_of_range, value = out
    value_dd, out_of_range = (
        carray(value_dd, (B, 2), np.float64),
        carray(out_of_range, (B,), np.float64),
    )
    rounded = carray(value, (B if value else 0,), scratch)
    num_out_of_range = 0
    ones = vector_of_ones(scratch)
    m, e, mu = scratch[0], scratch[1], scratch[2]
    for begin in range(first, last, L):
        lanes = rows.order[begin : begin + L if begin + L < last else last]
        low, high = _inside_pass(
            lanes, circuit, rows, scores, scratch, value_dd, out_of_range
        )
        if with_marginals:
            zero_items(mu, circuit, low, high, ones, L)
            for lane in range(len(lanes)):
                root = rows.roots[lanes[lane]] * L + lane
                if m[root] > 0:
                    mu[root] = 1
            outside(m, e, mu, circuit, low, high, ones, L)
            scatter_to_targets(mu, scores, B, lanes, L)
        for row in lanes:
            num_out_of_range += 1 if out_of_range[row] else 0
            if value:
                rounded[row] = value_dd[row, 0]
    return num_out_of_range


@kernel
def inside_only(first, last, circuit, rows, scores, scratch, value_dd, out_of_range):
    """Fill value_dd[B, 2], out_of_range[B] and ``scratch[:2]``, m and e of all items.

    For the rows ``rows.order[first:last]``, at most one per lane.
    """
    circuit, rows = load_circuit(circuit), load_row_roots(rows)
    scores = load_potential_table(scores)
    lanes = rows.order[first:last]
    _inside_pass(lanes, circuit, rows, scores, scratch, value_dd, out_of_range)


@subroutine(optimise=False)
def _inside_pass(lanes, circuit, rows, scores, scratch, value_dd, out_of_range):
    """Run the inside pass of the rows ``lanes``; return the range of definitions."""
    L, ones = 64 // scratch.itemsize, vector_of_ones(scratch)
    m, e, mu = scratch[0], scratch[1], scratch[2]
    low, high = definition_range(circuit, rows.roots, lanes)
    max_abs_exponent = gather_scaled(scores, len(rows.roots), lanes, m, e, ones, L)
    # mu is free until the outside pass: its first vector passes on the lanes' exponents
    store(span(mu), 0, max_abs_exponent)
    inside(m, e, circuit, low, high, ones, L)
    for lane in range(len(lanes)):
        row = lanes[lane]
        root = rows.roots[row]
        # bound of an output's exponent: the largest leaf's times the number of leaves
        max_abs_exponent = np.float64(mu[lane]) * circuit.max_leaves[root]
        out_of_range[row] = 1.0 if max_abs_exponent > exponent_limit(L) else 0.0
        offset = root * L + lane
        total, lo = log_scaled(np.float64(m[offset]), np.float64(e[offset]))
        value_dd[row, 0], value_dd[row, 1] = normalise(total, lo)
    return low, high


@subroutine
def inside(m, e, circuit, low, high, ones, L):
    """Fill each item of definitions ``low`` to ``high`` with the sum of its products.

    ``sum m_a m_b 2^(e_a + e_b - top)``, where top is the exponent of the first product.
    The sum is exact enough unless top is far below the largest exponent; in that case
    it is recomputed with the largest one.
    """
    m, e = span(m), span(e)
    heads, starts, runs = circuit.heads, circuit.starts, circuit.runs
    zero_exponents = splat_like(ones, zero_exponent(L))
    overflow_exponent, half = (
        splat_like(ones, max_sum_exponent(L)),
        splat_like(ones, 2.0 ** (max_sum_exponent(L) / 2)),
    )
    h = low
    while h < high:
        first, last = np.intp(starts[h]), np.intp(starts[h + 1])
        out = np.intp(heads[h]) * L
        if circuit.tiles[h] == TILE:
            _inside_of_four(m, e, heads, h, runs, first, ones, L)
            h += TILE
            continue
        h += 1
        if last == first:
            store_scaled(m, e, out, ones - ones, zero_exponents, zero_exponents)
            continue
        a, b = np.intp(runs[first, 1]) * L, np.intp(runs[first, 3]) * L
        top = load(e, a) + load(e, b)
        if last - first == 1 and runs[first, 0] == 1:
            store_scaled(m, e, out, load(m, a) * load(m, b), top, zero_exponents)
            continue
        total = _sum_of_products(
            m, e, runs, first, last, top, overflow_exponent, ones, L
        )
        # one comparison for all lanes: recomputing is rare
        if any_not_equal(maximum(total, half), half):
            _store_rescaled_sum(
                m, e, out, runs, first, last, overflow_exponent, ones, L
            )
        else:
            store_scaled(m, e, out, total, top, zero_exponents)


@subroutine
def _store_rescaled_sum(m, e, out, runs, first, last, overflow_exponent, ones, L):
    """Store the sum of the products, relative to the largest of their exponents."""
    zero_exponents = splat_like(ones, zero_exponent(L))
    top = zero_exponents
    for r in range(first, last):
        a, step_a = run_start_and_step(runs, r, 1, L)
        b, step_b = run_start_and_step(runs, r, 3, L)
        for _ in range(runs[r, 0]):
            top = maximum(load(e, a) + load(e, b), top)
            a += step_a
            b += step_b
    total = _sum_of_products(m, e, runs, first, last, top, overflow_exponent, ones, L)
    store_scaled(m, e, out, total, top, zero_exponents)


@subroutine(forceinline=True)
def _sum_of_products(m, e, runs, first, last, top, overflow_exponent, ones, L):
    """Return the sum of the products over ``2^top``; huge if one is far above it."""
    start = splat_like(ones, pow2_bias(L))
    overflow_exponent = start + overflow_exponent
    shift = start - top
    total = ones - ones
    for r in range(first, last):
        a, step_a = run_start_and_step(runs, r, 1, L)
        b, step_b = run_start_and_step(runs, r, 3, L)
        for _ in range(runs[r, 0]):
            k = minimum((load(e, a) + load(e, b)) + shift, overflow_exponent)
            total = fma(load(m, a) * load(m, b), pow2(k), total)
            a += step_a
            b += step_b
    return total


@subroutine
def _inside_of_four(m, e, heads, first_head, runs, first_run, ones, L):
    """``inside`` of a tile: each left factor is loaded once for all its definitions."""
    zero = ones - ones
    zero_exponents, start = (
        splat_like(ones, zero_exponent(L)),
        splat_like(ones, pow2_bias(L)),
    )
    overflow_exponent = start + splat_like(ones, max_sum_exponent(L))
    half = splat_like(ones, 2.0 ** (max_sum_exponent(L) / 2))
    a, step = run_start_and_step(runs, first_run, 1, L)
    b0, step0 = run_start_and_step(runs, first_run, 3, L)
    b1, step1 = run_start_and_step(runs, first_run + 1, 3, L)
    b2, step2 = run_start_and_step(runs, first_run + 2, 3, L)
    b3, step3 = run_start_and_step(runs, first_run + 3, 3, L)
    k = load(e, a)
    s0, s1 = start - (k + load(e, b0)), start - (k + load(e, b1))
    s2, s3 = start - (k + load(e, b2)), start - (k + load(e, b3))
    t0 = t1 = t2 = t3 = zero
    for _ in range(runs[first_run, 0]):
        k, v = load(e, a), load(m, a)
        t0 = fma(
            v * load(m, b0),
            pow2(minimum((k + load(e, b0)) + s0, overflow_exponent)),
            t0,
        )
        t1 = fma(
            v * load(m, b1),
            pow2(minimum((k + load(e, b1)) + s1, overflow_exponent)),
            t1,
        )
        t2 = fma(
            v * load(m, b2),
            pow2(minimum((k + load(e, b2)) + s2, overflow_exponent)),
            t2,
        )
        t3 = fma(
            v * load(m, b3),
            pow2(minimum((k + load(e, b3)) + s3, overflow_exponent)),
            t3,
        )
        a += step
        b0 += step0
        b1 += step1
        b2 += step2
        b3 += step3
    largest = maximum(maximum(t0, t1), maximum(t2, t3))
    if not any_not_equal(maximum(largest, half), half):
        store_scaled(
            m, e, np.intp(heads[first_head]) * L, t0, start - s0, zero_exponents
        )
        store_scaled(
            m, e, np.intp(heads[first_head + 1]) * L, t1, start - s1, zero_exponents
        )
        store_scaled(
            m, e, np.intp(heads[first_head + 2]) * L, t2, start - s2, zero_exponents
        )
        store_scaled(
            m, e, np.intp(heads[first_head + 3]) * L, t3, start - s3, zero_exponents
        )
        return
    for i in range(TILE):
        out = np.intp(heads[first_head + i]) * L
        _store_rescaled_sum(
            m,
            e,
            out,
            runs,
            first_run + i,
            first_run + i + 1,
            overflow_exponent - start,
            ones,
            L,
        )


@subroutine
def outside(m, e, mu, circuit, low, high, ones, L):
    """Fill the marginals of all items from those of the roots.

    A product adds ``mu_i m_a m_b 2^(e_a + e_b - e_i) / m_i`` to the marginals of both
    factors: its probability given the item, times the item's marginal. For the only
    product of an item this is mu_i.
    """
    m, e, mu = span(m), span(e), span(mu)
    heads, starts, runs = circuit.heads, circuit.starts, circuit.runs
    zero = ones - ones
    h = high
    while h > low:
        h -= 1
        while circuit.tiles[h] == 0:
            h -= 1
        first, last = starts[h], starts[h + 1]
        if circuit.tiles[h] == TILE:
            _outside_of_four(m, e, mu, heads, h, runs, first, ones, L)
            continue
        out = np.intp(heads[h]) * L
        g = load(mu, out)
        # items that no root reaches hold arbitrary numbers
        if not any_not_equal(g, zero):
            continue
        if last - first == 1 and runs[first, 0] == 1:
            a, b = np.intp(runs[first, 1]) * L, np.intp(runs[first, 3]) * L
            store(mu, a, load(mu, a) + g)
            store(mu, b, load(mu, b) + g)
            continue
        g, shift = _outside_mantissa_and_exponent(m, e, g, out, ones, L)
        for r in range(first, last):
            a, step_a = run_start_and_step(runs, r, 1, L)
            b, step_b = run_start_and_step(runs, r, 3, L)
            # summed in a register: otherwise each product depends on the previous store
            if step_b == 0:
                total = zero
                s, k = g * load(m, b), load(e, b) + shift
                for _ in range(runs[r, 0]):
                    v = s * load(m, a) * pow2(load(e, a) + k)
                    store(mu, a, load(mu, a) + v)
                    total = total + v
                    a += step_a
                store(mu, b, load(mu, b) + total)
                continue
            for _ in range(runs[r, 0]):
                k = (load(e, a) + load(e, b)) + shift
                v = (g * pow2(k)) * (load(m, a) * load(m, b))
                store(mu, a, load(mu, a) + v)
                store(mu, b, load(mu, b) + v)
                a += step_a
                b += step_b


@subroutine(forceinline=True)
def _outside_mantissa_and_exponent(m, e, g, out, ones, L):
    """Marginal g of an item over its mantissa, and the exponent argument of ``pow2``.

    An infeasible item has the lowest exponent, so that its products receive 0.
    """
    zero = ones - ones
    total = load(m, out)
    g = select_lt(splat_like(ones, min_marginal(L)), g, g / maximum(total, ones), zero)
    top = select_lt(
        zero, total, zero - load(e, out), splat_like(ones, zero_exponent(L))
    )
    return g, splat_like(ones, pow2_bias(L)) + top


@subroutine
def _outside_of_four(m, e, mu, heads, first_head, runs, first_run, ones, L):
    """``outside`` of a tile: the left factor's terms are summed in a register."""
    zero = ones - ones
    out0, out1 = np.intp(heads[first_head]) * L, np.intp(heads[first_head + 1]) * L
    out2, out3 = np.intp(heads[first_head + 2]) * L, np.intp(heads[first_head + 3]) * L
    g0, g1, g2, g3 = load(mu, out0), load(mu, out1), load(mu, out2), load(mu, out3)
    if not any_not_equal((g0 + g1) + (g2 + g3), zero):
        return
    g0, s0 = _outside_mantissa_and_exponent(m, e, g0, out0, ones, L)
    g1, s1 = _outside_mantissa_and_exponent(m, e, g1, out1, ones, L)
    g2, s2 = _outside_mantissa_and_exponent(m, e, g2, out2, ones, L)
    g3, s3 = _outside_mantissa_and_exponent(m, e, g3, out3, ones, L)
    a, step = run_start_and_step(runs, first_run, 1, L)
    b0, step0 = run_start_and_step(runs, first_run, 3, L)
    b1, step1 = run_start_and_step(runs, first_run + 1, 3, L)
    b2, step2 = run_start_and_step(runs, first_run + 2, 3, L)
    b3, step3 = run_start_and_step(runs, first_run + 3, 3, L)
    for _ in range(runs[first_run, 0]):
        k, v = load(e, a), load(m, a)
        v0 = (g0 * pow2((k + load(e, b0)) + s0)) * (v * load(m, b0))
        v1 = (g1 * pow2((k + load(e, b1)) + s1)) * (v * load(m, b1))
        v2 = (g2 * pow2((k + load(e, b2)) + s2)) * (v * load(m, b2))
        v3 = (g3 * pow2((k + load(e, b3)) + s3)) * (v * load(m, b3))
        store(mu, b0, load(mu, b0) + v0)
        store(mu, b1, load(mu, b1) + v1)
        store(mu, b2, load(mu, b2) + v2)
        store(mu, b3, load(mu, b3) + v3)
        # an item may be both left and right: read after the writes
        store(mu, a, load(mu, a) + ((v0 + v1) + (v2 + v3)))
        a += step
        b0 += step0
        b1 += step1
        b2 += step2
        b3 += step3
