"""Active-set QP of SparseMAP: maximise ``<s, p> - 1/2 |A p|^2`` over the simplex.

Column y of A is the indicator vector of output y. Outputs with weight are affinely
independent, so that the maximum over them solves a linear system. With
``G = A'A + 1 1'``, which has the same maximiser since ``1'p = 1``, it is

    G p = s - t 1,    1'p = 1

Each row has C slots for outputs.

Source: Niculae, Martins, Blondel and Cardie, "SparseMAP: Differentiable Sparse
Structured Inference" (2018), appendix; Nocedal and Wright, "Numerical Optimization"
(2006), section 16.5.
"""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import copy

# A column is linearly dependent if its squared residual is below this fraction of its
# squared norm.
_DEPENDENT = 1e-12


@kernel
def add_output(first, last, products, scores, new_slots, weights, is_active):
    """Add the output in slot ``new_slots[i]`` to row i, and solve for its weights.

    -1 solves again for new scores, -2 skips the row. ``products`` is A'A, ``[B, C,
    C]``. ``weights`` and ``is_active`` are updated in place; slots of weight 0 become
    free.
    """
    C = scores.shape[1]
    support_index, p = arrays.empty(C, np.int64), arrays.empty(C)
    factor, x, ones = arrays.empty((C, C)), arrays.empty(C), arrays.empty(C)
    for i in range(first, last):
        c = new_slots[i]
        if c < -1:
            continue
        k = _list_support(is_active[i], weights[i], support_index, p)
        if k == 0:
            is_active[i, c], weights[i, c] = True, 1.0
            continue
        _cholesky(products[i], support_index, k, factor)
        if c >= 0:
            k = _add_or_exchange_output(products[i], support_index, k, p, factor, x, c)
        k = _maximise_over_support(
            products[i], scores[i], support_index, k, p, factor, x, ones
        )
        for a in range(C):
            is_active[i, a], weights[i, a] = False, 0.0
        for a in range(k):
            is_active[i, support_index[a]], weights[i, support_index[a]] = True, p[a]


@kernel
def _add_or_exchange_output(
    products, support_index, size, weights, factor, scratch, candidate
):
    """Add an output to the Cholesky factor of ``size`` outputs; return the new size.

    If ``candidate`` is an affine combination of them, it replaces one of them.
    """
    for a in range(size):
        scratch[a] = products[support_index[a], candidate] + 1
    squared_projection = _forward_substitution(factor, size, scratch)
    squared_norm = products[candidate, candidate] + 1
    if squared_norm - squared_projection > _DEPENDENT * squared_norm:
        for a in range(size):
            factor[size, a] = scratch[a]
        factor[size, size] = np.sqrt(squared_norm - squared_projection)
        support_index[size], weights[size] = candidate, 0.0
        return size + 1
    # c is a mixture x of the k outputs: weight moves from them to c until one of them
    # is at 0, which leaves the objective's quadratic term unchanged
    _back_substitution(factor, size, scratch)
    out = 0
    for a in range(size):
        if scratch[a] > 0 and (
            scratch[out] <= 0 or weights[a] * scratch[out] < weights[out] * scratch[a]
        ):
            out = a
    step = weights[out] / scratch[out]
    for a in range(size):
        weights[a] = max(weights[a] - step * scratch[a], 0.0)
    support_index[out], weights[out] = candidate, step
    _cholesky(products, support_index, size, factor)
    return size


@kernel
def weights_jvp(first, last, products, is_active, scores, out):
    """Fill out[B, C]: the Jacobian ``dp/ds`` of each row times scores[B, C].

    On the support it is ``x - o (1'x) / (1'o)``, with ``x = G^-1 scores`` and
    ``o = G^-1 1``; elsewhere it is 0.
    """
    C = is_active.shape[1]
    support_index = arrays.empty(C, np.int64)
    factor, x, ones = arrays.empty((C, C)), arrays.empty(C), arrays.empty(C)
    for i in range(first, last):
        k = _list_support(is_active[i], scores[i], support_index, x)
        _cholesky(products[i], support_index, k, factor)
        ones[:k] = 1.0
        for y in (x, ones):
            _forward_substitution(factor, k, y)
            _back_substitution(factor, k, y)
        total = mass = 0.0
        for a in range(k):
            total += ones[a]
            mass += x[a]
        out[i] = 0.0
        for a in range(k):
            out[i, support_index[a]] = x[a] - ones[a] * mass / total


@kernel
def _list_support(is_active, weights, support_index, support_weights):
    """List the active slots and their weights; return their number."""
    k = 0
    for a in range(len(is_active)):
        if is_active[a]:
            support_index[k], support_weights[k] = a, weights[a]
            k += 1
    return k


@kernel
def _cholesky(products, support_index, k, factor):
    """Fill the lower triangle L of ``G = L L'`` over the support."""
    for a in range(k):
        for b in range(a + 1):
            value = products[support_index[a], support_index[b]] + 1
            for j in range(b):
                value -= factor[a, j] * factor[b, j]
            if a == b:
                # positive, but for rounding: the outputs are affinely independent
                factor[a, a] = np.sqrt(max(value, 1e-300))
            else:
                factor[a, b] = value / factor[b, b]


@kernel
def _forward_substitution(factor, k, x):
    """Solve ``L x = b`` in place of b; return the squared norm of the solution."""
    length = 0.0
    for a in range(k):
        value = x[a]
        for j in range(a):
            value -= factor[a, j] * x[j]
        x[a] = value / factor[a, a]
        length += x[a] * x[a]
    return length


@kernel
def _back_substitution(factor, k, x):
    """Solve ``L' x = b`` in place of b."""
    for a in range(k - 1, -1, -1):
        value = x[a]
        for j in range(a + 1, k):
            value -= factor[j, a] * x[j]
        x[a] = value / factor[a, a]


@kernel
def _maximise_over_support(
    products, scores, support_index, size, weights, factor, scratch, ones_scratch
):
    """Update the weights to the optimum over the support; return its new size."""
    while True:
        # relative to the largest: a constant changes no weights, and digits remain
        top = scores[support_index[0]]
        for a in range(size):
            top = max(top, scores[support_index[a]])
        for a in range(size):
            scratch[a], ones_scratch[a] = scores[support_index[a]] - top, 1.0
        _forward_substitution(factor, size, scratch)
        _back_substitution(factor, size, scratch)
        _forward_substitution(factor, size, ones_scratch)
        _back_substitution(factor, size, ones_scratch)
        sum_of_ones, mass = 0.0, 0.0
        for a in range(size):
            sum_of_ones += ones_scratch[a]
            mass += scratch[a]
        t = (mass - 1) / sum_of_ones
        # towards the maximiser, until the first weight reaches 0
        step_size, out = 1.0, -1
        for a in range(size):
            scratch[a] -= t * ones_scratch[a]
            if scratch[a] <= 0 and weights[a] < step_size * (weights[a] - scratch[a]):
                step_size, out = weights[a] / (weights[a] - scratch[a]), a
            elif scratch[a] <= 0 and out < 0:
                out = a
        if out < 0:
            copy(scratch[:size], weights[:size])
            return size
        for a in range(size):
            weights[a] = max(weights[a] + step_size * (scratch[a] - weights[a]), 0.0)
        size -= 1
        for a in range(out, size):
            support_index[a], weights[a] = support_index[a + 1], weights[a + 1]
        _cholesky(products, support_index, size, factor)
