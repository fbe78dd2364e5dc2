"""Sampling without replacement by exponential races: stochastic beam search top down.

Output y has an arrival time, exponential with rate p(y). The order of arrivals is that
of sampling without replacement. The first arrival in a set of outputs of probability P
is exponential with rate P, and lies in each part of the set with the part's fraction of
P. Since the race is memoryless, the rest of the set has its first arrival after a
further exponential time, with the rest's probability as rate.

The race is run from the root down. A set contains all outputs with the same first
choices of products, without some of the next ones. With U exponential of rate 1, a set
of time t splits into

    a set with the product drawn next, of time t
    the rest, of probability P, of time t + U / P

The output of smallest time is the next sample, from a heap. Times and probabilities are
logarithms, since rare outputs are drawn after the likely ones.

Source: Kool, van Hoof and Welling, "Stochastic Beams and Where to Find Them" (2019),
section 3, top-down sampling of Gumbel variables, which are -log of these times.
"""

import math

import numpy as np

from smoothsp._kernels.circuits.cpu.max_product import fill_with_padding
from smoothsp._kernels.circuits.cpu.samples import splitmix64_uniform
from smoothsp._kernels.circuits.layout.addresses import load_circuit, load_row_roots
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays

LN2 = math.log(2.0)
# A set: the item to expand, and heads of linked lists: of the items after it, of the
# leaves so far, and of the numbers of excluded products.
ITEM, NEXT_LINK, CHOSEN_LEAVES, EXCLUDED_PRODUCTS = range(4)
# Logarithms of a set's first arrival time and probability.
TIME, LOG_P = range(2)


@kernel
def sample_without_replacement(
    first, last, circuit, rows, seeds, scratch, labels, valid
):
    """Fill labels[B, n, N] and valid[B, n] of the rows ``rows.order[first:last]``.

    From seeds[B]. -1 at positions without a label, and where fewer outputs exist.
    ``inside_only`` has filled ``scratch``, in float64, for the same rows, at most one
    per lane.
    """
    circuit, rows = load_circuit(circuit), load_row_roots(rows)
    L = 64 // scratch.itemsize
    m, e = scratch[0], scratch[1]
    leaves = circuit.num_row_leaves + circuit.num_shared_leaves
    widest = 1
    for h in range(len(circuit.heads)):
        count = 0
        for r in range(circuit.starts[h], circuit.starts[h + 1]):
            count += circuit.runs[r, 0]
        widest = max(widest, count)
    # the set for which a product was last marked as excluded: nothing is cleared
    last_excluder = arrays.empty(widest, np.int64)
    # a pool of (value, next): sets share the tails of their lists
    links = arrays.empty((256, 2), np.int64)
    sets, logs = arrays.empty((64, 4), np.int64), arrays.empty((64, 2), np.float64)
    heap = arrays.empty((64, 1), np.int64)
    for lane in range(last - first):
        row = rows.order[first + lane]
        root = rows.roots[row]
        state = np.uint64(seeds[row])
        for i in range(widest):
            last_excluder[i] = -1
        heap_size = num_links = num_sets = 0
        if m[root * L + lane] > 0:
            state += np.uint64(0x9E3779B97F4A7C15)
            sets[0, ITEM], sets[0, NEXT_LINK] = root, -1
            sets[0, CHOSEN_LEAVES], sets[0, EXCLUDED_PRODUCTS] = -1, -1
            logs[0, TIME], logs[0, LOG_P] = _log_exponential(state), 0.0
            heap[0, 0] = 0
            heap_size = num_sets = 1
        for i in range(labels.shape[1]):
            row_labels = labels[row, i]
            fill_with_padding(row_labels)
            valid[row, i] = heap_size > 0
            if heap_size == 0:
                continue
            current = heap[0, 0]
            heap_size -= 1
            _sift_down(heap, heap_size, heap[heap_size, 0], logs)
            item, next_link, chosen_leaves = (
                sets[current, ITEM],
                sets[current, NEXT_LINK],
                sets[current, CHOSEN_LEAVES],
            )
            excluded_products, log_p = (
                sets[current, EXCLUDED_PRODUCTS],
                logs[current, LOG_P],
            )
            time = logs[current, TIME]
            while True:
                if num_links + 4 > len(links):
                    links = _copy_to_doubled_length(links)
                if item > leaves:
                    link = excluded_products
                    while link >= 0:
                        last_excluder[links[link, 0]] = current
                        link = links[link, 1]
                    state += np.uint64(0x9E3779B97F4A7C15)
                    u = splitmix64_uniform(state)
                    stamp = current if excluded_products >= 0 else -2
                    a, b, number, all_m, all_e, remaining_m, remaining_e, p_m, p_e = (
                        _sample_remaining_product(
                            m, e, lane, L, item, circuit, u, last_excluder, stamp
                        )
                    )
                    # the rest of the set enters the heap with its first arrival time
                    if remaining_m > 0:
                        if num_sets == len(sets):
                            sets, logs = (
                                _copy_to_doubled_length(sets),
                                _copy_to_doubled_length(logs),
                            )
                            heap = _copy_to_doubled_length(heap)
                        links[num_links, 0], links[num_links, 1] = (
                            number,
                            excluded_products,
                        )
                        log_remaining = log_p + _log_ratio(
                            remaining_m, remaining_e, all_m, all_e
                        )
                        state += np.uint64(0x9E3779B97F4A7C15)
                        waiting_time = _log_exponential(state) - log_remaining
                        sets[num_sets, ITEM], sets[num_sets, NEXT_LINK] = (
                            item,
                            next_link,
                        )
                        (
                            sets[num_sets, CHOSEN_LEAVES],
                            sets[num_sets, EXCLUDED_PRODUCTS],
                        ) = (
                            chosen_leaves,
                            num_links,
                        )
                        logs[num_sets, TIME] = _log_sum(time, waiting_time)
                        logs[num_sets, LOG_P] = log_remaining
                        num_links += 1
                        _sift_up(heap, heap_size, num_sets, logs)
                        heap_size += 1
                        num_sets += 1
                    log_p += _log_ratio(p_m, p_e, all_m, all_e)
                    links[num_links, 0], links[num_links, 1] = b, next_link
                    links[num_links + 1, 0], links[num_links + 1, 1] = a, num_links
                    next_link = num_links + 1
                    num_links += 2
                    excluded_products = -1
                elif item > 0:
                    links[num_links, 0], links[num_links, 1] = item, chosen_leaves
                    chosen_leaves = num_links
                    num_links += 1
                if next_link < 0:
                    break
                item, next_link = links[next_link, 0], links[next_link, 1]
            while chosen_leaves >= 0:
                leaf = links[chosen_leaves, 0]
                if circuit.positions[leaf] >= 0:
                    row_labels[circuit.positions[leaf]] = circuit.values[leaf]
                chosen_leaves = links[chosen_leaves, 1]


