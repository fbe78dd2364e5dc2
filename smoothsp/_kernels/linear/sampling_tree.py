"""A tree of sums, from which numbers are drawn in proportion to their size."""

from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors.arrays import copy


@kernel
def fill_tree(numbers, tree):
    """Build the tree from which ``draw`` draws in proportion to ``numbers``.

    Leaf i is ``tree[leaves + i]``, the root ``tree[1]``, the children of q are 2q and
    2q + 1. A node is the sum of its two children, computed anew, so nothing drifts.
    Half of the length is a power of two, at least as many as the numbers.
    """
    leaves = len(tree) // 2
    tree[:] = 0.0
    copy(numbers, tree[leaves : leaves + len(numbers)])
    for q in range(leaves - 1, 0, -1):
        tree[q] = tree[2 * q] + tree[2 * q + 1]


@subroutine(optimise=False)
def set_leaf(tree, i, number):
    """Change one number and the sums above it."""
    q = len(tree) // 2 + i
    tree[q] = number
    while q > 1:
        q //= 2
        tree[q] = tree[2 * q] + tree[2 * q + 1]


@subroutine(optimise=False)
def sample_leaf(tree, uniform):
    """Which leaf holds the share ``uniform`` of the total, which is above 0."""
    leaves = len(tree) // 2
    remaining = uniform * tree[1]
    q = 1
    while q < leaves:
        q *= 2
        # rounding may leave too large a rest: never go to a child that is 0
        if remaining >= tree[q] and tree[q + 1] > 0.0:
            remaining -= tree[q]
            q += 1
    return q - leaves
