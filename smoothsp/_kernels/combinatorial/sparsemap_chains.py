"""Sparse mixtures of the outputs of chains, by the active-set method.

As ``oracles.SparseMAP``, of which it is the loop: ask for the best output when each
part it uses costs strength times its share of the mixture, add it, find the best
weights, drop outputs whose weight is 0. Scores are in units of the strength. With A p
the share of the mixture that uses each emission, and s the scores, a round computes

    y   = argmax s(y) - <A_y, A p>                                   Viterbi
    gap = s(y) - <A_y, A p> - (<s, p> - |A p|^2)
    p   = argmax <s, p> - 1/2 |A p|^2 over the outputs with weight, and y

Viterbi takes all rows in work at once, one in each lane. The quadratic programme is
solved row by row, with the factor of ``updatable_cholesky``. Labels of outputs are
stored twice. ``turned`` is by position, then slot: a vector compares y with the labels
of many outputs. ``entries`` is by slot, then position, for sums over the mixture.
"""

import numpy as np

from smoothsp._kernels.chain.cpu.records import Chain
from smoothsp._kernels.chain.cpu.viterbi import viterbi
from smoothsp._kernels.combinatorial import updatable_cholesky as faces
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.simd import get, put, span

# Rows that are searched at once, one in each lane of a vector. A row that is done is
# replaced by the next.
TOGETHER = 8


@kernel
def sparsemap(first, last, chain, order, strengths, most, final, rounding, out):
    """Fill outputs[B, C, T], -1 where masked, weights[B, C], gap[B] and counts[B].

    For the rows ``order[first:last]``; potentials are float64. counts[b] outputs have
    weight, in no order, the others have 0; -1 where C slots are too few. The best
    output is searched for 1 + ``most`` times; a gap of ``rounding`` times the largest
    score is none. ``out`` are the four that are filled, and decodes[B], counted up.

    A row with counts[b] > 0 starts from its outputs with weight, whose labels are those
    of the real positions, and saves one search. What the last search finds is added if
    ``final``, and otherwise serves the gap alone.
    """
    chain = Chain(*chain)
    emissions, steps, lengths = chain.emissions, chain.steps, chain.lengths
    outputs, weights, gap, counts, decodes = out
    B, T, S = emissions.shape
    C = weights.shape[1]
    G = min(TOGETHER, last - first)
    shifted, labels, value = (
        arrays.empty((B, T, S)),
        arrays.empty((B, T), np.int64),
        arrays.empty(B),
    )
    # rows in work, longest first, and where each keeps its part of the arrays below
    live, place, idle = (
        arrays.empty(G, np.int64),
        arrays.empty(B, np.int64),
        np.arange(G),
    )
    size, asked, top = (
        arrays.zeros(G, np.int64),
        arrays.zeros(G, np.int64),
        arrays.zeros(G),
    )
    # slots: first those with weight
    slots, p, scores = (
        arrays.empty((G, C), np.int64),
        arrays.empty((G, C)),
        arrays.empty((G, C)),
    )
    turned, shares = arrays.empty((G, T, C), np.int32), arrays.empty((G, T * S))
    width = faces.row_of(C)
    matrices, solutions = arrays.empty((2, G, C * width)), arrays.empty((3, G, width))
    entries = arrays.empty((G, C, T), np.int32)
    same, column, x = arrays.empty(C, np.int32), arrays.empty(C), arrays.empty(width)
    count, upcoming = 0, first
    while True:
        while count < G and upcoming < last:
            b = order[upcoming]
            upcoming += 1
            # idle places are a stack: G less the number of rows in work
            g = idle[G - 1 - count]
            live[count], place[b] = b, g
            count += 1
            size[g], asked[g] = 0, 0
            shifted[b] = emissions[b]
            for c in range(C):
                slots[g, c] = c
            if counts[b] > 0:
                N = lengths[b]
                path, mine = steps[b, :N], slots[g]
                size[g] = _list_slots(weights[b], mine, p[g])
                for a in range(size[g]):
                    y = outputs[b, mine[a]]
                    for n in range(N):
                        turned[g, n, mine[a]] = y[path[n]]
                        entries[g, mine[a], n] = path[n] * S + y[path[n]]
                    scores[g, a] = _score(b, chain, path, y, strengths[b])
                top[g] = scores[g, 0]
                face = (
                    span(matrices[0, g]), span(matrices[1, g]), span(solutions[0, g]),
                    span(solutions[1, g]), span(solutions[2, g]), width,
                )  # fmt: skip
                for a in range(size[g]):
                    y = outputs[b, mine[a]]
                    _count_same(turned[g], a, mine, path, y, same)
                    for e in range(a):
                        column[e] = same[mine[e]] + 1
                    weight = p[g, a]
                    faces.add(
                        face, a, p[g], column, N + 1, scores[g, a] - top[g], span(x)
                    )
                    p[g, a] = weight
                size[g] = _settle(face, size[g], p[g], mine, scores[g], span(x))
                _mix(size[g], p[g], mine, entries[g], N, shares[g])
                to, given = shifted[b].reshape(-1), emissions[b].reshape(-1)
                for e in range(T * S):
                    to[e] = given[e] - strengths[b] * shares[g, e]
        if count == 0:
            return
        augmented = Chain(
            shifted, chain.transitions, chain.start, chain.end, steps, lengths,
            chain.shared,
        )  # fmt: skip
        viterbi(0, count, augmented, live, labels, 0.0, labels, value)
        left = 0
        for q in range(count):
            b = live[q]
            g, strength = place[b], strengths[b]
            y, N, k = labels[b], lengths[b], size[g]
            decodes[b] += 1
            path, mine, own = steps[b, :N], slots[g], outputs[b]
            score = _score(b, chain, path, y, strength)
            _count_same(turned[g], k, mine, path, y, same)
            if k == 0:
                top[g], done = score, False
            else:
                asked[g] += 1
                missing, largest = _gap(
                    score, y, path, S, k, p[g], scores[g], shares[g]
                )
                gap[b] = strength * missing
                # an output that has weight already is no better: what is left is
                # rounding
                done = asked[g] == most and not final
                done |= not missing > rounding * largest
                for a in range(k):
                    done |= same[mine[a]] == N
            if done or k == C:
                counts[b] = k if done else -1
                weights[b] = 0.0
                for a in range(k):
                    weights[b, mine[a]] = p[g, a]
                idle[G - 1 - (count - 1 - (q - left))] = g
                continue
            c = mine[k]
            own[c] = y
            for n in range(N):
                turned[g, n, c] = y[path[n]]
                entries[g, c, n] = path[n] * S + y[path[n]]
            scores[g, k] = score
            for a in range(k):
                column[a] = same[mine[a]] + 1
            face = (
                span(matrices[0, g]), span(matrices[1, g]), span(solutions[0, g]),
                span(solutions[1, g]), span(solutions[2, g]), width,
            )  # fmt: skip
            size[g] = _take(
                face, k, p[g], mine, scores[g], column, N + 1, score - top[g], x
            )
            if final and asked[g] == most:
                counts[b] = size[g]
                weights[b] = 0.0
                for a in range(size[g]):
                    weights[b, mine[a]] = p[g, a]
                idle[G - 1 - (count - 1 - (q - left))] = g
                continue
            _mix(size[g], p[g], mine, entries[g], N, shares[g])
            to, given = shifted[b].reshape(-1), emissions[b].reshape(-1)
            for e in range(T * S):
                to[e] = given[e] - strength * shares[g, e]
            live[left] = b
            left += 1
        count = left


