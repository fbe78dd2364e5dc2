r"""The scaled recursion of a chain with shared transitions.

With ``w_t(j)`` the exponential of potential j at step t, the largest taken out, and
``E = exp(transitions - top)``,

    forward    a_t(j) = sum_i a_{t-1}(i) E(i, j) / c_{t-1} w_t(j),   a_0 = w_0
    backward   b_{t-1}(i) = sum_j E(i, j) u_t(j) / c_{t-1},          u_t = w_t b_t
    nodes      a_t(s) b_t(s) / z_t
    edges      E(i, j) sum_t a_{t-1}(i) u_t(j) / (c_{t-1} z_{t-1})
    value      sum_{t<N} max_t + (N - 1) top + max_end + sum_{t<N-1} log c_t + log z

with c_t the sum of a_t and z_t the sum of ``a_t b_t``, which is 1 but for rounding
since the end scores are divided by it at the last step: by z, the sum of
``a_{N-1}(j) exp(end(j) - max_end)``, which is called c_{N-1} below. max_t is the
largest potential of step t, with start in step 0. No step waits for a sum over the
states of the same step: the next one divides by it.

A number below the smallest normal one, ``tiny``, may be lost. No ``w``, E or a exceeds
1, so the sum of b_t is at least 1. Of all outputs' chances, those lost at step t are at
most ``S tiny sum_j u_t(j) / c_{t-1}`` for the products with E and ``6 tiny sum_j
b_t(j)`` for the other numbers of the forward recursion, ``(3 S + 4) tiny sum_j b_t(j)``
for the backward one. While 16 S tiny times

    reach = sum over t and j of b_t(j) + u_t(j) / c_{t-1}

stays below eps, all losses together are below one rounding error. A row that breaks
this bound stays pending, for a wider dtype or for log space; so does a row that is
impossible, where 0 / 0 is NaN.

A block of rows goes through time together, in units that share what is read of E. Steps
of a unit are ``[T, P]``, in vectors of V numbers:

    in lanes      one unit of V rows, each in a lane of its own; P = S V
    over states   up to four units, each a row; P is S up to whole vectors, w = 0 past S

The arithmetic is the same but for sums and maxima over states, which cross the lanes of
a vector over states, and for idle lanes: past the length of its row 1 / c of a lane is
0. With few states much of a vector over states is padding. With a row per lane, a
number of E is loaded once for V rows. Rows are sorted by length, so few lanes are idle.
The bits of a row do not depend on the rows beside it. Edges are summed over time after
both passes, tile by tile, with the sums in registers.

It stands beside ``chain.cpu.laws`` for its speed: vectors are of the dtype of the
potentials, rows share E, and no step takes a logarithm.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from smoothsp._kernels.chain.cpu.records import Chain, Marginals, longest_first
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import (
    arrays,
    double_double,
    lane_products,
    state_products,
)
from smoothsp._kernels.vectors.exponentials import exp_minus_max, transposed
from smoothsp._kernels.vectors.flush_to_zero import restore_fp_mode, set_flush_to_zero
from smoothsp._kernels.vectors.kahan import BLOCK
from smoothsp._kernels.vectors.lane_rows import (
    gather,
    scatter,
    scatter_whole,
    transpose_blocks,
)
from smoothsp._kernels.vectors.simd import (
    aligned_span,
    fma,
    get,
    load,
    maximum,
    part,
    put,
    select_lt,
    span,
    splat,
    splat_at,
    store,
)
from smoothsp._kernels.vectors.simd_exp import exp, exponent, mantissa
from smoothsp._kernels.vectors.simd_masked import (
    load_masked,
    reduce_max,
    reduce_sum,
    store_masked,
)
from smoothsp._kernels.vectors.state_products import ROWS_PER_PASS, Matrix

# What is found of a unit, a vector each: the sum of what was taken out, in three
# numbers; exponents and mantissas of the product of 1 / c; the reach.
TAKEN, EXPONENT, MANTISSA, REACH, FOUND = 0, 3, 4, 5, 6
# The relative error of a dtype, over its least normal number.
RANGE_32, RANGE_64 = (
    float(x.eps) / float(x.tiny) for x in map(np.finfo, (np.float32, np.float64))
)


class Scratch(NamedTuple):
    """What a block of rows needs, and the exponentials of what rows share: spans."""

    T: Any
    P: Any
    zeros: Any  # [V]
    move: Any  # [S, S] in lanes, [S, P] over states: E
    back: Any  # its transpose
    head: Any  # [P], start
    tail: Any  # [P], exponentials of end
    ends: Any  # [V], lengths of lanes
    weights: Any  # [units, T, P], e, then w, then u
    alphas: Any  # [units, T, P], a, then a / (c z)
    now: Any  # [units, P]
    inverses: Any  # [units, T, V], 1 / c
    nodes: Any  # [T, P] in lanes
    total: Any  # edges, or sums of them over many steps
    lost: Any  # what rounding took from these
    found: Any  # [units, FOUND, V]


@subroutine(optimise=False)
def sums_in_range(chain, zeros, log_z, marginals, in_lanes, over_states):
    """Fill log_z[B, 2] and the marginals; returns which rows[B] are pending.

    Those are not safe in this dtype.
    """
    B, T, S = chain.emissions.shape
    control = set_flush_to_zero()
    order = longest_first(chain.lengths, T)
    ceiling = (RANGE_32 if zeros.itemsize == 4 else RANGE_64) / (max(T, 1) * S * S)
    pending = arrays.empty(B, np.bool_)
    for b in range(B):
        pending[b] = True
    blocks = -(-B // len(zeros))
    if over_states is not None:
        blocks = -(-B // ROWS_PER_PASS)
    way = (in_lanes, over_states)
    forward_backward(
        0, blocks, chain, order, zeros, ceiling, pending, log_z, marginals, *way
    )
    restore_fp_mode(control)
    return pending


@kernel(optimise=False)
def forward_backward(
    first,
    last,
    chain,
    order,
    zeros,
    ceiling,
    pending,
    value,
    out,
    in_lanes,
    over_states,
):
    """Fill the rows of blocks ``first`` to ``last``; clear ``pending`` where safe.

    ``zeros`` has V entries of the dtype to compute in, ``order`` lists the wanted rows,
    a block of V or of four after the other, in a block the longest first; ceiling is
    ``eps / (S^2 T tiny)``. Outputs as in ``chain.cpu.laws.sums``. Of ``in_lanes`` and
    ``over_states`` one is a number and the other None: numba leaves out what is done
    only if that is not None.
    """
    chain, out = Chain(*chain), Marginals(*out)
    steps, lengths = chain.steps, chain.lengths
    nodes, edges, heads, tails = out
    T, S = chain.emissions.shape[1], chain.emissions.shape[2]
    V = len(zeros)
    size, unit = V, 1
    if over_states is not None:
        size, unit = ROWS_PER_PASS, FOUND * V
    way = (in_lanes, over_states)
    sizes = sizes_of_scratch(len(order), T, S, V, over_states)
    room = arrays.empty(sizes[7], zeros.dtype)
    row = arrays.empty(T * S, chain.emissions.dtype)
    kept = cut_scratch(room, T, zeros, sizes)
    top, last_top = take_exponentials(chain, kept, sizes[2], *way)
    for block in range(first, last):
        rows = order[block * size : (block + 1) * size]
        # spans do not keep the array: used here, it lasts until the last block
        kept = cut_scratch(room, T, zeros, sizes)
        forward(rows, chain, kept, row, *way)
        backward(rows, chain, kept, nodes, *way)
        for x in range(len(rows)):
            b, f = rows[x], x * unit
            own = lengths[b]
            if own == 0:
                pending[b] = False
                value[b, 0] = value[b, 1] = 0
            elif 16 * get(kept.found, f + REACH * V) <= ceiling * T * S:
                pending[b] = False
                taken, rest = double_double.add(
                    np.float64(get(kept.found, f)),
                    np.float64(get(kept.found, f + 2 * V)),
                    np.float64(get(kept.found, f + V)),
                )
                scale = math.log(np.float64(get(kept.found, f + MANTISSA * V)))
                scale += get(kept.found, f + EXPONENT * V) * math.log(2.0)
                value[b, 0], value[b, 1] = total_of(
                    taken, rest, own, top, last_top, -scale
                )
        _store(rows, steps, lengths, pending, kept, row, nodes, edges, *way)
        for x in range(len(rows)):
            b = rows[x]
            own = lengths[b]
            if own == 0:
                edges[b] = 0
                heads[b] = 0
                tails[b] = 0
                continue
            for s in range(S):
                heads[b, s] = nodes[b, steps[b, 0], s]
                tails[b, s] = nodes[b, steps[b, own - 1], s]


@subroutine(optimise=False)
def sizes_of_scratch(rows, T, S, V, over_states):
    """Units, P, how many numbers the parts of the scratch hold, and all together.

    Parts are whole vectors. In lanes a matrix is followed by room for a vector, and
    steps by room for a square of vectors.
    """
    alone = T <= BLOCK + 1
    units, P, matrix = 1, S * V, (-(-S * S // V) + 1) * V
    steps, total = T * P + V * V, S * P + V * V
    nodes, lost = steps, 0 if alone else S * P
    if over_states is not None:
        # products of three rows are those of four; whole fours of rows of a matrix
        units, P = rows if rows < 3 else ROWS_PER_PASS, -(-S // V) * V
        matrix, steps, nodes = -(-S // 4) * 4 * P, units * T * P, 0
        total = lost = 0 if alone else matrix
    each = units * (P + (T + FOUND) * V)
    # a vector more, to begin at a cache line
    every = 2 * (matrix + P + V + steps) + each + nodes + total + lost + 2 * V
    return units, P, matrix, steps, nodes, total, lost, every


@subroutine(optimise=False)
def cut_scratch(room, T, zeros, sizes):
    """Cut the parts out of one array, whole vectors each."""
    units, P, matrix, steps, nodes, total, lost, _ = sizes
    V = len(zeros)
    row, numbers = P + V, aligned_span(room)
    o = 2 * matrix + 2 * row + V
    p = o + units * (P + (T + FOUND) * V)
    q = p + 2 * steps
    return Scratch(
        T,
        P,
        zeros,
        part(numbers, 0, matrix),
        part(numbers, matrix, matrix),
        part(numbers, 2 * matrix, row),
        part(numbers, 2 * matrix + row, row),
        part(numbers, o - V, V),
        part(numbers, p, steps),
        part(numbers, p + steps, steps),
        part(numbers, o, units * P),
        part(numbers, o + units * P, units * T * V),
        part(numbers, q, nodes),
        part(numbers, q + nodes, total),
        part(numbers, q + nodes + total, lost),
        part(numbers, o + units * (P + T * V), units * FOUND * V),
    )


@subroutine(optimise=False)
def take_exponentials(chain, kept, matrix, in_lanes, over_states):
    """Fill E, its transpose, start and exponentials of end; return the largest scores.

    In lanes, each number of start and end fills a vector. Both matrices have ``matrix``
    numbers.
    """
    S, zeros, V = len(chain.end), kept.zeros, len(kept.zeros)
    zero, head, tail, P = splat(zeros[0]), kept.head, kept.tail, S
    if over_states is not None:
        P = kept.P
        for e in range(0, matrix, V):
            store(kept.move, e, zero)
            store(kept.back, e, zero)
        for j in range(0, P, V):
            store(head, j, load_masked(span(chain.start), j, S - j, zero))
    top = exp_minus_max(span(chain.transitions), 0, S * S, S, zeros, P, kept.move)
    last_top = exp_minus_max(span(chain.end), 0, S, S, zeros, P, tail)
    transposed(kept.move, S, P, kept.back)
    if in_lanes is not None:
        for s in range(S - 1, -1, -1):
            store(head, s * V, splat(zeros.dtype.type(chain.start[s])))
            store(tail, s * V, splat_at(tail, s))
    return top, last_top


@subroutine(optimise=False)
def total_of(peaks, rest, N, top, last_top, log_rest):
    """The log-partition of N steps as two numbers: what was taken out, and the rest."""
    total, rest = double_double.add(peaks, rest, last_top)
    if N > 1:
        # the product of N and half the digits of top is exact
        high = np.float64(np.float32(top))
        total, rest = double_double.add(total, rest, (N - 1) * high)
        total, rest = double_double.add(total, rest, (N - 1) * (top - high))
    total, rest = double_double.add(total, rest, log_rest)
    return double_double.normalise(total, rest)


@subroutine(forceinline=True)
def two_sum(a, b):
    """The sum of vectors, and what rounding took from it."""
    x = a + b
    part = x - a
    return x, (a - (x - part)) + (b - part)


@subroutine(forceinline=True)
def two_sum_or_none(a, b, least, zero):
    """As ``two_sum``; rounding took 0 from -inf."""
    x, lost = two_sum(a, b)
    return x, select_lt(least, x, lost, zero)


@subroutine(optimise=False)
def forward(rows, chain, kept, row, in_lanes, over_states):
    """Fill weights with w, alphas with a, and inverses with 1 / c, 0 in idle lanes.

    And find the sums of what was taken out of w. After that time is the outer loop: the
    product takes all units that reach a step.
    """
    T, S = chain.emissions.shape[1], chain.emissions.shape[2]
    steps, lengths = chain.steps, chain.lengths
    P, zeros, V = kept.P, kept.zeros, len(kept.zeros)
    given, head, found = span(chain.emissions), kept.head, kept.found
    weights, alphas, now, inverses = kept.weights, kept.alphas, kept.now, kept.inverses
    unit, least = zeros.dtype.type(1), splat(zeros.dtype.type(-np.inf))
    zero, one = splat(zeros[0]), splat(unit)
    units = len(rows)
    if in_lanes is not None:
        units = 1
        N = lengths[rows[0]]
        gather(chain.emissions, steps, lengths, rows, N, row, zeros, kept.weights)
        for x in range(V):
            end = lengths[rows[x]] if x < len(rows) else 0
            put(kept.ends, x, zeros.dtype.type(end))
    for u in range(units):
        own, o = lengths[rows[u]], u * T * P
        if over_states is not None:
            for n in range(own):
                e = (rows[u] * T + steps[rows[u], n]) * S
                for j in range(0, P, V):
                    x = load_masked(given, e + j, S - j, least)
                    store(weights, o + n * P + j, x)
        taken = more = most = zero
        if own > 0:
            # the largest is taken out before what rounding took is added
            taken = least
            for j in range(0, P, V):
                x = load(weights, o + j)
                x, lost = two_sum_or_none(x, load(head, j), least, zero)
                store(weights, o + j, x)
                store(now, u * P + j, lost)
                taken = maximum(x, taken)
            if over_states is not None:
                taken = splat(reduce_max(taken))
            for j in range(0, P, V):
                x = load(weights, o + j) - taken + load(now, u * P + j)
                store(weights, o + j, x)
                store(now, u * P + j, one)
        for o in range(u * T * P, (u * T + own) * P, P):
            peak = load(weights, o)
            for j in range(V, P, V):
                peak = maximum(load(weights, o + j), peak)
            if over_states is not None:
                peak = splat(reduce_max(peak))
            # in three numbers: a digit of a large sum may be one of a difference
            taken, lost = two_sum(taken, peak)
            more, lost = two_sum(more, lost)
            most = most + lost
            for j in range(0, P, V):
                store(weights, o + j, exp(load(weights, o + j) - peak))
        f = u * FOUND * V
        store(found, f + TAKEN * V, taken)
        store(found, f + (TAKEN + 1) * V, more)
        store(found, f + (TAKEN + 2) * V, most)
        store(found, f + REACH * V, zero)
    ends = load(kept.ends, 0)
    for n in range(lengths[rows[0]]):
        if over_states is not None:
            while lengths[rows[units - 1]] <= n:
                units -= 1
        if n > 0 and over_states is not None:
            move = Matrix(kept.move, S, P, V, zero)
            state_products.products(alphas, (n - 1) * P, T * P, units, move, now)
        if n > 0 and in_lanes is not None:
            lane_products.product(alphas, (n - 1) * P, kept.move, S, now, 0, zero, V)
        for u in range(units):
            i = u * T + n
            inverse = load(inverses, (i - 1) * V) if n > 0 else one
            c = zero
            for j in range(0, P, V):
                a = load(now, u * P + j) * inverse * load(weights, i * P + j)
                store(alphas, i * P + j, a)
                c = c + a
            if over_states is not None:
                store(inverses, i * V, splat(unit / reduce_sum(c)))
            if in_lanes is not None:
                # without this, numbers of an idle lane would leave the range
                here = splat(zeros.dtype.type(n))
                store(inverses, i * V, select_lt(here, ends, one / c, zero))


@subroutine(optimise=False)
def backward(rows, chain, kept, nodes, in_lanes, over_states):
    """Fill nodes, weights with u and alphas with ``a / (c z)``; find the reach.

    From the last step of the longest row.
    """
    S, lengths, steps = chain.emissions.shape[2], chain.lengths, chain.steps
    T, P, zeros, V = kept.T, kept.P, kept.zeros, len(kept.zeros)
    unit = zeros.dtype.type(1)
    zero, one = splat(zeros[0]), splat(unit)
    weights, alphas = kept.weights, kept.alphas
    now, inverses = kept.now, kept.inverses
    found, block, tail, out = kept.found, kept.nodes, kept.tail, span(nodes)
    ends = load(kept.ends, 0)
    if over_states is not None:
        for b in rows:
            if lengths[b] < T:
                nodes[b] = 0
    begun = units = np.int64(0)
    for n in range(lengths[rows[0]] - 1, -1, -1):
        if begun > 0 and over_states is not None:
            back = Matrix(kept.back, S, P, V, zero)
            state_products.products(weights, (n + 1) * P, T * P, begun, back, now)
        if begun > 0 and in_lanes is not None:
            lane_products.product(weights, (n + 1) * P, kept.back, S, now, 0, zero, V)
        here, after = splat(zeros.dtype.type(n)), splat(zeros.dtype.type(n + 1))
        fresh = begun
        while begun < len(rows) and lengths[rows[begun]] > n:
            begun += 1
        units = begun
        if in_lanes is not None:
            units = np.int64(1)
            fresh = np.int64(fresh == begun)
        for u in range(fresh, units):
            # rows begin where they end, with the end scores
            i = u * T + n
            z = zero
            for j in range(0, P, V):
                b = load(tail, j)
                if in_lanes is not None:
                    b = select_lt(after, ends, load(now, j), b)
                store(now, u * P + j, b)
                z = fma(load(alphas, i * P + j), b, z)
            if over_states is not None:
                store(inverses, i * V, splat(unit / reduce_sum(z)))
            if in_lanes is not None:
                inverse = select_lt(after, ends, load(inverses, i * V), one / z)
                store(inverses, i * V, select_lt(here, ends, inverse, zero))
        for u in range(units):
            i = u * T + n
            o, f = i * P, (u * FOUND + REACH) * V
            inverse = load(inverses, i * V)
            before = load(inverses, (i - 1) * V) if n > 0 else zero
            reach = z = zero
            for j in range(0, P, V):
                b = load(now, u * P + j) * inverse
                pull = load(weights, o + j) * b
                store(now, u * P + j, b)
                store(weights, o + j, pull)
                z = fma(load(alphas, o + j), b, z)
                reach = fma(pull, before, reach) + b
            store(found, f, load(found, f) + reach)
            share = zero
            if over_states is not None:
                share = splat(unit / reduce_sum(z))
            if in_lanes is not None:
                share = select_lt(here, ends, one / z, zero)
            e = (rows[u] * T + steps[rows[u], n]) * S
            for j in range(0, P, V):
                a = load(alphas, o + j) * share
                node = a * load(now, u * P + j)
                if over_states is not None:
                    store_masked(out, e + j, S - j, node)
                if in_lanes is not None:
                    store(block, o + j, node)
                store(alphas, o + j, a * inverse)
    units = len(rows)
    if in_lanes is not None:
        units = 1
    for u in range(units):
        # the product of all 1 / c as exponents and mantissas: so it stays in range
        exponents, mantissas = zero, one
        for n in range(lengths[rows[u]]):
            inverse = load(inverses, (u * T + n) * V)
            if in_lanes is not None:
                inverse = select_lt(zero, inverse, inverse, one)
            mantissas = mantissas * inverse
            exponents = exponents + exponent(mantissas)
            mantissas = mantissa(mantissas)
        f = u * FOUND * V
        store(found, f + EXPONENT * V, exponents)
        store(found, f + MANTISSA * V, mantissas)
        if over_states is not None:
            put(found, f + REACH * V, reduce_sum(load(found, f + REACH * V)))


@subroutine(optimise=False)
def _store(
    rows, steps, lengths, pending, kept, row, nodes, edges, in_lanes, over_states
):
    """Fill the edges of rows that are not pending, and their nodes from lanes.

    ``E(i, j) sum_t a_{t-1}(i) u_t(j)`` in a pass of its own: a tile of sums stays in
    registers over many steps.
    """
    S, T, P, zeros = nodes.shape[2], kept.T, kept.P, kept.zeros
    V, zero = len(zeros), splat(zeros[0])
    shares, pulls = kept.alphas, kept.weights
    total, lost = kept.total, kept.lost
    if over_states is not None:
        move = Matrix(kept.move, S, P, V, zero)
        for u in range(len(rows)):
            b = rows[u]
            if pending[b]:
                continue
            if lengths[b] < 2:
                edges[b] = 0
                continue
            state_products.outer_sums(
                shares, pulls, u * T * P, lengths[b], move, (total, lost),
                span(edges), b * S * S,
            )  # fmt: skip
    if in_lanes is not None:
        N, move = lengths[rows[0]], kept.move
        lane_products.outer_sums(shares, pulls, N, S, zero, V, move, total, lost)
        transpose_blocks(N * S, zeros, kept.nodes)
        transpose_blocks(S * S, zeros, kept.total)
        scatter(steps, lengths, rows, pending, row, zeros, kept.nodes, nodes)
        scatter_whole(S * S, rows, pending, zeros, kept.total, edges)
