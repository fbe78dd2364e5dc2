"""Max-product on chains: the best output, and the K best.

All sums are float64 and run in time order, ``(a + transition) + emission``, as in
``scores.score``. Rounding is monotone, so the score of a decoded output is never
below that of any other output, to the last bit. Where transitions are shared,
only prefix scores are stored: the previous state is recomputed, going backwards, for
the states of the best output only. Many rows of few states go one per lane of a vector
(``viterbi_in_lanes``), all others with vectors over states (``viterbi_over_states``):
their formulas stand there.
"""

import numpy as np

from smoothsp._kernels.chain.cpu.k_best import (
    Prefixes,
    candidates_size,
    k_best,
    make_scratch,
)
from smoothsp._kernels.chain.cpu.records import Chain
from smoothsp._kernels.chain.cpu.viterbi_in_lanes import viterbi_in_lanes
from smoothsp._kernels.chain.cpu.viterbi_over_states import (
    ROWS_PER_PASS,
    aligned_empty,
    backtrace,
    load_emissions,
    make_tables,
    padded_states,
    viterbi_forward_per_step,
    viterbi_forward_shared,
)
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.vectors import arrays

# Fewer rows leave too many lanes idle; with more states, rows pad little.
ROWS_FOR_LANES, STATES_FOR_LANES = 4, 12


@kernel
def viterbi(first, last, chain, order, gold, cost, labels, value):
    """Fill labels[B, T] with a maximiser, -1 where masked, and value[B] in float64.

    For the rows ``order[first:last]``; ``order`` sorts all rows, longest first.
    ``cost`` is added, in float64, to every emission except those of the labels
    gold[B, T]; gold is not read if it is 0. Ties go to the lower state, from the end
    backwards. A row without positions has value 0.
    """
    chain = Chain(*chain)
    shared = chain.shared
    B, T, S = chain.emissions.shape
    if shared and B >= ROWS_FOR_LANES and S < STATES_FOR_LANES:
        viterbi_in_lanes(first, last, chain, order, gold, cost, labels, value)
        return
    size = min(ROWS_PER_PASS, last - first) * T * padded_states(S)
    alpha = aligned_empty(size)
    backpointers = aligned_empty(0 if shared else size)
    scores = make_tables(chain)
    paths = labels.reshape(B, 1, T)
    for group in range(first, last, ROWS_PER_PASS):
        rows = order[group : min(group + ROWS_PER_PASS, last)]
        load_emissions(chain, rows, gold, cost, scores.start, alpha)
        if shared:
            viterbi_forward_shared(chain, rows, scores, alpha)
        else:
            viterbi_forward_per_step(chain, rows, alpha, backpointers)
        backtrace(chain, rows, scores.columns, alpha, backpointers, paths, value)


@kernel
def viterbi_topk(first, last, chain, order, labels, valid, values):
    """Fill labels[B, K, T] with the K best outputs, best first, and valid[B, K].

    And values[B, K], as ``scores.score`` sums them, -inf where not valid.

    For the rows ``order[first:last]``. Ties go to the lower state, so the K best are a
    prefix of the K + 1 best. Outputs that score -inf are not listed.

    Source: Pillutla et al., "A Smoother Way to Train Structured Prediction Models",
    eq. (19); not by their algorithm 2 but by that of ``k_best``.
    """
    chain = Chain(*chain)
    shared, lengths = chain.shared, chain.lengths
    B, T, S = chain.emissions.shape
    P = padded_states(S)
    size = min(ROWS_PER_PASS, last - first) * T * P
    K = labels.shape[1]
    # one allocation: freeing two large ones returns their pages to the system, and
    # faulting them in again takes longer than filling them
    memory = aligned_empty(size + candidates_size(T, S, P, K))
    alpha, candidates = memory[:size], memory[size:]
    backpointers = aligned_empty(0 if shared else size)
    scores = make_tables(chain)
    best_values = arrays.empty(B, np.float64)
    lists = make_scratch(T, S, K, candidates)
    columns = scores.columns
    potentials = (chain.emissions, chain.transitions, chain.steps, shared)
    prefixes = Prefixes(*potentials, columns, alpha, P)
    out = labels, valid, values
    for group in range(first, last, ROWS_PER_PASS):
        rows = order[group : min(group + ROWS_PER_PASS, last)]
        load_emissions(chain, rows, chain.steps, 0.0, scores.start, alpha)
        if shared:
            viterbi_forward_shared(chain, rows, scores, alpha)
        else:
            viterbi_forward_per_step(chain, rows, alpha, backpointers)
        backtrace(chain, rows, columns, alpha, backpointers, labels, best_values)
        for q in range(len(rows)):
            b = rows[q]
            valid[b] = False
            values[b] = -np.inf
            if lengths[b] > 0 and not best_values[b] > -np.inf:
                labels[b] = -1
                continue
            valid[b, 0] = True
            values[b, 0] = best_values[b]
            k_best(b, lengths[b], q * T * P, prefixes, lists, out)
