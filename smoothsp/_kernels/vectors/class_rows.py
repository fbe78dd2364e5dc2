"""Products of a sparse row with weights of many classes, and its multiples added.

Weights are ``[features, P]``, flat: the P numbers of a feature are those of the K
classes and zeros up to whole vectors of V. Both loops run over contiguous numbers. A
row is the entries ``low`` to ``high`` of ``indices`` and ``data``.
"""

from numba import njit

from smoothsp._kernels.vectors.simd import fma, get, load, splat_at, store


@njit(error_model="numpy", forceinline=True, no_cpython_wrapper=True)
def scores(low, high, indices, data, weights, P, V, zero, z):
    """``z(j) = sum_f x(f) weights(f, j)``."""
    j = 0
    while j + 8 * V <= P:
        a = b = c = d = zero
        s = t = u = v = zero
        for e in range(low, high):
            o = get(indices, e) * P + j
            x = splat_at(data, e)
            a = fma(x, load(weights, o), a)
            b = fma(x, load(weights, o + V), b)
            c = fma(x, load(weights, o + 2 * V), c)
            d = fma(x, load(weights, o + 3 * V), d)
            s = fma(x, load(weights, o + 4 * V), s)
            t = fma(x, load(weights, o + 5 * V), t)
            u = fma(x, load(weights, o + 6 * V), u)
            v = fma(x, load(weights, o + 7 * V), v)
        _put(z, j, V, a, b, c, d)
        _put(z, j + 4 * V, V, s, t, u, v)
        j += 8 * V
    while j + 2 * V <= P:
        a = b = zero
        for e in range(low, high):
            o = get(indices, e) * P + j
            x = splat_at(data, e)
            a = fma(x, load(weights, o), a)
            b = fma(x, load(weights, o + V), b)
        store(z, j, a)
        store(z, j + V, b)
        j += 2 * V
    if j < P:
        a = zero
        for e in range(low, high):
            a = fma(splat_at(data, e), load(weights, get(indices, e) * P + j), a)
        store(z, j, a)


@njit(error_model="numpy", forceinline=True, no_cpython_wrapper=True)
def _put(z, j, V, a, b, c, d):
    store(z, j, a)
    store(z, j + V, b)
    store(z, j + 2 * V, c)
    store(z, j + 3 * V, d)


@njit(error_model="numpy", forceinline=True, no_cpython_wrapper=True)
def add_multiples(low, high, indices, data, step, places, count, P, weights):
    """``weights(f, j) += x(f) step(j)`` for the vectors of j at ``places[:count]``."""
    for e in range(low, high):
        o = get(indices, e) * P
        x = splat_at(data, e)
        for t in range(count):
            j = get(places, t)
            store(weights, o + j, fma(x, load(step, j), load(weights, o + j)))