@subroutine
def _sample_remaining_product(m, e, lane, L, item, circuit, u, last_excluder, stamp):
    """Draw a product of an item, proportionally to its term, among those not excluded.

    Return its factors and number, and as scaled floats the sum, the sum without it, and
    its term.
    """
    runs, starts = circuit.runs, circuit.starts
    h = circuit.definition[item]
    all_m, all_e = m[item * L + lane], e[item * L + lane]
    if stamp >= 0:
        all_m, all_e = _sum_of_remaining(
            m, e, lane, L, h, circuit, last_excluder, stamp, -1
        )
    remaining = u * all_m
    a = b = np.intp(0)
    chosen, number, searching = -1, 0, True
    p_m = p_e = 0.0
    for r in range(starts[h], starts[h + 1]):
        p, q = np.intp(runs[r, 1]), np.intp(runs[r, 3])
        for _ in range(runs[r, 0]):
            weight = m[p * L + lane] * m[q * L + lane]
            if searching and weight > 0 and last_excluder[number] != stamp:
                # if rounding leaves a remainder: the last possible product
                a, b, chosen = p, q, number
                p_m, p_e = weight, e[p * L + lane] + e[q * L + lane]
                remaining -= weight * 2.0 ** (p_e - all_e)
                searching = remaining >= 0
            p += runs[r, 2]
            q += runs[r, 4]
            number += 1
    remaining_m, remaining_e = _sum_of_remaining(
        m, e, lane, L, h, circuit, last_excluder, stamp, chosen
    )
    return a, b, chosen, all_m, all_e, remaining_m, remaining_e, p_m, p_e


@subroutine
def _sum_of_remaining(m, e, lane, L, h, circuit, last_excluder, stamp, chosen):
    """Sum of the products that are neither excluded nor chosen, as a scaled float.

    The terms are added: subtracting the others would leave nothing of tiny ones.
    """
    runs, starts = circuit.runs, circuit.starts
    total, top, number = 0.0, 0.0, 0
    for r in range(starts[h], starts[h + 1]):
        p, q = np.intp(runs[r, 1]), np.intp(runs[r, 3])
        for _ in range(runs[r, 0]):
            weight = m[p * L + lane] * m[q * L + lane]
            if weight > 0 and last_excluder[number] != stamp and number != chosen:
                scale = e[p * L + lane] + e[q * L + lane]
                if total == 0.0 or scale > top:
                    total *= 2.0 ** (top - scale) if total > 0.0 else 0.0
                    top = scale
                total += weight * 2.0 ** (scale - top)
            p += runs[r, 2]
            q += runs[r, 4]
            number += 1
    return total, top


@subroutine(optimise=False)
def _log_ratio(a, a_e, b, b_e):
    """Logarithm of ``(a 2^a_e) / (b 2^b_e)``."""
    return math.log(a / b) + (a_e - b_e) * LN2


@subroutine(optimise=False)
def _log_exponential(state):
    """Logarithm of an exponential variable of rate 1."""
    # a uniform 0 would have the logarithm -inf
    return math.log(-math.log1p(-max(splitmix64_uniform(state), 2.0**-60)))


@subroutine(optimise=False)
def _log_sum(a, b):
    """``log(exp(a) + exp(b))``."""
    top = max(a, b)
    return top + math.log1p(math.exp(min(a, b) - top))


@subroutine
def _sift_up(heap, size, new, logs):
    """Add a set to a heap of ``size``, ordered by time."""
    i = size
    while i > 0 and logs[heap[(i - 1) // 2, 0], TIME] > logs[new, TIME]:
        heap[i, 0] = heap[(i - 1) // 2, 0]
        i = (i - 1) // 2
    heap[i, 0] = new


@subroutine
def _sift_down(heap, size, last, logs):
    """Replace the root by ``last``, in a heap that then has ``size`` sets."""
    i = 0
    while 2 * i + 1 < size:
        child = 2 * i + 1
        other = child + 1 if child + 1 < size else child
        if logs[heap[other, 0], TIME] < logs[heap[child, 0], TIME]:
            child = other
        if logs[heap[child, 0], TIME] >= logs[last, TIME]:
            break
        heap[i, 0] = heap[child, 0]
        i = child
    heap[i, 0] = last


@subroutine
def _copy_to_doubled_length(x):
    """Return a copy of twice the length; its second half is not filled."""
    doubled = arrays.empty((2 * len(x), x.shape[1]), x.dtype)
    for i in range(len(x)):
        for j in range(x.shape[1]):
            doubled[i, j] = x[i, j]
    return doubled
