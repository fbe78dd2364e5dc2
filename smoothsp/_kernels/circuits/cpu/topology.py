"""Topology of circuits: products as runs, tiles, properties of items, and an order.

A run is (count, a, step_a, b, step_b): the products of items ``a + e step_a`` and
``b + e step_b``. Dynamic programmes have long runs. Inner loops then advance two
addresses by constants, and read no index per product.
"""

import numpy as np

from smoothsp._kernels.circuits.layout.circuit_arrays import TILE
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays


@kernel
def compress_into_runs(starts, left, right, counts, runs):
    """Fill counts[H] and runs[., 5] with the products of ``left[e]`` and ``right[e]``.

    Definition h has the products ``starts[h]`` to ``starts[h + 1]``; -1 is none. A run
    continues while both factors advance by the same steps. Return the number of runs;
    ``runs`` may be shorter, and is then filled to its end.
    """
    num_runs = 0
    for h in range(len(counts)):
        last = starts[h + 1]
        first_run = num_runs
        count = a = b = step_a = step_b = last_a = last_b = 0
        # e = last is no product: it closes the last run
        for e in range(starts[h], last + 1):
            # e = last is no product: it closes the last run
            p = left[e] if e < last else -1
            q = right[e] if e < last else -1
            if p < 0 and e < last:
                continue
            if count == 1 and e < last:
                step_a, step_b = p - a, q - b
            is_continued = count > 0 and p == last_a + step_a and q == last_b + step_b
            if e < last and is_continued:
                count += 1
            else:
                if count > 0:
                    if num_runs < len(runs):
                        if count == 1:
                            step_a = step_b = 0
                        # a right factor of step 0 stays in a register of the inner loop
                        if step_a == 0:
                            # a right factor of step 0 stays in a register
                            a, step_a, b, step_b = b, step_b, a, step_a
                        runs[num_runs, 0] = count
                        runs[num_runs, 1], runs[num_runs, 2] = a, step_a
                        runs[num_runs, 3], runs[num_runs, 4] = b, step_b
                    num_runs += 1
                count, a, b = 1, p, q
            last_a, last_b = p, q
        counts[h] = num_runs - first_run
    return num_runs


@kernel
def mark_tiles_and_swap_factors(calls, starts, runs, tiles):
    """Fill tiles[H], and swap factors where that makes a tile.

    The definitions of a tile have one run each, of equal length, and a common factor.
    This becomes the left one, which a loop over the tile loads once.

    Definitions of the same call, by its number ``calls[H]``, do not depend on each
    other. Others may, even with common factors: ``x[t] = sum over d of w[d] x[t - d]``.
    """
    H = len(tiles)
    h = 0
    while h < H:
        tiles[h] = 1
        side = -1
        if h + TILE <= H and calls[h] == calls[h + TILE - 1]:
            side = _shared_factor_column_of_tile(starts, runs, h)
        if side < 0:
            h += 1
            continue
        for r in range(starts[h], starts[h] + TILE):
            if side == 3:
                a, step = runs[r, 1], runs[r, 2]
                runs[r, 1], runs[r, 2] = runs[r, 3], runs[r, 4]
                runs[r, 3], runs[r, 4] = a, step
        tiles[h] = TILE
        tiles[h + 1 : h + TILE] = 0
        h += TILE


@subroutine
def _shared_factor_column_of_tile(starts, runs, first_definition):
    """Return the column of the factor that a tile of definitions shares, or -1."""
    if starts[first_definition + TILE] - starts[first_definition] != TILE:
        return -1
    for side in (1, 3):
        is_equal = True
        for i in range(TILE):
            r, first = starts[first_definition + i], starts[first_definition]
            is_equal = is_equal and starts[first_definition + i + 1] - r == 1
            is_equal = is_equal and runs[r, 0] == runs[first, 0] > 1
            for column in (side, side + 1):
                is_equal = is_equal and runs[r, column] == runs[first, column]
            # the steps of the other factors are not 0, nor are those of the common ones
            is_equal = is_equal and runs[r, 2] != 0 and runs[r, 4] != 0
        if is_equal:
            return side
    return -1


