"""The structural hinge of a chain with Hamming cost, and its gradient.

``max_y' [s(y') + c h(y', y)] - s(y)``, where h counts labels that differ. The cost is
added in float64 while emissions are loaded, and both scores are summed in time order,
so that y is among the outputs compared, bit for bit: the value is never below 0.
"""

import numpy as np

from smoothsp._kernels.chain.cpu.best import viterbi
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.vectors import arrays


@kernel
def hinge(
    first,
    last,
    emissions,
    transitions,
    start,
    end,
    steps,
    lengths,
    shared,
    order,
    gold,
    cost,
    labels,
    value,
    fault,
):
    """Fill labels[B, T] with a maximiser, -1 where masked, and value[B] in float64.

    For the rows ``order[first:last]``, as ``chain.cpu.best.viterbi``.
    ``cost >= 0`` is that of each label that differs from gold[B, T]. fault[b] is the
    first position with a gold label outside [0, S), or -1; where a range of rows has a
    fault, nothing else is filled. A gold output that is forbidden has value inf.
    """
    S = emissions.shape[2]
    scores = arrays.empty(len(lengths), np.float64)
    sound = True
    for b in order[first:last]:
        fault[b] = -1
        i = 0
        total = 0.0
        for n in range(lengths[b]):
            t = steps[b, n]
            j = gold[b, t]
            if j < 0 or j >= S:
                fault[b] = t
                sound = False
                break
            if n == 0:
                total = float(start[j])
            elif shared:
                total += transitions[0, 0, i, j]
            else:
                total += transitions[b, t - 1, i, j]
            total += emissions[b, t, j]
            i = j
        scores[b] = total + end[i] if lengths[b] > 0 else 0.0
    if not sound:
        return
    viterbi(
        first, last, emissions, transitions, start, end, steps, lengths, shared, order,
        gold, cost, labels, value,
    )  # fmt: skip
    for b in order[first:last]:
        value[b] -= scores[b]


@kernel
def hinge_gradient(
    first,
    last,
    labels,
    gold,
    steps,
    lengths,
    shared,
    weights,
    emissions,
    transitions,
    start,
    end,
):
    """Put weights[B] on the parts that labels[B, T] use, less those that gold uses.

    Outputs are 0 before, and stay 0 where both use a part. What rows share is added up
    in the order of the rows: give one call all rows.
    """
    for b in range(first, last):
        weight = weights[b]
        i = y = 0
        for n in range(lengths[b]):
            t = steps[b, n]
            j, z = labels[b, t], gold[b, t]
            if j != z:
                emissions[b, t, j] = weight
                emissions[b, t, z] = -weight
                if n == 0:
                    start[j] += weight
                    start[z] -= weight
            if n > 0 and (i != y or j != z):
                p = 0 if shared else b
                q = 0 if shared else t - 1
                transitions[p, q, i, j] += weight
                transitions[p, q, y, z] -= weight
            i, y = j, z
        if i != y:
            end[i] += weight
            end[y] -= weight
