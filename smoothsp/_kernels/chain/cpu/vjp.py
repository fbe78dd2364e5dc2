"""Vector-Jacobian products of one number per row with the potentials of a chain.

With g the weight of a row, and parts the gradient of its number, marginals for example:

    emissions(b, t, s)  = g_b nodes(b, t, s)
    transitions(i, j)   = sum_b g_b edges(b, i, j); not shared, g_b edges(b, t, i, j)
    start(s), end(s)    = sum_b g_b heads(b, s), sum_b g_b tails(b, s)

Outputs are cut into ``pieces``; a call fills pieces ``first`` to ``last``. A piece has
its own rows of the emissions and its own cells of shared transitions, so no two pieces
write to one number. Each sum over rows runs in one piece, in float64 and in the order
of the rows: its bits do not depend on the number of pieces.
"""

import numpy as np

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import copy


@kernel
def vjp(
    first,
    last,
    pieces,
    weights,
    nodes,
    edges,
    heads,
    tails,
    shared,
    emissions,
    transitions,
    start,
    end,
):
    """Fill the gradients of the potentials with ``weights[B]`` times the parts.

    Parts in the shapes that ``laws.sums`` gives them; transitions are
    flat. Outputs without entries are left out.
    """
    B, S = heads.shape
    rows = B * first // pieces, B * last // pieces
    _scale_rows(rows, 1, weights, nodes.reshape(-1), emissions.reshape(-1))
    edges = edges.reshape(-1)
    if shared and len(transitions) > 0:
        part = S * S * first // pieces, S * S * last // pieces
        total = arrays.zeros(part[1] - part[0])
        _add_rows(part[0], S * S, 1, weights, edges, total)
        copy(total, transitions[part[0] : part[1]])
    elif not shared:
        _scale_rows(rows, 1, weights, edges, transitions)
    if first == 0:
        _weigh_ends(weights, heads, start)
        _weigh_ends(weights, tails, end)


@subroutine
def _weigh_ends(weights, parts, out):
    """Fill ``out[S]`` with the sum over rows of weights times ``parts[B, S]``."""
    if len(out) > 0:
        total = arrays.zeros(len(out))
        _add_rows(0, len(out), 1, weights, parts.reshape(-1), total)
        copy(total, out)


@kernel
def vjp_residual(
    first,
    last,
    pieces,
    weights,
    labels,
    steps,
    lengths,
    nodes,
    edges,
    heads,
    tails,
    emissions,
    transitions,
    start,
    end,
):
    """``vjp`` with the parts that ``labels[B, T]`` use, less the parts given.

    With marginals as parts, ``g_b ([y uses part] - P(part))`` is the gradient of ``g_b
    log P(y)``. Each output gets ``-g_b P(part)`` first, then ``g_b`` at the labels. For
    transitions that rows share; emissions may be the array of the nodes.
    """
    B, S = heads.shape
    rows = B * first // pieces, B * last // pieces
    _scale_rows(rows, -1, weights, nodes.reshape(-1), emissions.reshape(-1))
    for b in range(rows[0], rows[1]):
        for n in range(lengths[b]):
            t = steps[b, n]
            emissions[b, t, labels[b, t]] += weights[b]
    edges = edges.reshape(-1)
    low, high = S * S * first // pieces, S * S * last // pieces
    total = arrays.zeros(high - low)
    _add_rows(low, S * S, -1, weights, edges, total)
    for b in range(B):
        for n in range(1, lengths[b]):
            i, j = labels[b, steps[b, n - 1]], labels[b, steps[b, n]]
            if low <= i * S + j < high:
                total[i * S + j - low] += weights[b]
    copy(total, transitions[low:high])
    if first == 0:
        total = arrays.zeros(2 * S)
        _add_rows(0, S, -1, weights, heads.reshape(-1), total[:S])
        _add_rows(0, S, -1, weights, tails.reshape(-1), total[S:])
        for b in range(B):
            if lengths[b] > 0:
                total[labels[b, steps[b, 0]]] += weights[b]
                total[S + labels[b, steps[b, lengths[b] - 1]]] += weights[b]
        copy(total[:S], start)
        copy(total[S:], end)


@subroutine
def _scale_rows(rows, sign, weights, parts, out):
    """Fill the given rows of ``out`` with ``sign weights`` times those of parts."""
    size = len(out) // max(len(weights), 1)
    for b in range(rows[0], rows[1]):
        weight = weights[b] * weights.dtype.type(sign)
        row = parts[b * size : (b + 1) * size]
        scaled = out[b * size : (b + 1) * size]
        for e in range(size):
            scaled[e] = weight * row[e]


@subroutine
def _add_rows(low, size, sign, weights, parts, total):
    """Add ``sign weights`` times the ``parts[low : low + len(total)]`` of each row."""
    for b in range(len(weights)):
        weight = np.float64(weights[b]) * sign
        row = parts[b * size + low : b * size + low + len(total)]
        for e in range(len(total)):
            total[e] += weight * row[e]
