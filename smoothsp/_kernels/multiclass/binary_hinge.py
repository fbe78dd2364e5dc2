"""Dual coordinate descent for the binary SVM, and its duality gap.

    min 1/2 |w|^2 + sum_i c_i max(0, 1 - s_i w'x_i),    s_i = 1 or -1

with ``w = sum_i s_i a_i x_i`` and ``0 <= a_i <= c_i``. X is in CSR.

Source: Hsieh et al., "A Dual Coordinate Descent Method for Large-scale Linear SVM",
algorithm 1.
"""

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.multiclass.shrinking import note_move
from smoothsp._kernels.vectors.prefetching import prefetch_row
from smoothsp._kernels.vectors.simd import get, put, span


@subroutine(forceinline=True)
def _product(low, high, columns, values, w, zero):
    """``w'x``, in four sums that do not depend on each other."""
    a = b = c = d = zero
    e = low
    while e + 4 <= high:
        a += get(w, get(columns, e)) * get(values, e)
        b += get(w, get(columns, e + 1)) * get(values, e + 1)
        c += get(w, get(columns, e + 2)) * get(values, e + 2)
        d += get(w, get(columns, e + 3)) * get(values, e + 3)
        e += 4
    while e < high:
        a += get(w, get(columns, e)) * get(values, e)
        e += 1
    return (a + b) + (c + d)


@kernel
def descend(
    first,
    last,
    order,
    indptr,
    indices,
    data,
    squares,
    signs,
    bounds,
    still,
    patience,
    weights,
    coefficients,
    waits,
    calm,
    met,
):
    """Solve for the coefficients ``order[first:last]``, one after the other.

    One that would move by at most ``still`` times what it may be, its bound or 1 / q,
    is left alone; ``waits`` and ``calm`` as in ``shrinking``. The gaps that the samples
    had are added to ``met[0]``, and to ``met[1]`` how many moved.
    """
    w, columns, values = span(weights), span(indices), span(data)
    zero = weights[0] * 0
    for k in range(first, last):
        prefetch_row(k, last, order, waits, indptr, columns, values)
        i = order[k]
        if waits[i] > 0:
            waits[i] -= 1
            continue
        low, high = indptr[i], indptr[i + 1]
        s = signs[i]
        inverse = 1 / squares[i]
        violation = 1 - s * _product(low, high, columns, values, w, zero)
        old = coefficients[i]
        new = min(max(old + violation * inverse, zero), bounds[i])
        change = new - old
        unmoved = abs(change) <= still * min(bounds[i], inverse)
        if not unmoved:
            coefficients[i] = new
            change *= s
            for e in range(low, high):
                j = get(columns, e)
                put(w, j, get(w, j) + change * get(values, e))
        note_move(i, unmoved, patience, waits, calm)
        above, below = max(violation, zero), max(-violation, zero)
        met[0] += (bounds[i] - old) * above + old * below
        met[1] += not unmoved


@kernel
def gaps(
    first,
    last,
    indptr,
    indices,
    data,
    signs,
    bounds,
    weights,
    coefficients,
    loss,
    linear,
    gap,
):
    """Fill loss, linear part of the dual and duality gap of each sample."""
    w, columns, values = span(weights), span(indices), span(data)
    zero = weights[0] * 0
    for i in range(first, last):
        product = _product(indptr[i], indptr[i + 1], columns, values, w, zero)
        m = 1 - signs[i] * product
        a, above, below = coefficients[i], max(m, zero), max(-m, zero)
        loss[i], linear[i] = bounds[i] * above, a
        gap[i] = (bounds[i] - a) * above + a * below


@kernel
def rebuild(first, last, indptr, indices, data, signs, coefficients, weights):
    """Fill the weights with the sum of ``s_i a_i x_i`` over rows first to last."""
    weights[:] = 0
    w, columns, values = span(weights), span(indices), span(data)
    for i in range(first, last):
        a = signs[i] * coefficients[i]
        if a == 0:
            continue
        for e in range(indptr[i], indptr[i + 1]):
            j = get(columns, e)
            put(w, j, get(w, j) + a * get(values, e))
