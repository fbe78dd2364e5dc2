"""Vector-Jacobian products of one number per row by the potentials of a chain.

With g the incoming gradient of a row, and parts its local gradient, e.g. marginals:

    emissions(b, t, s)  = g_b nodes(b, t, s)
    transitions(i, j)   = sum_b g_b edges(b, i, j)
    start(s), end(s)    = sum_b g_b start_marginals(b, s), sum_b g_b end_marginals(b, s)

Outputs are cut into chunks of rows of the emissions and of cells of the transitions; a
call fills chunks ``first`` to ``last``. No two chunks write to the same number. Each
sum over rows runs inside one chunk, in float64 and in the order of the rows, so its
bits do not depend on the number of chunks.
"""

import numpy as np

from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import copy


@subroutine
def vjp(first, last, num_chunks, weights, parts, out):
    """Fill the gradients of the potentials with ``weights[B]`` times the parts.

    ``parts`` have the shapes of the marginals, ``out`` those of the potentials;
    transitions are flat. Empty outputs are skipped.
    """
    nodes, edges, start_marginals, end_marginals = parts
    emissions, transitions, start, end = out
    B, S = start_marginals.shape
    row_range = B * first // num_chunks, B * last // num_chunks
    scale_rows_into(row_range, weights, nodes.reshape(-1), emissions.reshape(-1))
    edges = edges.reshape(-1)
    if len(transitions) > 0:
        cell_range = S * S * first // num_chunks, S * S * last // num_chunks
        total = arrays.zeros(cell_range[1] - cell_range[0])
        add_weighted_rows(cell_range[0], S * S, weights, edges, total)
        copy(total, transitions[cell_range[0] : cell_range[1]])
    if first == 0:
        _weighted_sum_of_rows(weights, start_marginals, start)
        _weighted_sum_of_rows(weights, end_marginals, end)


@subroutine
def _weighted_sum_of_rows(weights, parts, out):
    """Fill ``out[S]`` with the sum over rows of weights times ``parts[B, S]``."""
    if len(out) > 0:
        total = arrays.zeros(len(out))
        add_weighted_rows(0, len(out), weights, parts.reshape(-1), total)
        copy(total, out)


@subroutine
def scale_rows_into(row_range, weights, parts, out):
    """Fill the given rows of ``out`` with weights times those of parts."""
    size = len(out) // max(len(weights), 1)
    for b in range(row_range[0], row_range[1]):
        weight = weights[b]
        row = parts[b * size : (b + 1) * size]
        scaled = out[b * size : (b + 1) * size]
        for e in range(size):
            scaled[e] = weight * row[e]


@subroutine
def add_weighted_rows(low, size, weights, parts, total):
    """Add weights times the ``parts[low : low + len(total)]`` of each row."""
    for b in range(len(weights)):
        weight = np.float64(weights[b])
        row = parts[b * size + low : b * size + low + len(total)]
        for e in range(len(total)):
            total[e] += weight * row[e]
