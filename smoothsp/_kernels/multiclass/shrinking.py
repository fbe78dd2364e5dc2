"""Blocks that do not move are passed over for a while: shrinking without thresholds.

A block that was solved and did not move is left alone for 1 sweep, then for 3, for 7
and so on, and from the first move on is solved in every sweep again. No rest is longer
than ``2^patience - 1`` sweeps, so the order stays essentially cyclic.
"""

from numba import njit


@njit(error_model="numpy", forceinline=True, no_cpython_wrapper=True)
def rest(i, unmoved, patience, waits, calm):
    """Count the move of block i; ``patience`` 0 is no rest at all."""
    if unmoved:
        if calm[i] < patience:
            calm[i] += 1
        waits[i] = (1 << calm[i]) - 1
    else:
        calm[i] = 0
