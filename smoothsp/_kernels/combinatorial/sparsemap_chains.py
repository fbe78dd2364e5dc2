"""SparseMAP of linear chains, by the active-set method.

This is the loop of ``oracles.SparseMAP``: decode with linearised scores, add the
output, solve for the weights, drop outputs of weight 0. Scores are in units of the
strength. With A p the marginals of the mixture and s the scores, a round computes

    y   = argmax s(y) - <A_y, A p>                                   Viterbi
    gap = s(y) - <A_y, A p> - (<s, p> - |A p|^2)
    p   = argmax <s, p> - 1/2 |A p|^2 over the outputs with weight, and y

Viterbi decodes all active rows at once, one in each lane. The quadratic programme is
solved row by row, with the factor of ``updatable_cholesky``. Labels are stored twice:
``labels_by_position`` by position, then slot, so that a vector compares y with many
outputs; ``entries`` by slot, then position, for sums over the mixture.
"""

import numpy as np

from smoothsp._kernels.chain.cpu.records import Chain
from smoothsp._kernels.chain.cpu.viterbi import viterbi
from smoothsp._kernels.combinatorial import updatable_cholesky as faces
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.simd import get_number, put_number, span

# Rows decoded at once, one in each lane of a vector. A finished row makes room for the
# next one.
ROWS_AT_ONCE = 8


