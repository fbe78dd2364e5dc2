"""Sum tree: sampling from numbers in proportion to their size."""

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors.arrays import copy


@kernel
def fill_tree(numbers, tree):
    """Build the sum tree of ``numbers``, from which ``sample_leaf`` draws.

    Leaf i is ``tree[leaves + i]``, the root ``tree[1]``, the children of q are 2q and
    2q + 1. The number of leaves, half of the length, is a power of two and at least
    that of the numbers.
    """
    leaves = len(tree) // 2
    # unused leaves are 0, and are never drawn
    tree[:] = 0.0
    copy(numbers, tree[leaves : leaves + len(numbers)])
    for q in range(leaves - 1, 0, -1):
        tree[q] = tree[2 * q] + tree[2 * q + 1]


@subroutine(optimise=False)
def set_leaf(tree, i, number):
    """Change one number, and recompute the sums above it."""
    q = len(tree) // 2 + i
    tree[q] = number
    while q > 1:
        # recomputed from both children instead of updated: rounding does not accumulate
        q //= 2
        tree[q] = tree[2 * q] + tree[2 * q + 1]


@subroutine(optimise=False)
def sample_leaf(tree, uniform):
    """Return the leaf at the fraction ``uniform`` of the total, which is positive."""
    leaves = len(tree) // 2
    remaining = uniform * tree[1]
    q = 1
    while q < leaves:
        q *= 2
        # rounding may leave too large a remainder: children of sum 0 are avoided
        if remaining >= tree[q] and tree[q + 1] > 0.0:
            remaining -= tree[q]
            q += 1
    return q - leaves
