"""Updated Cholesky factors for the quadratic programme of ``sparsemap_qp``.

Columns of A are indicator vectors of outputs, and ``G = A'A + 1 1'``. The weights of k
outputs solve ``G p = s - t 1``, ``1'p = 1``. The stored quantities are U with
``G = U'U``, ``U'^-1 s`` and ``U'^-1 1``. Adding or removing an output updates them in
O(k^2).

A factor for at most C outputs is a tuple of spans (upper, lower, inverse, scores, ones,
width): U by rows and U' by rows, both of row length ``width``, the reciprocal diagonal,
and the two solutions. Vectors may reach beyond the filled entries, by less than one
vector, where entries are not used. Therefore ``width`` is ``row_width(C)``, and ``x``
has this length, too.

Source: Golub and Van Loan, "Matrix Computations" (2013), section 6.5.
"""

import numpy as np

from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors.simd import get_number, load, put_number, splat, store

# A column is linearly dependent if its squared residual is below this fraction of its
# squared norm.
DEPENDENT = 1e-12


LANES = 8


@subroutine
def row_width(C):
    """Length of a row of C numbers plus a vector that begins at the last one."""
    return C + LANES


@subroutine
def add_column(factor, k, weights, column, squared_norm, score, scratch):
    """Add an output to k; return their new number, and a removed one's position or -1.

    ``column`` are its inner products in G with the k outputs, ``squared_norm`` that
    with itself, ``weights`` their weights. If it is an affine combination of them,
    weight moves from them to it until one of them has none, which is then removed.
    """
    upper, lower, inverse, _, _, width = factor
    _copy_to_span(column, k, scratch)
    squared_projection = _forward_substitution(upper, width, inverse, k, scratch)
    out = -1
    if squared_norm - squared_projection <= DEPENDENT * squared_norm:
        _back_substitution(lower, width, inverse, k, scratch)
        out = 0
        for a in range(k):
            x_a, x_out = get_number(scratch, a), get_number(scratch, out)
            if x_a > 0 and (x_out <= 0 or weights[a] * x_out < weights[out] * x_a):
                out = a
        step = weights[out] / get_number(scratch, out)
        for a in range(k):
            weights[a] = max(weights[a] - step * get_number(scratch, a), 0.0)
        remove_column(factor, k, out)
        k -= 1
        for a in range(out, k):
            weights[a], column[a] = weights[a + 1], column[a + 1]
        weights[k] = step
        _copy_to_span(column, k, scratch)
        squared_projection = _forward_substitution(upper, width, inverse, k, scratch)
    else:
        weights[k] = 0.0
    _append_column(
        factor, k, scratch, max(squared_norm - squared_projection, 1e-300), score
    )
    return k + 1, out


@subroutine
def _copy_to_span(source, k, span):
    """Copy the first k entries of ``source`` to a span."""
    for a in range(k):
        put_number(span, a, source[a])


@subroutine
def _append_column(factor, k, x, squared_residual, score):
    """Append column k to U, whose entries above the diagonal are ``x``.

    The new entries of both solutions follow by one step of forward substitution.
    """
    upper, lower, inverse, scores, ones, width = factor
    length = np.sqrt(squared_residual)
    ones_value = 1.0
    for a in range(k):
        value = get_number(x, a)
        put_number(upper, a * width + k, value)
        put_number(lower, k * width + a, value)
        score -= value * get_number(scores, a)
        ones_value -= value * get_number(ones, a)
    # vectors of this row read beyond its end
    store(lower, k * width + k, splat(0.0))
    put_number(inverse, k, 1 / length)
    put_number(scores, k, score / length)
    put_number(ones, k, ones_value / length)