@kernel
def sparsemap(
    first, last, chain, order, strengths, max_calls, add_last, relative_gap, out
):
    """Fill outputs[B, C, T], -1 where masked, weights[B, C], gap[B] and counts[B].

    For the rows ``order[first:last]``; potentials are float64. counts[b] outputs have
    positive weight, in any order of slots; counts[b] is -1 if C slots are too few.
    There are at most ``1 + max_calls`` decodes. A gap below ``relative_gap`` times the
    largest score counts as 0. ``out`` are these four arrays, and decodes[B], which is
    counted up.

    A row with counts[b] > 0 starts from its outputs with weight, and saves one decode;
    only their labels at real positions are read. The output of the last decode is added
    if ``add_last``; otherwise it only gives the gap.
    """
    chain = Chain(*chain)
    emissions, steps, lengths = chain.emissions, chain.steps, chain.lengths
    outputs, weights, gap, counts, decodes = out
    B, T, S = emissions.shape
    C = weights.shape[1]
    G = min(ROWS_AT_ONCE, last - first)
    linearised, labels, value = (
        arrays.empty((B, T, S)),
        arrays.empty((B, T), np.int64),
        arrays.empty(B),
    )
    # active rows, longest first, and the index of each in the arrays below
    active, slot_of_row, free_slots = (
        arrays.empty(G, np.int64),
        arrays.empty(B, np.int64),
        np.arange(G),
    )
    size, oracle_calls, reference_score = (
        arrays.zeros(G, np.int64),
        arrays.zeros(G, np.int64),
        arrays.zeros(G),
    )
    # slots of the mixture, those with weight first
    slots, p, scores = (
        arrays.empty((G, C), np.int64),
        arrays.empty((G, C)),
        arrays.empty((G, C)),
    )
    labels_by_position, mean = (
        arrays.empty((G, T, C), np.int32),
        arrays.empty((G, T * S)),
    )
    width = faces.row_width(C)
    matrices, solutions = arrays.empty((2, G, C * width)), arrays.empty((3, G, width))
    entries = arrays.empty((G, C, T), np.int32)
    num_equal, column, x = (
        arrays.empty(C, np.int32),
        arrays.empty(C),
        arrays.empty(width),
    )
    count, next_row = 0, first
    while True:
        while count < G and next_row < last:
            b = order[next_row]
            next_row += 1
            # idle places are a stack: G less the number of rows in work
            g = free_slots[G - 1 - count]
            active[count], slot_of_row[b] = b, g
            count += 1
            size[g], oracle_calls[g] = 0, 0
            linearised[b] = emissions[b]
            for c in range(C):
                slots[g, c] = c
            if counts[b] > 0:
                N = lengths[b]
                path, slots_of_row = steps[b, :N], slots[g]
                size[g] = _list_support(weights[b], slots_of_row, p[g])
                for a in range(size[g]):
                    y = outputs[b, slots_of_row[a]]
                    for n in range(N):
                        labels_by_position[g, n, slots_of_row[a]] = y[path[n]]
                        entries[g, slots_of_row[a], n] = path[n] * S + y[path[n]]
                    scores[g, a] = _output_score(b, chain, path, y, strengths[b])
                # Scores relative to the first output: a constant changes no weights,
                # and digits remain.
                reference_score[g] = scores[g, 0]
                factor = (
                    span(matrices[0, g]), span(matrices[1, g]), span(solutions[0, g]),
                    span(solutions[1, g]), span(solutions[2, g]), width,
                )  # fmt: skip
                for a in range(size[g]):
                    y = outputs[b, slots_of_row[a]]
                    _count_equal_labels(
                        labels_by_position[g], a, slots_of_row, path, y, num_equal
                    )
                    for e in range(a):
                        column[e] = num_equal[slots_of_row[e]] + 1
                    # add_column sets the weight of a new output to 0
                    weight = p[g, a]
                    faces.add_column(
                        factor,
                        a,
                        p[g],
                        column,
                        N + 1,
                        scores[g, a] - reference_score[g],
                        span(x),
                    )
                    p[g, a] = weight
                size[g] = _solve_active_set(
                    factor, size[g], p[g], slots_of_row, scores[g], span(x)
                )
                _fill_mean(size[g], p[g], slots_of_row, entries[g], N, mean[g])
                target, scores_b = linearised[b].reshape(-1), emissions[b].reshape(-1)
                for e in range(T * S):
                    target[e] = scores_b[e] - strengths[b] * mean[g, e]
        if count == 0:
            return
        augmented = Chain(
            linearised, chain.transitions, chain.start, chain.end, steps, lengths,
            chain.shared,
        )  # fmt: skip
        viterbi(0, count, augmented, active, labels, 0.0, labels, value)
        num_left = 0
        for q in range(count):
            b = active[q]
            g, strength = slot_of_row[b], strengths[b]
            y, N, k = labels[b], lengths[b], size[g]
            decodes[b] += 1
            path, slots_of_row, outputs_b = steps[b, :N], slots[g], outputs[b]
            score = _output_score(b, chain, path, y, strength)
            _count_equal_labels(
                labels_by_position[g], k, slots_of_row, path, y, num_equal
            )
            if k == 0:
                reference_score[g], is_done = score, False
            else:
                oracle_calls[g] += 1
                gain, largest = _duality_gap(
                    score, y, path, S, k, p[g], scores[g], mean[g]
                )
                gap[b] = strength * gain
                # decoding an output that has weight already means convergence up to
                # rounding
                is_done = oracle_calls[g] == max_calls and not add_last
                # `not >` ends rows with NaN as well
                is_done |= not gain > relative_gap * largest
                for a in range(k):
                    is_done |= num_equal[slots_of_row[a]] == N
            if is_done or k == C:
                counts[b] = k if is_done else -1
                weights[b] = 0.0
                for a in range(k):
                    weights[b, slots_of_row[a]] = p[g, a]
                free_slots[G - 1 - (count - 1 - (q - num_left))] = g
                continue
            c = slots_of_row[k]
            outputs_b[c] = y
            for n in range(N):
                labels_by_position[g, n, c] = y[path[n]]
                entries[g, c, n] = path[n] * S + y[path[n]]
            scores[g, k] = score
            for a in range(k):
                column[a] = num_equal[slots_of_row[a]] + 1
            factor = (
                span(matrices[0, g]), span(matrices[1, g]), span(solutions[0, g]),
                span(solutions[1, g]), span(solutions[2, g]), width,
            )  # fmt: skip
            size[g] = _add_output(
                factor,
                k,
                p[g],
                slots_of_row,
                scores[g],
                column,
                N + 1,
                score - reference_score[g],
                x,
            )
            if add_last and oracle_calls[g] == max_calls:
                counts[b] = size[g]
                weights[b] = 0.0
                for a in range(size[g]):
                    weights[b, slots_of_row[a]] = p[g, a]
                free_slots[G - 1 - (count - 1 - (q - num_left))] = g
                continue
            _fill_mean(size[g], p[g], slots_of_row, entries[g], N, mean[g])
            target, scores_b = linearised[b].reshape(-1), emissions[b].reshape(-1)
            for e in range(T * S):
                target[e] = scores_b[e] - strength * mean[g, e]
            active[num_left] = b
            num_left += 1
        count = num_left


@subroutine
def _output_score(b, chain, path, y, strength):
    """Score of labels y in units of the strength, summed in time order.

    The same order for all outputs: equal outputs have equal scores.
    """
    emissions, transitions, start, end, _, _, shared = chain
    total, i = 0.0, 0
    for n in range(len(path)):
        t = path[n]
        if n == 0:
            total = start[y[t]]
        elif shared:
            total += transitions[0, 0, i, y[t]]
        else:
            total += transitions[b, t - 1, i, y[t]]
        i = y[t]
        total += emissions[b, t, i]
    if len(path) > 0:
        total += end[i]
    return total / strength


