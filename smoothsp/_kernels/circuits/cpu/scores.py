"""Outputs as lists of the leaves that they use: scores, losses, gradients, validity.

    score(b, k)  = sum over leaves l of output (b, k) of score(b, l)
    target(b, l) = sum over outputs (b, k) that use l of weight(b, k)

The second is the vector-Jacobian product of the first; for shared leaves it is summed
over b. The loss of a row is a maximum, smoothed or not, less the score of its true
output y. Validity of outputs is ``validation.propagate_bits`` with a bit for each, 64
in a word. Leaves are indices: reading U of them costs less than a mask over all leaves.
"""

import numpy as np

from smoothsp._kernels.circuits.cpu.max_product import leaf_score
from smoothsp._kernels.circuits.cpu.validation import (
    WORD,
    definition_range_of_rows,
    propagate_bits,
)
from smoothsp._kernels.circuits.layout.addresses import (
    load_circuit,
    load_potential_table,
    load_row_roots,
)
from smoothsp._kernels.circuits.layout.circuit_arrays import SHARED, TARGET, WIDTH
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import carray
from smoothsp._kernels.vectors.double_double import add, normalise
from smoothsp._kernels.vectors.smoothed_hinge import smoothed_hinge


@kernel
def score_outputs(scores, used, dtype_like, value_dd):
    """Fill value_dd[B, K, 2] with double-double sums over the leaves used[B, K, U].

    -1 is none. ``scores`` is a table of potentials of the float type of ``dtype_like``.
    """
    scores = load_potential_table(scores)
    B, K, U = used.shape
    for b in range(B):
        for k in range(K):
            hi = lo = 0.0
            for u in range(U):
                if used[b, k, u] >= 0:
                    score = leaf_score(scores, B, b, used[b, k, u], dtype_like)
                    hi, lo = add(hi, lo, score)
            value_dd[b, k, 0], value_dd[b, k, 1] = normalise(hi, lo)


@kernel
def add_weights_to_leaves(weights, used, table):
    """Add weights[B, K] to the leaves used[B, K, U], at the targets of a table.

    Targets have the float type of the weights; targets of shared leaves are float64
    ``[width]``.
    """
    table = load_potential_table(table)
    B, K, _ = used.shape
    for b in range(B):
        for k in range(K):
            _add_to_targets(weights[b, k], used[b, k], b, B, table, weights)


@subroutine
def _add_to_targets(weight, used, b, B, table, like):
    """Add a weight to the targets of the leaves used[U] by row b."""
    float64_like = arrays.empty(0, np.float64)
    for u in range(len(used)):
        leaf = np.intp(used[u])
        if leaf < 0:
            continue
        for t in range(len(table)):
            width = table[t, WIDTH]
            if leaf < width:
                if table[t, TARGET] == 0:
                    break
                if table[t, SHARED]:
                    # sums over all rows: float64, so that a large batch loses no digits
                    carray(table[t, TARGET], (width,), float64_like)[leaf] += weight
                else:
                    flat = carray(table[t, TARGET], (B * width,), like)
                    flat[b * width + leaf] += weight
                break
            leaf -= width


@kernel
def row_smoothed_hinges(
    potential_table, like, sizes, addresses, smoothing, weight, out
):
    """Fill value[B], the smoothed maximum of the ``best`` outputs less the score of y.

    ``smoothing`` are (mu, K, never_negative) of ``smoothed_hinge``, which fills u[B, M]
    and exact[B]. ``total_loss[1]`` is the sum of the values, times ``weight`` and
    weights[B]. ``first`` and ``row_score`` are the first maximum and the score of y.

    Parameters
    ----------
    scores
        A table of potentials of the float type of ``like``.
    sizes
        (B, M, U): numbers of rows, of maxima, and of leaves that y uses.
    addresses
        Of double-double maxima [B, M, 2], -inf for none, of the leaves [B, U] of y, and
        of weights, 0 for ones.
    out
        Addresses of value and total_loss, of the type of ``like``, u, exact, first and
        row_score.
    """
    potential_table = load_potential_table(potential_table)
    B, M, U = sizes
    best, y = (
        carray(addresses[0], (B, M, 2), np.float64),
        carray(addresses[1], (B, U), np.int64),
    )
    value, total_loss = carray(out[0], (B,), like), carray(out[1], (1,), like)
    u, exact = carray(out[2], (B, M), np.float64), carray(out[3], (B,), np.bool_)
    first, row_score = (
        carray(out[4], (B,), np.float64),
        carray(out[5], (B,), np.float64),
    )
    mu, K, never_negative = smoothing
    z, total = arrays.empty(M), 0.0
    for b in range(B):
        hi = lo = 0.0
        for i in range(U):
            if y[b, i] >= 0:
                hi, lo = add(hi, lo, leaf_score(potential_table, B, b, y[b, i], like))
        hi, lo = normalise(hi, lo)
        hinge_args = best[b], hi, lo, mu, K, never_negative, z, u[b]
        loss, exact[b] = smoothed_hinge(*hinge_args)
        value[b] = loss
        first[b], row_score[b] = best[b, 0, 0], hi
        row_weight = weight
        if addresses[2] != 0:
            row_weight *= carray(addresses[2], (B,), np.float64)[b]
        if row_weight != 0:
            total += row_weight * loss
    total_loss[0] = total


