"""Sum-product circuits: what compiled loops read of one."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]


class CircuitArrays(NamedTuple):
    """The topology of a circuit: items, each the sum of products of two earlier ones.

    Item 0 is the empty product, then come the leaves of a row, then those that all rows
    share, then what is defined. Definition h makes item ``heads[h]`` from the runs
    ``starts[h]`` to ``starts[h + 1]``. A run is ``count`` products, of the items
    ``a + e * step_a`` and ``b + e * step_b`` for e from 0: five integers.

    Definitions in a tile follow each other, have one run each, and the same left
    factors: what is loaded of these serves all of them.
    """

    num_items: int
    num_row_leaves: int
    num_shared_leaves: int
    heads: Ints  # [H]
    starts: Ints  # [H + 1]
    runs: Ints  # [R, 5]: count, a, step_a, b, step_b
    tiles: Ints  # [H]: TILE at the first of a tile, 0 at its others, 1 elsewhere
    definition: Ints  # [items]: by which definition, -1 for leaves
    first_definition: Ints  # [items]: the first definition that the item needs
    max_leaves: Ints  # [items]: the most leaves that one product uses, -1 if impossible
    max_depth: int  # the most definitions that stand above each other
    positions: Ints  # [1 + own + shared]: which label a leaf sets, -1 for none
    values: Ints  # [1 + own + shared]: to what


class RowRoots(NamedTuple):
    """Which items answer for the rows of a batch."""

    order: NDArray[np.int64]  # [B]: rows with much to do first
    roots: NDArray[np.int64]  # [B]: of row b, not of order[b]


# Definitions in a tile.
TILE = 4
# Columns of a table of potentials, in the order of their leaves: the address of an
# array, contiguous; how many leaves it has; whether all rows share it; the address of
# the array ``[B, width]`` that answers of its leaves go to, 0 for none.
ADDRESS, WIDTH, SHARED, TARGET = range(4)
