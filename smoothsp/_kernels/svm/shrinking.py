"""Blocks that do not move are skipped for a while: shrinking without thresholds.

A block that was solved and did not move is skipped for 1 sweep, then for 3, for 7 and
so on, and from the first move on is solved in every sweep again. At most
``2^patience - 1`` sweeps in a row skip it, so the order stays essentially cyclic.
"""

from smoothsp._kernels.compilation.subroutine import subroutine


@subroutine(forceinline=True)
def update_skips(i, is_unmoved, max_skip_level, skips_left, skip_level):
    """Update the skips of block i after a solve; max_skip_level 0 disables skipping."""
    if is_unmoved:
        if skip_level[i] < max_skip_level:
            skip_level[i] += 1
        skips_left[i] = (1 << skip_level[i]) - 1
    else:
        skip_level[i] = 0