@kernel
def row_smoothed_hinges_gradient(table, like, kind, sizes, addresses, weight):
    """Add ``sum_k u_k phi(y_k) - phi(y)`` of weighted rows to the targets of a table.

    ``sizes`` are (B, M, U, N, W). ``addresses`` are those of u[B, W], filled by
    ``row_smoothed_hinges``; of the leaves [B, M, U] of the outputs y_k, like ``kind``;
    of the leaves of y, int64 [B, N]; and of weights[B], 0 for ones. Targets have the
    float type of ``like``, those of shared leaves are float64.
    """
    table = load_potential_table(table)
    B, M, U, N, W = sizes
    u, y = (
        carray(addresses[0], (B, W), np.float64),
        carray(addresses[2], (B, N), np.int64),
    )
    best = carray(addresses[1], (B, M, U), kind)
    for b in range(B):
        row_weight = weight
        if addresses[3] != 0:
            row_weight *= carray(addresses[3], (B,), np.float64)[b]
        if row_weight == 0:
            continue
        for k in range(M):
            if u[b, k] != 0:
                _add_to_targets(row_weight * u[b, k], best[b, k], b, B, table, like)
        _add_to_targets(-row_weight, y[b], b, B, table, like)


@kernel
def add_hamming_costs(sizes, addresses, like, scale):
    """Fill augmented[B, W] with main, plus ``scale`` for each part that y does not use.

    ``sizes`` are (B, W, U). ``addresses`` are those of main; of is_read[B, W], the
    parts that count, 0 if all do; of the entries [B, U] that y uses, -1 for none, where
    entries beyond W are not main's; and of augmented.
    """
    B, W, U = sizes
    main, augmented = (
        carray(addresses[0], (B, W), like),
        carray(addresses[3], (B, W), like),
    )
    y = carray(addresses[2], (B, U), np.int64)
    for b in range(B):
        for i in range(W):
            augmented[b, i] = main[b, i] + scale
        if addresses[1] != 0:
            is_read = carray(addresses[1] + b * W, (W,), np.bool_)
            for i in range(W):
                if not is_read[i]:
                    augmented[b, i] = main[b, i]
        for u in range(U):
            if 0 <= y[b, u] < W:
                augmented[b, y[b, u]] = main[b, y[b, u]]