@subroutine
def _count_equal_labels(labels_by_position, k, slots, path, y, num_equal):
    """Fill num_equal[c]: at how many positions the output in slot c agrees with y.

    The inner loop is over slots, whose labels at a position are contiguous.
    """
    num_slots = 0
    for a in range(k):
        # slots without weight in between are compared, too: no indirection
        num_slots = max(num_slots, slots[a] + 1)
    width, labels, counts = (
        labels_by_position.shape[1],
        span(labels_by_position),
        span(num_equal),
    )
    for c in range(num_slots):
        put_number(counts, c, np.int32(0))
    for n in range(len(path)):
        o, label = n * width, np.int32(y[path[n]])
        for c in range(num_slots):
            put_number(
                counts,
                c,
                np.int32(get_number(counts, c) + (get_number(labels, o + c) == label)),
            )


@subroutine
def _duality_gap(score, y, path, S, k, p, scores, mean):
    """Frank-Wolfe gap of the mixture, and the magnitude of the scores.

    ``s(y) - <A_y, A p> - (<s, p> - |A p|^2)``, in units of the strength.
    """
    for t in path:
        score -= mean[t * S + y[t]]
    mixture_score, largest = 0.0, 1.0
    for a in range(k):
        mixture_score += p[a] * scores[a]
        largest = max(largest, 1 + abs(scores[a]))
    # eight partial sums: a vector, in an order that is the same on all processors
    lanes = arrays.zeros(8)
    num_full = len(mean) // 8 * 8
    for e in range(0, num_full, 8):
        for lane in range(8):
            lanes[lane] += mean[e + lane] * mean[e + lane]
    for e in range(num_full, len(mean)):
        lanes[0] += mean[e] * mean[e]
    return max(score - (mixture_score - lanes.sum()), 0.0), largest


@subroutine
def _add_output(factor, k, p, slots, scores, column, squared_norm, score, x):
    """Add the output in slot ``slots[k]``; return the number of outputs with weight."""
    x = span(x)
    k, out = faces.add_column(factor, k, p, column, squared_norm, score, x)
    if out >= 0:
        _move_slot_to_end(slots, scores, out, k + 1)
    return _solve_active_set(factor, k, p, slots, scores, x)


@subroutine
def _solve_active_set(factor, k, p, slots, scores, x):
    """Solve for the weights of k outputs; return how many are positive."""
    while True:
        faces.solve_equality(factor, k, x)
        out = faces.step_to_boundary(k, p, x)
        if out < 0:
            return k
        faces.remove_column(factor, k, out)
        for a in range(out, k - 1):
            p[a] = p[a + 1]
        _move_slot_to_end(slots, scores, out, k)
        k -= 1


@subroutine
def _list_support(weights, slots, p):
    """List slots with weight before slots without; return the number of the former."""
    k, free = 0, 0
    for c in range(len(weights)):
        if weights[c] > 0:
            slots[k], p[k] = c, weights[c]
            k += 1
    for c in range(len(weights)):
        if not weights[c] > 0:
            slots[k + free] = c
            free += 1
    return k


@subroutine
def _move_slot_to_end(slots, scores, leaving, k):
    """Move the slot at position ``leaving`` of the first k behind them."""
    slot = slots[leaving]
    for a in range(leaving, k - 1):
        slots[a], scores[a] = slots[a + 1], scores[a + 1]
    slots[k - 1] = slot


@subroutine
def _fill_mean(k, p, slots, entries, N, mean):
    """Fill mean[T S]: marginals of the mixture, ``A p``."""
    mean[:] = 0.0
    T, entries_span, mean_span = entries.shape[1], span(entries), span(mean)
    for a in range(k):
        o, weight = slots[a] * T, p[a]
        for n in range(o, o + N):
            e = get_number(entries_span, n)
            put_number(mean_span, e, get_number(mean_span, e) + weight)


@kernel
def inner_products(first, last, outputs, counts):
    """Fill counts[B, K, K]: at how many positions outputs[B, K, T] agree."""
    K, T = outputs.shape[1:]
    for b in range(first, last):
        for i in range(K):
            y = outputs[b, i]
            for j in range(i + 1):
                z, count = outputs[b, j], 0
                for t in range(T):
                    count += (y[t] == z[t]) & (y[t] >= 0)
                counts[b, i, j] = counts[b, j, i] = count