@kernel
def depth_first_order(starts, runs, tiles, definition, roots, order):
    """Fill ``order`` with the definitions below the roots, the first root's first.

    A definition follows the last of those it depends on, whose results are then in the
    cache. A short row needs only a prefix. Return the number of definitions.

    The search is depth first, with an explicit stack. At the first definition h of a
    tile, ``run[h]`` and ``edge[h]`` are where it continues: the run, and twice the
    number of the product in it, plus 1 for the right factor.
    """
    H = len(tiles)
    visited = arrays.zeros(H, np.bool_)
    stack = arrays.empty(H + 1, np.int32)
    run, edge = arrays.empty(H, np.int32), arrays.zeros(H, np.int32)
    num_done = 0
    for root in roots:
        top = _push_tile(definition[root], starts, tiles, visited, run, stack, 0)
        while top > 0:
            h = stack[top - 1]
            size = max(tiles[h], 1)
            last = starts[h + size]
            before = top
            while top == before and run[h] < last:
                r, e = run[h], edge[h] >> 1
                if e == runs[r, 0]:
                    run[h] += 1
                    edge[h] = 0
                    continue
                column = 1 + 2 * (edge[h] & 1)
                edge[h] += 1
                item = runs[r, column] + e * runs[r, column + 1]
                top = _push_tile(
                    definition[item], starts, tiles, visited, run, stack, top
                )
            if top == before:
                top -= 1
                for i in range(size):
                    order[num_done] = h + i
                    num_done += 1
    return num_done


@subroutine
def _push_tile(h, starts, tiles, visited, run, stack, top):
    """Push the tile of a definition on the stack, unless it was visited."""
    if h < 0:
        return top
    while tiles[h] == 0:
        h -= 1
    if visited[h]:
        return top
    visited[h] = True
    run[h] = starts[h]
    stack[top] = h
    return top + 1


@kernel
def item_properties(
    leaves, heads, starts, runs, tiles, definition, first_definition, max_leaves, levels
):
    """Fill the properties of items in ``CircuitArrays``, and ``levels``, their depths.

    With h the definition of item i, and over its products (a, b), in order,

        first_definition(i) = min(h, first_definition(a), first_definition(b))
        max_leaves(i)       = max of max_leaves(a) + max_leaves(b), or -1
        levels(i)           = 1 + max(levels(a), levels(b))

    where max_leaves skips products with a factor of -1.
    """
    definition[:] = -1
    first_definition[:] = len(heads)
    max_leaves[:] = -1
    levels[:] = 0
    max_leaves[0] = 0
    max_leaves[1 : 1 + leaves] = 1
    for h in range(len(heads)):
        item = heads[h]
        definition[item] = h
        first, max_leaves_of_item, level = h, -1, 0
        for r in range(starts[h], starts[h + 1]):
            a, b = runs[r, 1], runs[r, 3]
            for _ in range(runs[r, 0]):
                first = min(first, first_definition[a], first_definition[b])
                level = max(level, levels[a], levels[b])
                if max_leaves[a] >= 0 and max_leaves[b] >= 0:
                    max_leaves_of_item = max(
                        max_leaves_of_item, max_leaves[a] + max_leaves[b]
                    )
                a += runs[r, 2]
                b += runs[r, 4]
        first_definition[item], max_leaves[item], levels[item] = (
            first,
            max_leaves_of_item,
            level + 1,
        )
        if h + 1 == len(heads) or tiles[h + 1] != 0:
            # a tile is computed as a whole, with the definitions that any of it needs
            tile = h
            while tiles[tile] == 0:
                tile -= 1
            for i in range(tile, h):
                first = min(first, first_definition[heads[i]])
            for i in range(tile, h + 1):
                first_definition[heads[i]] = first