@kernel
def leaves_from_labels(circuit, rows, sizes, addresses, is_complete, like, scale):
    """Fill used[B, K, N] with the leaves that set labels[B, K, N], -1 for none.

    ``row_labels`` are the labels, -1 where a row has none. If main[B, W] has an
    address, ``augmented`` becomes main plus ``scale`` times the Hamming cost of each
    leaf: 1 for a leaf that sets another label.

    Parameters
    ----------
    sizes
        (K, N, V, W, num_real_rows): the last is 1 if all rows share ``is_real``.
    addresses
        Of labels; of is_real[B, N], whether a row has a label; of leaf_of[N, V], the
        leaf of each value of a label; of row_labels and used; of is_read[B, P], whether
        a row reads a leaf; of main and of augmented.
    is_complete
        Whether the leaves are all that an output uses. Then return
        ``first_infeasible_output`` of them, otherwise -1.
    """
    edges, roots = load_circuit(circuit), load_row_roots(rows).roots
    B, (K, N, V, W, num_real_rows) = len(roots), sizes
    labels, row_labels = (
        carray(addresses[0], (B, K, N), np.int64),
        carray(addresses[3], (B, K, N), np.int64),
    )
    is_real, leaf_of = (
        carray(addresses[1], (num_real_rows, N), np.bool_),
        carray(addresses[2], (N, V), np.int64),
    )
    used = carray(addresses[4], (B, K, N), np.int64)
    for b in range(B):
        row = 0 if num_real_rows == 1 else b
        for k in range(K):
            for i in range(N):
                label = labels[b, k, i] if is_real[row, i] else -1
                row_labels[b, k, i] = label
                used[b, k, i] = leaf_of[i, label] if 0 <= label < V else -1
    if addresses[6] != 0:
        is_read = carray(
            addresses[5],
            (num_real_rows, edges.num_row_leaves + edges.num_shared_leaves),
            np.bool_,
        )
        main, augmented = (
            carray(addresses[6], (B, W), like),
            carray(addresses[7], (B, W), like),
        )
        for b in range(B):
            row = 0 if num_real_rows == 1 else b
            for leaf in range(W):
                i = edges.positions[1 + leaf]
                is_wrong = i >= 0 and is_read[row, leaf]
                if is_wrong and row_labels[b, 0, i] != edges.values[1 + leaf]:
                    augmented[b, leaf] = main[b, leaf] + scale
                else:
                    augmented[b, leaf] = main[b, leaf]
    return _first_infeasible_output(edges, roots, used) if is_complete else -1


@kernel
def first_infeasible_output(circuit, rows, used):
    """Return ``b K + k`` of the first used[B, K, U] without a derivation, or -1."""
    return _first_infeasible_output(
        load_circuit(circuit), load_row_roots(rows).roots, used
    )


@subroutine
def _first_infeasible_output(circuit, roots, used):
    """Return the first output whose leaves derive no root, or -1.

    Bit i of ``bit_sets[item]`` is set if output i of the word has all leaves of some
    derivation of the item. An output with a leaf beyond the last is infeasible.
    """
    B, K, U = used.shape
    bit_sets = arrays.empty(circuit.num_items, np.uint64)
    for begin in range(0, B * K, WORD):
        size = min(WORD, B * K - begin)
        low, high = definition_range_of_rows(
            circuit, roots, begin // K, (begin + size - 1) // K + 1
        )
        bit_sets[0] = ~np.uint64(0)
        leaves = circuit.num_row_leaves + circuit.num_shared_leaves
        # the word of the empty product has all bits, leaves only those of their outputs
        bit_sets[1 : 1 + leaves] = 0
        out_of_range = np.uint64(0)
        for i in range(size):
            b, k = divmod(begin + i, K)
            bit = np.uint64(1) << np.uint64(i)
            for u in range(U):
                if used[b, k, u] >= leaves:
                    out_of_range |= bit
                elif used[b, k, u] >= 0:
                    bit_sets[1 + used[b, k, u]] |= bit
        propagate_bits(circuit, low, high, bit_sets)
        for i in range(size):
            b = (begin + i) // K
            bit = np.uint64(1) << np.uint64(i)
            if bit_sets[roots[b]] & ~out_of_range & bit == 0:
                return begin + i
    return -1


@kernel
def labels_of_complete_trees(sizes, addresses):
    """Fill labels[B, K, n, n] with y, or -1 throughout if y cannot be a tree.

    A tree over N words has ``2 N - 1`` spans. If exactly that number of spans contains
    a tree, the tree uses them all. Only spans of the first ``lengths[b]`` words are
    counted. ``sizes`` are (B, K, n), ``addresses`` those of y, lengths and labels,
    int64.
    """
    B, K, n = sizes
    y, labels = (
        carray(addresses[0], (B, K, n, n), np.int64),
        carray(addresses[2], (B, K, n, n), np.int64),
    )
    lengths = carray(addresses[1], (B,), np.int64)
    for b in range(B):
        N = lengths[b]
        for k in range(K):
            num_spans = 0
            for i in range(N):
                for j in range(i, N):
                    num_spans += y[b, k, i, j] >= 0
            is_complete = num_spans == max(2 * N - 1, 0)
            for i in range(n):
                for j in range(n):
                    labels[b, k, i, j] = y[b, k, i, j] if is_complete else -1
