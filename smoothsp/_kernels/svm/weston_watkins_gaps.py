"""The duality gap of one sample of the Weston-Watkins SVM."""

from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors.simd import load, maximum, select_lt, splat
from smoothsp._kernels.vectors.simd_masked import reduce_sum


@subroutine(forceinline=True)
def sample_gap(y, z, cost, cost_offset, limit, cap, K, P, zeros, a, row_offset):
    """Return loss, linear part of the dual and duality gap of a sample with scores z.

    Arguments as in ``weston_watkins_blocks``. With ``b = -a`` and sums over classes
    other than y, the loss is ``c sum max(0, m)``, the linear part ``sum b cost``. The
    gap ``c max(0, m) - b m`` is summed as ``(c - b) max(0, m) + b max(0, -m)``, in
    which nothing cancels.
    """
    V = len(zeros)
    zero = splat(zeros[0])
    cap[:K] = limit
    cap[y] = 0
    shift = splat(z[y])
    loss = linear = gap = zero
    for j in range(0, P, V):
        c = load(cost, cost_offset + j)
        m = c + (load(z, j) - shift)
        bound = load(cap, j)
        # b is 0 at y and in the padding past K
        b = select_lt(zero, bound, zero - load(a, row_offset + j), zero)
        above, below = maximum(m, zero), maximum(zero - m, zero)
        loss = loss + bound * above
        linear = linear + b * c
        gap = gap + ((bound - b) * above + b * below)
    return reduce_sum(loss), reduce_sum(linear), reduce_sum(gap)