@subroutine
def _score(b, chain, path, y, strength):
    """Score of labels y, summed in time order, in units of the strength."""
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
def _count_same(turned, k, slots, path, y, same):
    """Fill same[c]: at how many positions an output with weight, in slot c, has y.

    The inner loop is over slots, whose labels at a position lie side by side.
    """
    most = 0
    for a in range(k):
        most = max(most, slots[a] + 1)
    width, labels, found = turned.shape[1], span(turned), span(same)
    for c in range(most):
        put(found, c, np.int32(0))
    for n in range(len(path)):
        o, label = n * width, np.int32(y[path[n]])
        for c in range(most):
            put(found, c, np.int32(get(found, c) + (get(labels, o + c) == label)))


@subroutine
def _gap(score, y, path, S, k, p, scores, shares):
    """The gain of y over the mixture, to first order; and the size of the scores.

    ``s(y) - <A_y, A p> - (<s, p> - |A p|^2)``, in units of the strength.
    """
    for t in path:
        score -= shares[t * S + y[t]]
    now, largest = 0.0, 1.0
    for a in range(k):
        now += p[a] * scores[a]
        largest = max(largest, 1 + abs(scores[a]))
    parts = arrays.zeros(8)
    whole = len(shares) // 8 * 8
    for e in range(0, whole, 8):
        for lane in range(8):
            parts[lane] += shares[e + lane] * shares[e + lane]
    for e in range(whole, len(shares)):
        parts[0] += shares[e] * shares[e]
    return max(score - (now - parts.sum()), 0.0), largest


@subroutine
def _take(face, k, p, slots, scores, column, whole, score, x):
    """Add the output in slot ``slots[k]``; return how many outputs have weight."""
    x = span(x)
    k, out = faces.add(face, k, p, column, whole, score, x)
    if out >= 0:
        _leave(slots, scores, out, k + 1)
    return _settle(face, k, p, slots, scores, x)


@subroutine
def _settle(face, k, p, slots, scores, x):
    """Find the best weights of k outputs, none below 0; return how many have any."""
    while True:
        faces.maximum(face, k, x)
        out = faces.walk(k, p, x)
        if out < 0:
            return k
        faces.remove(face, k, out)
        for a in range(out, k - 1):
            p[a] = p[a + 1]
        _leave(slots, scores, out, k)
        k -= 1


@subroutine
def _list_slots(weights, slots, p):
    """List slots with weight before those without; return how many there are."""
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
def _leave(slots, scores, out, k):
    """Move a slot behind the others."""
    slot = slots[out]
    for a in range(out, k - 1):
        slots[a], scores[a] = slots[a + 1], scores[a + 1]
    slots[k - 1] = slot


@subroutine
def _mix(k, p, slots, entries, N, shares):
    """Fill shares[T S]: the share of the mixture that uses each part."""
    shares[:] = 0.0
    T, used, to = entries.shape[1], span(entries), span(shares)
    for a in range(k):
        o, weight = slots[a] * T, p[a]
        for n in range(o, o + N):
            e = get(used, n)
            put(to, e, get(to, e) + weight)


@kernel
def inner_products(first, last, outputs, counts):
    """Fill counts[B, K, K]: at how many positions two of outputs[B, K, T] agree."""
    K, T = outputs.shape[1:]
    for b in range(first, last):
        for i in range(K):
            y = outputs[b, i]
            for j in range(i + 1):
                z, found = outputs[b, j], 0
                for t in range(T):
                    found += (y[t] == z[t]) & (y[t] >= 0)
                counts[b, i, j] = counts[b, j, i] = found
