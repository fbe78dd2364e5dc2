"""Tangents of inside-outside along a direction of the leaves: Hessian-vector products.

The tangent of log z(i) along a direction d of the scores is the mean of d over the
outputs below i. One inside and one outside pass give the covariance of the leaves with
d, which is the Hessian of the log-partition times d. With ``q = z(a) z(b) / z(i)``, the
probability of a product given its item i,

    d(i)    = sum over products (a, b) of i of q (d(a) + d(b))      in order
    mu'(a) += mu'(i) q + mu(i) q (d(a) + d(b) - d(i))               in reverse

and b receives the same terms as a. z and mu are those of ``inside_outside``. The five
arrays m, e, d, mu and mu' are ``[num_items, L]``. If an item has one product, q is 1.

Source: Li and Eisner, "First- and Second-Order Expectation Semirings" (2009).
"""

import numpy as np

from smoothsp._kernels.circuits.cpu.inside_outside import outside
from smoothsp._kernels.circuits.cpu.lanes import (
    definition_range,
    gather_scores,
    run_start_and_step,
    scatter_to_targets,
    vector_of_ones,
    zero_items,
)
from smoothsp._kernels.circuits.cpu.scaled_floats import (
    min_marginal,
    pow2,
    pow2_bias,
    splat_like,
    zero_exponent,
)
from smoothsp._kernels.circuits.layout.addresses import (
    load_circuit,
    load_potential_table,
    load_row_roots,
)
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors.simd import fma, load, maximum, select_lt, span, store
from smoothsp._kernels.vectors.simd_compare import any_not_equal


@kernel
def inside_outside_jvp(
    first,
    last,
    circuit,
    rows,
    scores,
    direction,
    scratch,
    with_marginals,
    log_z_tangent,
):
    """Fill log_z_tangent[B], the mean of ``direction`` over the outputs of each row.

    If ``with_marginals``, the targets of ``scores`` receive the tangents of the
    marginals. ``scores`` and ``direction`` are float64 tables of potentials.
    ``scratch`` is ``[5, size]`` of float64; ``inside_only`` has filled its first two
    arrays for the same rows ``order[first:last]``, at most one per lane.
    """
    circuit, rows = load_circuit(circuit), load_row_roots(rows)
    scores, direction = load_potential_table(scores), load_potential_table(direction)
    B = len(rows.roots)
    L = 64 // scratch.itemsize
    ones = vector_of_ones(scratch)
    m, e, d, mu, mu_tangent = scratch[0], scratch[1], scratch[2], scratch[3], scratch[4]
    lanes = rows.order[first:last]
    low, high = definition_range(circuit, rows.roots, lanes)
    gather_scores(direction, B, lanes, d, ones, L)
    _inside_tangent(scratch, circuit, low, high, ones, L)
    if with_marginals:
        zero_items(mu, circuit, low, high, ones, L)
        zero_items(mu_tangent, circuit, low, high, ones, L)
    for lane in range(len(lanes)):
        row = lanes[lane]
        offset = rows.roots[row] * L + lane
        log_z_tangent[row] = d[offset]
        if with_marginals and m[offset] > 0:
            mu[offset] = 1
    if with_marginals:
        outside(m, e, mu, circuit, low, high, ones, L)
        _outside_tangent(scratch, circuit, low, high, ones, L)
        scatter_to_targets(mu_tangent, scores, B, lanes, L)


@subroutine
def _inside_tangent(scratch, circuit, low, high, ones, L):
    """Fill d: each item's mean direction, over its products by their probabilities."""
    m, e, d = span(scratch[0]), span(scratch[1]), span(scratch[2])
    heads, starts, runs = circuit.heads, circuit.starts, circuit.runs
    zero = ones - ones
    start, none = splat_like(ones, pow2_bias(L)), splat_like(ones, zero_exponent(L))
    for h in range(low, high):
        out = np.intp(heads[h]) * L
        first, last = starts[h], starts[h + 1]
        if last - first == 1 and runs[first, 0] == 1:
            a, b = np.intp(runs[first, 1]) * L, np.intp(runs[first, 3]) * L
            store(d, out, load(d, a) + load(d, b))
            continue
        total, mean = load(m, out), zero
        shift = start + select_lt(zero, total, zero - load(e, out), none)
        # m is at least 1 or 0: the maximum only guards the division
        inverse_mantissa = select_lt(zero, total, ones / maximum(total, ones), zero)
        for r in range(first, last):
            a, step_a = run_start_and_step(runs, r, 1, L)
            b, step_b = run_start_and_step(runs, r, 3, L)
            for _ in range(runs[r, 0]):
                k = (load(e, a) + load(e, b)) + shift
                q = load(m, a) * load(m, b) * inverse_mantissa * pow2(k)
                mean = fma(q, load(d, a) + load(d, b), mean)
                a += step_a
                b += step_b
        store(d, out, mean)


@subroutine
def _outside_tangent(scratch, circuit, low, high, ones, L):
    """Fill tangents of marginals: ``mu' q + mu q (d' - d)`` from each product.

    q is the product's probability given its item, d' the direction along it, d the
    item's mean. Subtracting d keeps the terms small: covariances do not cancel
    afterwards.
    """
    m, e, d = span(scratch[0]), span(scratch[1]), span(scratch[2])
    mu, mu_tangent = span(scratch[3]), span(scratch[4])
    heads, starts, runs = circuit.heads, circuit.starts, circuit.runs
    zero = ones - ones
    faint = splat_like(ones, min_marginal(L))
    start, none = splat_like(ones, pow2_bias(L)), splat_like(ones, zero_exponent(L))
    for h in range(high - 1, low - 1, -1):
        out = np.intp(heads[h]) * L
        g, item_tangent = load(mu, out), load(mu_tangent, out)
        if not any_not_equal(g, zero):
            continue
        first, last = starts[h], starts[h + 1]
        if last - first == 1 and runs[first, 0] == 1:
            a, b = np.intp(runs[first, 1]) * L, np.intp(runs[first, 3]) * L
            store(mu_tangent, a, load(mu_tangent, a) + item_tangent)
            store(mu_tangent, b, load(mu_tangent, b) + item_tangent)
            continue
        total, mean = load(m, out), load(d, out)
        shift = start + select_lt(zero, total, zero - load(e, out), none)
        inverse_mantissa = select_lt(faint, g, ones / maximum(total, ones), zero)
        for r in range(first, last):
            a, step_a = run_start_and_step(runs, r, 1, L)
            b, step_b = run_start_and_step(runs, r, 3, L)
            for _ in range(runs[r, 0]):
                k = (load(e, a) + load(e, b)) + shift
                q = load(m, a) * load(m, b) * inverse_mantissa * pow2(k)
                v = q * fma(g, load(d, a) + load(d, b) - mean, item_tangent)
                # an item may be both factors: read after the write
                store(mu_tangent, a, load(mu_tangent, a) + v)
                store(mu_tangent, b, load(mu_tangent, b) + v)
                a += step_a
                b += step_b
