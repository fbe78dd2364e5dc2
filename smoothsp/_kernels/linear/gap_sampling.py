"""Draws in proportion to numbers that change: a tree of their sums.

Leaf i is ``tree[leaves + i]``, and a node the sum of its two children, computed anew,
so that nothing drifts.
"""

from numba import njit

from smoothsp._kernels.compilation.kernel import kernel


@kernel
def fill_tree(numbers, tree):
    """Build the tree; half of its length is a power of two, at least as many."""
    leaves = len(tree) // 2
    tree[:] = 0.0
    tree[leaves : leaves + len(numbers)] = numbers
    for q in range(leaves - 1, 0, -1):
        tree[q] = tree[2 * q] + tree[2 * q + 1]


@njit(error_model="numpy", nogil=True)
def set_leaf(tree, i, number):
    """Change one number."""
    q = len(tree) // 2 + i
    tree[q] = number
    while q > 1:
        q //= 2
        tree[q] = tree[2 * q] + tree[2 * q + 1]


@njit(error_model="numpy", nogil=True)
def draw(tree, uniform):
    """Which leaf holds the share ``uniform`` of the total, which is above 0."""
    leaves = len(tree) // 2
    rest = uniform * tree[1]
    q = 1
    while q < leaves:
        q *= 2
        # rounding may leave more than there is: never go where nothing is
        if rest >= tree[q] and tree[q + 1] > 0.0:
            rest -= tree[q]
            q += 1
    return q - leaves
