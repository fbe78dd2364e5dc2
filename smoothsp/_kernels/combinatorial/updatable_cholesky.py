"""The best weights of few outputs, as outputs come and go: ``sparsemap_qp``, kept up.

Columns y of A are what outputs use, and ``G = A'A + 1 1'``. The weights of k of them
solve ``G p = s - t 1``, ``1'p = 1``; kept are ``G = U'U``, ``U'^-1 s`` and ``U'^-1 1``,
which an output more or less changes in O(k^2). A face of at most C outputs is spans
(upper, lower, inverse, scores, ones, width): U by rows and U' by rows, ``width`` apart,
one over its diagonal, and the two solutions. Vectors may go beyond what is filled, by
less than one vector, where nothing is read: ``width`` is ``row_of(C)``, and ``x``, too,
has so much room.
"""

import numpy as np

from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors.simd import get, load, put, splat, store

# Below this share of its own length, the residual of a column is rounding.
DEPENDENT = 1e-12


LANES = 8


@subroutine
def row_width(C):
    """Room for C numbers, and for the vector that begins at the last."""
    return C + LANES


@subroutine
def add_column(factor, k, p, column, squared_norm, score, x):
    """Add an output as the k + 1st. Returns how many there are, and who left.

    ``column`` is its row of G with the k that are there, ``whole`` that with itself,
    ``p`` their weights. If it is a mixture of others, weight moves from them to it
    until one of them has none: that one is removed, and its place returned; else -1.
    """
    upper, lower, inverse, _, _, width = factor
    _copy_to_span(column, k, x)
    squared_projection = _forward_substitution(upper, width, inverse, k, x)
    out = -1
    if squared_norm - squared_projection <= DEPENDENT * squared_norm:
        _back_substitution(lower, width, inverse, k, x)
        out = 0
        for a in range(k):
            x_a, x_out = get(x, a), get(x, out)
            if x_a > 0 and (x_out <= 0 or p[a] * x_out < p[out] * x_a):
                out = a
        step = p[out] / get(x, out)
        for a in range(k):
            p[a] = max(p[a] - step * get(x, a), 0.0)
        remove_column(factor, k, out)
        k -= 1
        for a in range(out, k):
            p[a], column[a] = p[a + 1], column[a + 1]
        p[k] = step
        _copy_to_span(column, k, x)
        squared_projection = _forward_substitution(upper, width, inverse, k, x)
    else:
        p[k] = 0.0
    _append_column(factor, k, x, max(squared_norm - squared_projection, 1e-300), score)
    return k + 1, out


@subroutine
def _copy_to_span(column, k, x):
    for a in range(k):
        put(x, a, column[a])


@subroutine
def _append_column(factor, k, x, squared_residual, score):
    upper, lower, inverse, scores, ones, width = factor
    length = np.sqrt(squared_residual)
    ones_value = 1.0
    for a in range(k):
        value = get(x, a)
        put(upper, a * width + k, value)
        put(lower, k * width + a, value)
        score -= value * get(scores, a)
        ones_value -= value * get(ones, a)
    # what vectors of the row read beyond its end
    store(lower, k * width + k, splat(0.0))
    put(inverse, k, 1 / length)
    put(scores, k, score / length)
    put(ones, k, ones_value / length)


@subroutine
def remove_column(factor, k, out):
    """Remove the output in place ``out`` of k: rotations make U triangular again."""
    upper, lower, inverse, scores, ones, width = factor
    for a in range(k - 1):
        o = a * width
        for b in range(max(a, out) + 1, k):
            put(upper, o + b - 1, get(upper, o + b))
    for a in range(out, k - 1):
        first, second = a * width, (a + 1) * width
        # the diagonal entry of the row below is now one to the left
        diagonal, subdiagonal = get(upper, first + a), 1 / get(inverse, a + 1)
        length = np.sqrt(diagonal * diagonal + subdiagonal * subdiagonal)
        cos, sin = diagonal / length, subdiagonal / length
        put(inverse, a, 1 / length)
        c, s = splat(cos), splat(sin)
        for b in range(a + 1, k - 1, LANES):
            x, y = load(upper, first + b), load(upper, second + b)
            store(upper, first + b, c * x + s * y)
            store(upper, second + b, c * y - s * x)
        for solution in (scores, ones):
            p, q = get(solution, a), get(solution, a + 1)
            put(solution, a, cos * p + sin * q)
            put(solution, a + 1, cos * q - sin * p)
    for b in range(out, k - 1):
        for a in range(b):
            put(lower, b * width + a, get(upper, a * width + b))


@subroutine
def solve_equality(factor, k, x):
    """Fill x[:k] with the best weights of sum 1, whatever their signs.

    They are ``U^-1 (c - t o)``, with the stored ``c = U'^-1 s`` and ``o = U'^-1 1``.
    Their sum is ``<o, c - t o>``, which gives t. One triangular system is solved.
    """
    _, lower, inverse, scores, ones, width = factor
    square = mass = 0.0
    for a in range(k):
        square += get(ones, a) * get(ones, a)
        mass += get(ones, a) * get(scores, a)
    t = (mass - 1) / square
    for a in range(k):
        put(x, a, get(scores, a) - t * get(ones, a))
    _back_substitution(lower, width, inverse, k, x)


@subroutine
def refine(factor, k, residual, x):
    """Fill x[:k] with the change, of sum 0, that takes ``rest[:k]`` away.

    But for what is the same for all: ``rest`` is what is left of ``s - G p``.
    """
    upper, lower, inverse, _, ones, width = factor
    _copy_to_span(residual, k, x)
    _forward_substitution(upper, width, inverse, k, x)
    square = mass = 0.0
    for a in range(k):
        square += get(ones, a) * get(ones, a)
        mass += get(ones, a) * get(x, a)
    for a in range(k):
        put(x, a, get(x, a) - mass / square * get(ones, a))
    _back_substitution(lower, width, inverse, k, x)


@subroutine
def step_to_boundary(k, p, x):
    """Move p towards x until a weight is 0.

    Returns the place of that output, or -1 if x is reached.
    """
    step_size, out = 1.0, -1
    for a in range(k):
        target = get(x, a)
        if target <= 0 and p[a] < step_size * (p[a] - target):
            step_size, out = p[a] / (p[a] - target), a
        elif target <= 0 and out < 0:
            out = a
    if out < 0:
        for a in range(k):
            p[a] = get(x, a)
        return -1
    for a in range(k):
        p[a] = max(p[a] + step_size * (get(x, a) - p[a]), 0.0)
    return out


@subroutine
def _forward_substitution(upper, width, inverse, k, x):
    """Solve ``U' x = x`` in place; the squared length of the solution."""
    length = 0.0
    for a in range(k):
        o, value = a * width, get(x, a) * get(inverse, a)
        put(x, a, value)
        length += value * value
        v = splat(value)
        for b in range(a + 1, k, LANES):
            store(x, b, load(x, b) - v * load(upper, o + b))
    return length


@subroutine
def _back_substitution(lower, width, inverse, k, x):
    """Solve ``U x = x`` in place."""
    for a in range(k - 1, -1, -1):
        o, value = a * width, get(x, a) * get(inverse, a)
        put(x, a, value)
        v = splat(value)
        # beyond the row there are zeros
        for b in range(0, a, LANES):
            store(x, b, load(x, b) - v * load(lower, o + b))
