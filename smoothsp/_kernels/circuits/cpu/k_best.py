"""Lazy k-best outputs of circuits, by deviations from the best one.

An output differs from the best one by deviations: items, in the order of the trace, at
which another product is taken. The successors of an output deviate once more, after its
last deviation, or take the next product there. Thus each output has one predecessor,
whose score is no lower. A short sorted list holds the best successors of all listed
outputs. The products of items on a trace are scanned once per row. With x the maxima of
``max_product``, an output scores

    x(root) - sum over its deviations, to (a, b) at item i, of x(i) - (x(a) + x(b))

After the inside pass x is transposed, so that the scans of a row read contiguous
numbers.

Source: Huang and Chiang, "Better k-best Parsing" (2005), section 4.4, is lazy item by
item; this is lazy deviation by deviation, after Eppstein, "Finding the k Shortest
Paths" (1998), section 2.
"""

from typing import Any, NamedTuple

import numpy as np

from smoothsp._kernels.circuits.cpu.lanes import (
    definition_range,
    gather_scores,
    transpose_lanes,
    transposed_index,
    vector_of_ones,
)
from smoothsp._kernels.circuits.cpu.max_product import fill_labels_and_score, max_inside
from smoothsp._kernels.circuits.layout.addresses import (
    load_circuit,
    load_potential_table,
    load_row_roots,
)
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import carray, copy

# One cache line per item: the row for which it was filled, its best product, its second
# best product, and the number of the latter.
ROW, BEST_A, BEST_B, NEXT_A, NEXT_B, NEXT_NUMBER = range(6)
# The line's fourth float64: the best product's score less the second's.
LOSS = 3
# int32 entries of a line
LINE_LENGTH = 16
# A candidate or output: the output from which it deviates, the step of the trace, and
# the product that it takes there, with its number.
PREDECESSOR, STEP, TO_A, TO_B, TO_NUMBER = range(5)


class Candidates(NamedTuple):
    """Listed outputs, sorted candidates, and scratch of a trace."""

    outputs: Any  # [K, 5], listed outputs
    totals: Any  # [K], their scores
    candidates: Any  # [K, 5], best first
    candidate_scores: Any  # [K]
    best_products: Any  # [num_items, LINE_LENGTH]
    losses: Any  # the same memory as float64
    chain: Any  # [K], predecessors of an output
    stack: Any  # [max_depth + 2], items


