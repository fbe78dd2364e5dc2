"""Shrinking without thresholds: blocks that did not change are skipped for some sweeps.

A block that was solved and did not change is skipped for 1 sweep, then for 3, for 7 and
so on. After a change it is solved in every sweep again. At most ``2^max_skip_level -
1`` consecutive sweeps skip a block, so the order is essentially cyclic, as convergence
theorems of coordinate descent require.
"""

from smoothsp._kernels.compilation.subroutine import subroutine


@subroutine(forceinline=True)
def update_skips(i, is_unmoved, max_skip_level, skips_left, skip_level):
    """Update skips_left and skip_level of block i after a solve.

    ``max_skip_level`` 0 disables skipping.
    """
    if is_unmoved:
        if skip_level[i] < max_skip_level:
            skip_level[i] += 1
        skips_left[i] = (1 << skip_level[i]) - 1
    else:
        skip_level[i] = 0
