"""Independent samples of outputs by inside filtering and top-down sampling.

From the root downwards, item i is replaced by its product (a, b) with probability

    z(a) z(b) / z(i)

by inverting the cumulative sum at a uniform number. A stack holds factors still to be
visited, the left one on top. The z are those of ``inside_outside``, in float64. Samples
visit different items, so that each is drawn alone, and reads one lane of
``[num_items, L]``. Each sample has a seed: results do not depend on the order.
"""

import numpy as np
from numba.extending import register_jitable

from smoothsp._kernels.circuits.cpu.max_product import fill_with_padding
from smoothsp._kernels.circuits.layout.addresses import load_circuit, load_row_roots
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays


@kernel
def sample_outputs(first, last, circuit, rows, seeds, scratch, labels):
    """Fill labels[B, n, N] of the rows ``rows.order[first:last]`` from seeds[B, n].

    -1 at positions without a label. ``inside_only`` has filled ``scratch``, in float64,
    for the same rows, at most one per lane.
    """
    circuit, rows = load_circuit(circuit), load_row_roots(rows)
    L = 64 // scratch.itemsize
    m, e = scratch[0], scratch[1]
    leaves = circuit.num_row_leaves + circuit.num_shared_leaves
    stack = arrays.empty(circuit.max_depth + 2, np.int64)
    for lane in range(last - first):
        row = rows.order[first + lane]
        for i in range(labels.shape[1]):
            row_labels = labels[row, i]
            fill_with_padding(row_labels)
            state = np.uint64(seeds[row, i])
            # an infeasible row has an empty stack, and its labels stay -1
            top = 1 if m[rows.roots[row] * L + lane] > 0 else 0
            stack[0] = rows.roots[row]
            while top > 0:
                top -= 1
                item = stack[top]
                if item > leaves:
                    # golden-ratio increment of splitmix64
                    state += np.uint64(0x9E3779B97F4A7C15)
                    u = splitmix64_uniform(state)
                    a, b = _sample_product(m, e, lane, L, item, circuit, u)
                    stack[top], stack[top + 1] = b, a
                    top += 2
                elif circuit.positions[item] >= 0:
                    row_labels[circuit.positions[item]] = circuit.values[item]


@register_jitable
def splitmix64_uniform(state):
    """Return a number in [0, 1) from a state that grows by a constant each step.

    Source: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators"
    (2014), figure 17.
    """
    z = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    # the upper 53 bits, which float64 represents exactly
    return np.float64((z ^ (z >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53


@subroutine
def _sample_product(m, e, lane, L, item, circuit, u):
    """Draw a product of an item with probability proportional to its term."""
    runs, starts = circuit.runs, circuit.starts
    h = circuit.definition[item]
    first = starts[h]
    a, b = np.intp(runs[first, 1]), np.intp(runs[first, 3])
    if starts[h + 1] - first == 1 and runs[first, 0] == 1:
        return a, b
    remaining = u * m[item * L + lane]
    top = e[item * L + lane]
    best_a = best_b = np.intp(0)
    for r in range(first, starts[h + 1]):
        a, b = np.intp(runs[r, 1]), np.intp(runs[r, 3])
        for _ in range(runs[r, 0]):
            p, q = a * L + lane, b * L + lane
            weight = m[p] * m[q]
            if weight > 0:
                # if rounding leaves a remainder: the last possible product
                best_a, best_b = a, b
                remaining -= weight * 2.0 ** (e[p] + e[q] - top)
                if remaining < 0:
                    return a, b
            a += runs[r, 2]
            b += runs[r, 4]
    return best_a, best_b
