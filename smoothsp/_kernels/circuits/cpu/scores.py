"""Outputs given as the leaves that they use: their scores, and whether they exist.

    exact(b, k)  = sum over leaves l of output (b, k) of score(b, l)
    target(b, l) = sum over outputs (b, k) that use l of weight(b, k)

The second, for shared leaves summed over b, is the vector-Jacobian product of the
first. Existence is a pass of ``validation.spread`` with a bit for each output, 64 to a
word. Leaves are indices: reading U of them costs less than a mask over all leaves.
"""

import numpy as np

from smoothsp._kernels.circuits.cpu.max_product import score_of
from smoothsp._kernels.circuits.cpu.validation import WORD, needed, spread
from smoothsp._kernels.circuits.layout.addresses import circuit_at, potentials_at
from smoothsp._kernels.circuits.layout.edges import SHARED, TARGET, WIDTH
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import at
from smoothsp._kernels.vectors.exact_sums import add, settle


@kernel
def total(scores, used, like, exact):
    """Fill exact[B, K, 2] with the sums of the leaves, from 0, used[B, K, U].

    -1 is none. ``scores`` is a table of potentials of the float type of ``like``; each
    sum is two numbers.
    """
    scores = potentials_at(scores)
    B, K, U = used.shape
    for b in range(B):
        for k in range(K):
            sum_ = rest = 0.0
            for u in range(U):
                if used[b, k, u] >= 0:
                    score = score_of(scores, B, b, used[b, k, u], like)
                    sum_, rest = add(sum_, rest, score)
            exact[b, k, 0], exact[b, k, 1] = settle(sum_, rest)


@kernel
def count(weights, used, table):
    """Add weights[B, K] up over the leaves used[B, K, U], in the targets of a table.

    Targets are of the float type of the weights; those of all rows are ``[width]`` of
    float64.
    """
    table = potentials_at(table)
    B, K, U = used.shape
    wide = arrays.empty(0, np.float64)
    for b in range(B):
        for k in range(K):
            weight = weights[b, k]
            for u in range(U):
                leaf = np.intp(used[b, k, u])
                if leaf < 0:
                    continue
                for t in range(len(table)):
                    width = table[t, WIDTH]
                    if leaf < width:
                        if table[t, TARGET] == 0:
                            break
                        if table[t, SHARED]:
                            at(table[t, TARGET], (width,), wide)[leaf] += weight
                        else:
                            flat = at(table[t, TARGET], (B * width,), weights)
                            flat[b * width + leaf] += weight
                        break
                    leaf -= width


@kernel
def exist(circuit, roots, used, answer):
    """Fill answer[B, K]: whether used[B, K, U] leaves make the root of row b.

    Bit i of ``words[item]`` says whether output i of the word has all leaves of some
    derivation of the item. An output with a leaf beyond the last does not exist.
    """
    circuit = circuit_at(circuit)
    B, K, U = used.shape
    words = arrays.empty(circuit.items, np.uint64)
    for begin in range(0, B * K, WORD):
        size = min(WORD, B * K - begin)
        low, high = needed(circuit, roots, begin // K, (begin + size - 1) // K + 1)
        words[0] = ~np.uint64(0)
        leaves = circuit.own + circuit.shared
        words[1 : 1 + leaves] = 0
        none = np.uint64(0)
        for i in range(size):
            b, k = divmod(begin + i, K)
            bit = np.uint64(1) << np.uint64(i)
            for u in range(U):
                if used[b, k, u] >= leaves:
                    none |= bit
                elif used[b, k, u] >= 0:
                    words[1 + used[b, k, u]] |= bit
        spread(circuit, low, high, words)
        for i in range(size):
            b, k = divmod(begin + i, K)
            bit = np.uint64(1) << np.uint64(i)
            answer[b, k] = words[roots[b]] & ~none & bit != 0
