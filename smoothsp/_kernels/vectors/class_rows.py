"""Scores of a sparse sample for all classes, and rank-one updates of the weights.

Weights are ``[features, P]``, flat: each row of a feature has K classes, then zeros up
to whole vectors of V lanes, so the inner loops read contiguous memory. A sample x has
the entries ``low`` to ``high`` of ``indices`` and ``data``.
"""

from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.simd import (
    fma,
    get_number,
    load,
    select_lt,
    splat,
    splat_at,
    store,
)


@subroutine(forceinline=True)
def fill_class_scores(low, high, indices, data, weights, P, V, zero, z):
    """Fill the class scores ``z(j) = sum_f x(f) weights(f, j)``, j below P."""
    j = 0
    # eight accumulators hide the latency of fma
    while j + 8 * V <= P:
        a = b = c = d = zero
        s = t = u = v = zero
        for e in range(low, high):
            o = get_number(indices, e) * P + j
            x = splat_at(data, e)
            a = fma(x, load(weights, o), a)
            b = fma(x, load(weights, o + V), b)
            c = fma(x, load(weights, o + 2 * V), c)
            d = fma(x, load(weights, o + 3 * V), d)
            s = fma(x, load(weights, o + 4 * V), s)
            t = fma(x, load(weights, o + 5 * V), t)
            u = fma(x, load(weights, o + 6 * V), u)
            v = fma(x, load(weights, o + 7 * V), v)
        _store_four(z, j, V, a, b, c, d)
        _store_four(z, j + 4 * V, V, s, t, u, v)
        j += 8 * V
    # two partial sums, over even and odd features: independent fma chains overlap
    while j + 2 * V <= P:
        a = b = c = d = zero
        e = low
        while e + 2 <= high:
            o = get_number(indices, e) * P + j
            x = splat_at(data, e)
            a = fma(x, load(weights, o), a)
            b = fma(x, load(weights, o + V), b)
            o = get_number(indices, e + 1) * P + j
            x = splat_at(data, e + 1)
            c = fma(x, load(weights, o), c)
            d = fma(x, load(weights, o + V), d)
            e += 2
        if e < high:
            o = get_number(indices, e) * P + j
            x = splat_at(data, e)
            a = fma(x, load(weights, o), a)
            b = fma(x, load(weights, o + V), b)
        store(z, j, a + c)
        store(z, j + V, b + d)
        j += 2 * V
    # the last vector alone: four partial sums over features
    if j < P:
        a = b = c = d = zero
        e = low
        while e + 4 <= high:
            o, p = get_number(indices, e) * P + j, get_number(indices, e + 1) * P + j
            a = fma(splat_at(data, e), load(weights, o), a)
            b = fma(splat_at(data, e + 1), load(weights, p), b)
            o, p = (
                get_number(indices, e + 2) * P + j,
                get_number(indices, e + 3) * P + j,
            )
            c = fma(splat_at(data, e + 2), load(weights, o), c)
            d = fma(splat_at(data, e + 3), load(weights, p), d)
            e += 4
        while e < high:
            a = fma(splat_at(data, e), load(weights, get_number(indices, e) * P + j), a)
            e += 1
        store(z, j, (a + b) + (c + d))


@subroutine(forceinline=True)
def _store_four(z, j, V, a, b, c, d):
    """Store four consecutive vectors at offset j."""
    store(z, j, a)
    store(z, j + V, b)
    store(z, j + 2 * V, c)
    store(z, j + 3 * V, d)


@subroutine(forceinline=True)
def add_outer_product(
    low, high, indices, data, step, vector_offsets, num_vectors, P, weights
):
    """Add ``x(f) step(j)`` to ``weights(f, j)``, the outer product of x and step.

    Only the vectors at ``vector_offsets[:num_vectors]`` of step are not zero.
    """
    # few classes change in a step: one or two vectors of it stay in registers
    if num_vectors == 1:
        j = get_number(vector_offsets, 0)
        a = load(step, j)
        for e in range(low, high):
            o = get_number(indices, e) * P + j
            store(weights, o, fma(splat_at(data, e), a, load(weights, o)))
    elif num_vectors == 2:
        i, j = get_number(vector_offsets, 0), get_number(vector_offsets, 1)
        a, b = load(step, i), load(step, j)
        for e in range(low, high):
            o = get_number(indices, e) * P
            x = splat_at(data, e)
            store(weights, o + i, fma(x, a, load(weights, o + i)))
            store(weights, o + j, fma(x, b, load(weights, o + j)))
    elif num_vectors > 2:
        for e in range(low, high):
            o = get_number(indices, e) * P
            x = splat_at(data, e)
            for t in range(num_vectors):
                j = get_number(vector_offsets, t)
                store(weights, o + j, fma(x, load(step, j), load(weights, o + j)))


@subroutine
def make_one_hot(P, zeros):
    """Return ``[2 P]`` numbers, 1 at P, else 0: the P from P - y on encode class y.

    Windows of it select a class in registers. Writing one number to memory and reading
    a vector around it would stall on store forwarding.
    """
    one_hot = arrays.zeros(2 * P, zeros.dtype)
    one_hot[P] = 1
    return one_hot


@subroutine(forceinline=True)
def set_class_entry(row, y, x, one_hot, P, zeros):
    """Set ``row[y] = x`` by a vector store, as vectors of the row are read next."""
    V = len(zeros)
    j = y // V * V
    is_class_y = load(one_hot, P - y + j)
    store(row, j, select_lt(splat(zeros[0]), is_class_y, splat(x), load(row, j)))
