"""Arrays of a sum-product circuit, in the layout of compiled loops."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]


class CircuitArrays(NamedTuple):
    """The topology of a circuit: each item is a sum of products of two earlier items.

    Item 0 is the empty product. The leaves of a row follow, then the leaves that all
    rows share, then the defined items. Definition h is item ``heads[h]``, the sum over
    the runs ``starts[h]`` to ``starts[h + 1]``. A run is five integers: the number of
    its products, and a, step_a, b, step_b for the items ``a + e step_a`` and ``b + e
    step_b`` with e from 0.

    Definitions in a tile are consecutive, have one run each, and the same left factors:
    a loop loads these once for all of them.
    """

    num_items: int
    num_row_leaves: int
    num_shared_leaves: int
    heads: Ints  # [H]
    starts: Ints  # [H + 1]
    runs: Ints  # [R, 5]: count, a, step_a, b, step_b
    tiles: Ints  # [H]: TILE at the first of a tile, 0 at its others, 1 elsewhere
    definition: Ints  # [items]: by which definition, -1 for leaves
    first_definition: Ints  # [num_items]: the lowest definition below the item
    max_leaves: Ints  # [num_items]: the most leaves of one product, -1 if infeasible
    max_depth: int  # the largest number of nested definitions
    positions: Ints  # [1 + leaves]: the position that a leaf labels, -1 for none
    values: Ints  # [1 + leaves]: the label


class RowRoots(NamedTuple):
    """The root items of the rows of a batch."""

    order: NDArray[np.int64]  # [B]: rows, those with the largest circuits first
    roots: NDArray[np.int64]  # [B]: of row b, not of order[b]


# Definitions in a tile.
TILE = 4
# Columns of a table of potentials, in the order of their leaves: the address of a
# contiguous array; its number of leaves; whether all rows share it; the address of the
# array ``[B, width]`` that receives results for its leaves, 0 for none.
ADDRESS, WIDTH, SHARED, TARGET = range(4)