@subroutine
def remove_column(factor, k, out):
    """Remove output ``out`` of k: Givens rotations make U triangular again."""
    upper, lower, inverse, scores, ones, width = factor
    for a in range(k - 1):
        o = a * width
        for b in range(max(a, out) + 1, k):
            put_number(upper, o + b - 1, get_number(upper, o + b))
    for a in range(out, k - 1):
        first, second = a * width, (a + 1) * width
        # the diagonal entry of the row below is now one to the left
        diagonal, subdiagonal = (
            get_number(upper, first + a),
            1 / get_number(inverse, a + 1),
        )
        length = np.sqrt(diagonal * diagonal + subdiagonal * subdiagonal)
        cos, sin = diagonal / length, subdiagonal / length
        put_number(inverse, a, 1 / length)
        c, s = splat(cos), splat(sin)
        for b in range(a + 1, k - 1, LANES):
            x, y = load(upper, first + b), load(upper, second + b)
            store(upper, first + b, c * x + s * y)
            store(upper, second + b, c * y - s * x)
        for solution in (scores, ones):
            p, q = get_number(solution, a), get_number(solution, a + 1)
            put_number(solution, a, cos * p + sin * q)
            put_number(solution, a + 1, cos * q - sin * p)
    # only columns from ``out`` on have changed
    for b in range(out, k - 1):
        for a in range(b):
            put_number(lower, b * width + a, get_number(upper, a * width + b))


@subroutine
def solve_equality(factor, k, x):
    """Fill x[:k] with the optimal weights of sum 1, of any sign.

    They are ``U^-1 (c - t o)``, with the stored ``c = U'^-1 s`` and ``o = U'^-1 1``.
    Their sum is ``<o, c - t o>``, which gives t. One triangular system is solved.
    """
    _, lower, inverse, scores, ones, width = factor
    square = mass = 0.0
    for a in range(k):
        square += get_number(ones, a) * get_number(ones, a)
        mass += get_number(ones, a) * get_number(scores, a)
    t = (mass - 1) / square
    for a in range(k):
        put_number(x, a, get_number(scores, a) - t * get_number(ones, a))
    _back_substitution(lower, width, inverse, k, x)


@subroutine
def refine(factor, k, residual, x):
    """Fill x[:k] with the correction of sum 0 for the residual of ``s - t 1 - G p``.

    Iterative refinement; ``residual`` is ``s - G p``, and its constant part is ignored.
    """
    upper, lower, inverse, _, ones, width = factor
    _copy_to_span(residual, k, x)
    _forward_substitution(upper, width, inverse, k, x)
    square = mass = 0.0
    for a in range(k):
        square += get_number(ones, a) * get_number(ones, a)
        mass += get_number(ones, a) * get_number(x, a)
    for a in range(k):
        put_number(x, a, get_number(x, a) - mass / square * get_number(ones, a))
    _back_substitution(lower, width, inverse, k, x)


@subroutine
def step_to_boundary(k, weights, goal_weights):
    """Move the weights towards their goal until one reaches 0.

    Return the position of that output, or -1 if the goal is reached.
    """
    step_size, out = 1.0, -1
    for a in range(k):
        target = get_number(goal_weights, a)
        if target <= 0 and weights[a] < step_size * (weights[a] - target):
            step_size, out = weights[a] / (weights[a] - target), a
        elif target <= 0 and out < 0:
            out = a
    if out < 0:
        for a in range(k):
            weights[a] = get_number(goal_weights, a)
        return -1
    for a in range(k):
        weights[a] = max(
            weights[a] + step_size * (get_number(goal_weights, a) - weights[a]), 0.0
        )
    return out


@subroutine
def _forward_substitution(upper, width, inverse, k, x):
    """Solve ``U' x = b`` in place of b; return the squared norm of the solution."""
    length = 0.0
    for a in range(k):
        o, value = a * width, get_number(x, a) * get_number(inverse, a)
        put_number(x, a, value)
        length += value * value
        v = splat(value)
        for b in range(a + 1, k, LANES):
            store(x, b, load(x, b) - v * load(upper, o + b))
    return length


@subroutine
def _back_substitution(lower, width, inverse, k, x):
    """Solve ``U x = b`` in place of b."""
    for a in range(k - 1, -1, -1):
        o, value = a * width, get_number(x, a) * get_number(inverse, a)
        put_number(x, a, value)
        v = splat(value)
        # entries of the row beyond a are zero
        for b in range(0, a, LANES):
            store(x, b, load(x, b) - v * load(lower, o + b))