@kernel
def k_best(first, last, circuit, rows, scores, scratch, sizes, out):
    """Fill value_dd[B, K, 2], labels[B, K, N] and parts[B, K, U], best first.

    Each output as in ``max_product.best_outputs``; -inf and -1 where fewer than K
    exist. values[B, K] are float32. For the rows ``order[first:last]``. ``sizes`` are
    (K, N, U); ``out`` are the addresses of value_dd, values, labels and parts, where
    that of values may be 0. ``scores`` is a float64 table of potentials, ``scratch`` is
    ``[2, size]`` of float64.
    """
    K, N, U = sizes
    value_dd, values, labels, parts = out
    circuit, rows = load_circuit(circuit), load_row_roots(rows)
    scores = load_potential_table(scores)
    B = len(rows.roots)
    L = 64 // scratch.itemsize
    value_dd, labels = (
        carray(value_dd, (B, K, 2), np.float64),
        carray(labels, (B, K, N), np.int64),
    )
    parts = carray(parts, (B, K, U), np.int32)
    rounded = carray(values, (B if values else 0, K), np.float32)
    ones = vector_of_ones(scratch)
    x = scratch[0]
    losses = scratch[1].reshape(-1, LINE_LENGTH // 2)
    best_products = scratch[1].view(np.int32).reshape(-1, LINE_LENGTH)
    stack = arrays.empty(circuit.max_depth + 2, np.int64)
    outputs, totals = arrays.empty((K, 5), np.int32), arrays.empty(K, np.float64)
    candidates, candidate_scores = (
        arrays.empty((K, 5), np.int32),
        arrays.empty(K, np.float64),
    )
    chain = arrays.empty(K, np.int64)
    scratch_record = Candidates(
        outputs,
        totals,
        candidates,
        candidate_scores,
        best_products,
        losses,
        chain,
        stack,
    )
    for item in range(circuit.num_items):
        # no row: lines are filled when a trace first visits the item
        best_products[item, ROW] = -1
    for begin in range(first, last, L):
        lanes = rows.order[begin : min(begin + L, last)]
        low, high = definition_range(circuit, rows.roots, lanes)
        gather_scores(scores, B, lanes, x, ones, L)
        max_inside(x, circuit, low, high, ones, L)
        transpose_lanes(x, circuit, L)
        for lane in range(len(lanes)):
            row = lanes[lane]
            position = (rows.roots[row], row, lane, L)
            candidate_scores[0] = x[transposed_index(position[0], lane, L)]
            candidates[0, PREDECESSOR] = candidates[0, STEP] = -1
            count = 1 if candidate_scores[0] > -np.inf else 0
            for k in range(K):
                parts[row, k] = -1
                labels[row, k] = -1
                value_dd[row, k, 0], value_dd[row, k, 1] = -np.inf, 0.0
                if values:
                    rounded[row, k] = -np.inf
                if count == 0:
                    continue
                totals[k] = candidate_scores[0]
                for f in range(5):
                    outputs[k, f] = candidates[0, f]
                count -= 1
                # the list is short, and a shift keeps it sorted
                for c in range(count):
                    candidate_scores[c] = candidate_scores[c + 1]
                    for f in range(5):
                        candidates[c, f] = candidates[c + 1, f]
                count = _expand_output(
                    x, position, circuit, k, scratch_record, count, parts[row, k]
                )
                row_value = value_dd[row, k]
                fill_labels_and_score(
                    scores,
                    B,
                    row,
                    scratch,
                    circuit,
                    parts[row, k],
                    labels[row, k],
                    row_value,
                )
                # scores are recomputed: clipping keeps them sorted up to the last bit
                if k and _is_smaller_dd(value_dd[row, k - 1], row_value):
                    copy(value_dd[row, k - 1], row_value)
                if values:
                    rounded[row, k] = row_value[0]


@subroutine(optimise=False)
def _is_smaller_dd(a, b):
    """Whether the double-double number a is less than b."""
    return a[0] < b[0] or (a[0] == b[0] and a[1] < b[1])


@subroutine
def _expand_output(x, position, circuit, k, scratch_record, count, parts):
    """Trace output k: fill its parts, and insert its successors.

    Return the number of candidates.
    """
    root, row, lane, L = position
    (
        outputs,
        totals,
        candidates,
        candidate_scores,
        best_products,
        losses,
        chain,
        stack,
    ) = scratch_record
    leaves = circuit.num_row_leaves + circuit.num_shared_leaves
    steps, o = 0, k
    while o > 0:
        chain[steps] = o
        steps += 1
        o = outputs[o, PREDECESSOR]
    # no more outputs remain to be listed
    max_candidates = len(outputs) - k - 1
    last = outputs[k, STEP]
    stack[0] = root
    top, used, step = 1, 0, -1
    while top > 0:
        top -= 1
        item = stack[top]
        if item <= leaves:
            if item > 0:
                parts[used] = item - 1
                used += 1
            continue
        step += 1
        if steps > 0 and outputs[chain[steps - 1], STEP] == step:
            steps -= 1
            o = chain[steps]
            a, b = np.intp(outputs[o, TO_A]), np.intp(outputs[o, TO_B])
            if o == k and max_candidates > 0:
                # another product at that step, instead of this one
                product_score = (
                    x[transposed_index(a, lane, L)] + x[transposed_index(b, lane, L)]
                )
                number = outputs[k, TO_NUMBER]
                p, q, number, next_score = _next_product(
                    x, lane, L, item, circuit, product_score, number
                )
                if number >= 0:
                    candidate = (np.intp(outputs[k, PREDECESSOR]), step, p, q, number)
                    item_score = x[transposed_index(item, lane, L)]
                    # both losses rounded alike, so that equal ones cancel
                    score = (
                        totals[k]
                        + (item_score - product_score)
                        - (item_score - next_score)
                    )
                    count = _insert_candidate(
                        candidate,
                        score,
                        candidates,
                        candidate_scores,
                        count,
                        max_candidates,
                    )
        else:
            if best_products[item, ROW] != row:
                _fill_best_products(
                    x, lane, L, row, item, circuit, best_products, losses
                )
            a, b = (
                np.intp(best_products[item, BEST_A]),
                np.intp(best_products[item, BEST_B]),
            )
            number = best_products[item, NEXT_NUMBER]
            if step > last and number >= 0 and max_candidates > 0:
                score = totals[k] - losses[item, LOSS]
                if count < max_candidates or score > candidate_scores[count - 1]:
                    p, q = best_products[item, NEXT_A], best_products[item, NEXT_B]
                    candidate = (k, step, np.intp(p), np.intp(q), np.intp(number))
                    count = _insert_candidate(
                        candidate,
                        score,
                        candidates,
                        candidate_scores,
                        count,
                        max_candidates,
                    )
        stack[top], stack[top + 1] = b, a
        top += 2
    return count


@subroutine
def _fill_best_products(x, lane, L, row, item, circuit, best_products, losses):
    """Fill the line of an item: its two best products, of equal ones the first."""
    runs, starts = circuit.runs, circuit.starts
    h = circuit.definition[item]
    best = second = -np.inf
    best_a = best_b = next_a = next_b = 0
    best_number = next_number = -1
    number = 0
    for r in range(starts[h], starts[h + 1]):
        a, b = np.intp(runs[r, 1]), np.intp(runs[r, 3])
        for _ in range(runs[r, 0]):
            v = x[transposed_index(a, lane, L)] + x[transposed_index(b, lane, L)]
            if v > second:
                if v > best:
                    second, next_number = best, best_number
                    next_a, next_b = best_a, best_b
                    best, best_number, best_a, best_b = v, number, a, b
                else:
                    second, next_number, next_a, next_b = v, number, a, b
            number += 1
            a += runs[r, 2]
            b += runs[r, 4]
    best_products[item, ROW] = row
    best_products[item, BEST_A], best_products[item, BEST_B] = best_a, best_b
    best_products[item, NEXT_A], best_products[item, NEXT_B] = next_a, next_b
    best_products[item, NEXT_NUMBER] = next_number
    losses[item, LOSS] = best - second


@subroutine
def _next_product(x, lane, L, item, circuit, score, number):
    """Return the next product in the order of score, then number; -1 if there is none.

    Scores are compared, as in ``_fill_best_products``: equal losses may come from
    unequal scores.
    """
    runs, starts = circuit.runs, circuit.starts
    h = circuit.definition[item]
    best_a = best_b = np.intp(0)
    best, best_number = -np.inf, np.intp(-1)
    n = np.intp(0)
    for r in range(starts[h], starts[h + 1]):
        a, b = np.intp(runs[r, 1]), np.intp(runs[r, 3])
        for _ in range(runs[r, 0]):
            v = x[transposed_index(a, lane, L)] + x[transposed_index(b, lane, L)]
            if v > best and (v < score or (v == score and n > number)):
                best, best_number, best_a, best_b = v, n, a, b
            n += 1
            a += runs[r, 2]
            b += runs[r, 4]
    return best_a, best_b, best_number, best


@subroutine
def _insert_candidate(
    candidate, score, candidates, candidate_scores, count, max_candidates
):
    """Insert a candidate after its equals; drop the last of ``max_candidates``."""
    if count == max_candidates:
        if score <= candidate_scores[count - 1]:
            return count
        count -= 1
    c = count
    while c > 0 and candidate_scores[c - 1] < score:
        candidate_scores[c] = candidate_scores[c - 1]
        for f in range(5):
            candidates[c, f] = candidates[c - 1, f]
        c -= 1
    candidate_scores[c] = score
    candidates[c, PREDECESSOR], candidates[c, STEP], candidates[c, TO_A] = (
        candidate[0],
        candidate[1],
        candidate[2],
    )
    candidates[c, TO_B], candidates[c, TO_NUMBER] = candidate[3], candidate[4]
    return count + 1
