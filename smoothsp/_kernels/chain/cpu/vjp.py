"""Vector-Jacobian products of one number per row with the potentials of a chain.

With g the weight of a row, and parts the gradient of its number, marginals for example:

    emissions(b, t, s)  = g_b nodes(b, t, s)
    transitions(i, j)   = sum_b g_b edges(b, i, j)
    start(s), end(s)    = sum_b g_b heads(b, s), sum_b g_b tails(b, s)

Outputs are cut into ``pieces``; a call fills pieces ``first`` to ``last``. A piece has
its own rows of the emissions and its own cells of the transitions, so no two pieces
write to one number. Each sum over rows runs in one piece, in float64 and in the order
of the rows: its bits do not depend on the number of pieces.
"""

import numpy as np

from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import copy


@subroutine
def vjp(first, last, pieces, weights, parts, out):
    """Fill the gradients of the potentials with ``weights[B]`` times the parts.

    ``parts`` are in the shapes of the marginals, outputs in those of the potentials;
    transitions are flat. Outputs without entries are left out.
    """
    nodes, edges, heads, tails = parts
    emissions, transitions, start, end = out
    B, S = heads.shape
    rows = B * first // pieces, B * last // pieces
    weigh_rows(rows, weights, nodes.reshape(-1), emissions.reshape(-1))
    edges = edges.reshape(-1)
    if len(transitions) > 0:
        part = S * S * first // pieces, S * S * last // pieces
        total = arrays.zeros(part[1] - part[0])
        add_rows(part[0], S * S, weights, edges, total)
        copy(total, transitions[part[0] : part[1]])
    if first == 0:
        _weigh_ends(weights, heads, start)
        _weigh_ends(weights, tails, end)


@subroutine
def _weigh_ends(weights, parts, out):
    """Fill ``out[S]`` with the sum over rows of weights times ``parts[B, S]``."""
    if len(out) > 0:
        total = arrays.zeros(len(out))
        add_rows(0, len(out), weights, parts.reshape(-1), total)
        copy(total, out)


@subroutine
def weigh_rows(rows, weights, parts, out):
    """Fill the given rows of ``out`` with weights times those of parts."""
    size = len(out) // max(len(weights), 1)
    for b in range(rows[0], rows[1]):
        weight = weights[b]
        row = parts[b * size : (b + 1) * size]
        scaled = out[b * size : (b + 1) * size]
        for e in range(size):
            scaled[e] = weight * row[e]


@subroutine
def add_rows(low, size, weights, parts, total):
    """Add weights times the ``parts[low : low + len(total)]`` of each row."""
    for b in range(len(weights)):
        weight = np.float64(weights[b])
        row = parts[b * size + low : b * size + low + len(total)]
        for e in range(len(total)):
            total[e] += weight * row[e]
