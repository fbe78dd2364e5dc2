"""Builder of circuits: each item is a sum of products of earlier items."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothsp._kernels.circuits.cpu import topology
from smoothsp._kernels.circuits.layout.circuit_arrays import CircuitArrays

Items = NDArray[np.int32]
# heads, starts, runs, tiles: see ``Edges``
Definitions = tuple[Items, Items, Items, Items]


class Circuit:
    """Items, each the sum of products of two earlier ones: a dynamic programme.

    Items are integers. All methods take and return numpy arrays of items, which you
    index as usual. ``ONE`` is the empty product. ``NONE`` in place of a factor removes
    that product. Assign items with a known value directly: ``chart[i, i] =
    circuit.ONE``.

    Examples
    --------
    Exactly one of three leaves, twice over:

    >>> import numpy as np
    >>> from smoothsp.oracles._circuits import Circuit
    >>> circuit = Circuit()
    >>> score = circuit.leaves(2, 3)
    >>> either, both = circuit.chart(2), circuit.chart()
    >>> circuit.define(either, (score,))
    >>> circuit.multiply(both, either[0], either[1])
    >>> circuit.label(score, np.arange(2)[:, None], np.arange(3))
    >>> circuit.edges(both[None]).runs.tolist()
    [[3, 4, 1, 0, 0], [3, 1, 1, 0, 0], [1, 8, 0, 7, 0]]
    """

    ONE = 0
    NONE = -1

    def __init__(self) -> None:
        self._count = 1
        self._row_potentials = self._shared = 0
        self._is_leaf = np.ones(1, np.bool_)
        self._heads: list[Items] = []
        self._calls: list[Items] = []
        self._counts: list[Items] = []
        self._runs: list[Items] = []
        self._labels: list[tuple[Items, ...]] = []

    def leaves(self, *shape: int) -> Items:
        """Add leaves for the potentials of a row. Call it before ``shared``."""
        self._check_order("leaves", self._shared == 0)
        self._row_potentials += _num_items(shape)
        return self._reserve_items(shape, is_leaf=True)

    def shared(self, *shape: int) -> Items:
        """Add leaves for potentials that all rows share. Call it before ``chart``."""
        self._check_order("shared", True)
        self._shared += _num_items(shape)
        return self._reserve_items(shape, is_leaf=True)

    def chart(self, *shape: int) -> Items:
        """Add undefined items, for ``define`` or ``multiply`` to define."""
        return self._reserve_items(shape, is_leaf=False)

    def define(self, items: ArrayLike, *terms: Sequence[ArrayLike]) -> None:
        """Define each item as a sum over terms and the last axis of ``left * right``.

        Parameters
        ----------
        items
            Of any shape, ``[*]``: independent definitions.
        terms
            ``(left, right)`` or ``(left,)``, each of shape ``[*, products]``: the axes
            of ``items`` and one more, which is summed. Axes of size 1 are broadcast;
            missing axes are not. An item without products is impossible.

        Raises
        ------
        ValueError
            If shapes do not fit, or something is used before it is defined, or defined
            twice.
        """
        heads = np.asarray(items, np.int32)
        none = np.zeros((heads.size, 0), np.int32)
        factors = [self._gather_factors(heads.shape, term) for term in terms]
        left = np.hstack([none, *(f[0] for f in factors)])
        right = np.hstack([none, *(f[1] for f in factors)])
        width = left.shape[1]
        starts = np.arange(heads.size + 1) * width
        for factor in (left, right):
            unknown = ~self._is_leaf[factor] & (left >= 0) & (right >= 0)
            if unknown.any():
                raise ValueError(
                    f"define: item {factor[unknown][0]} is used before it is defined"
                )
        call = np.full(heads.size, len(self._calls), np.int32)
        self._add_definitions(
            heads.reshape(-1), starts, left.reshape(-1), right.reshape(-1), call
        )

    def define_each(
        self, items: ArrayLike, counts: ArrayLike, left: ArrayLike, right: ArrayLike
    ) -> None:
        """Define items with different numbers of products, in order.

        Parameters
        ----------
        items
            ``[n]``.
        counts
            ``[n]``: the number of products of each item.
        left, right
            Factors of all products, those of the first item first.
        """
        heads, size, left, right = (
            np.asarray(x, np.int32).reshape(-1) for x in (items, counts, left, right)
        )
        if not (len(heads) == len(size) and size.sum() == len(left) == len(right)):
            raise ValueError(
                "define_each: expected a count for each item, and as many factors as "
                f"they say, got {len(heads)} items, {len(size)} counts of "
                f"{size.sum()} products, {len(left)} and {len(right)} factors"
            )
        offset = np.where(self._is_leaf, -1, len(heads))
        offset[heads] = np.arange(len(heads))
        turn = np.repeat(np.arange(len(heads)), size)
        for factor in (left, right):
            late = (offset[factor] >= turn) & (left >= 0) & (right >= 0)
            if late.any():
                raise ValueError(
                    f"define_each: item {factor[late][0]} is used before it is defined"
                )
        # a separate call for each item: items of one call must be independent
        self._add_definitions(heads, np.append(0, np.cumsum(size)), left, right, -heads)

    def multiply(
        self, items: ArrayLike, left: ArrayLike, right: ArrayLike | None = None
    ) -> None:
        """Define ``item = left * right`` elementwise; all have one shape."""
        heads = np.asarray(items, np.int32)
        factors = [np.asarray(x, np.int32) for x in (left, right) if x is not None]
        for factor in factors:
            if factor.shape != heads.shape:
                raise ValueError(
                    f"multiply: expected factors of the shape of items, {heads.shape}, "
                    f"got {factor.shape}"
                )
        self.define(heads, [x[..., None] for x in factors])

    def label(self, leaves: Items, positions: ArrayLike, values: ArrayLike) -> None:
        """Set ``y[position] = value`` in outputs that use the leaf; positions are flat.

        Positions and values broadcast to the leaves, as numpy does.
        """
        leaf = np.asarray(leaves, np.int32)
        if (
            leaf.size
            and not 0 < leaf.min() <= leaf.max() <= self._row_potentials + self._shared
        ):
            raise ValueError("label: expected leaves, got other items")
        at, value = (
            np.broadcast_to(np.asarray(x, np.int32), leaf.shape)
            for x in (positions, values)
        )
        self._labels.append((leaf.reshape(-1), at.reshape(-1), value.reshape(-1)))

    def edges(self, roots: NDArray[np.int64]) -> CircuitArrays:
        """Definitions reachable from these items, in the format of compiled loops."""
        heads = np.concatenate([np.zeros(0, np.int32), *self._heads])
        calls = np.concatenate([np.zeros(0, np.int32), *self._calls])
        counts = np.concatenate([np.zeros(0, np.int32), *self._counts])
        runs = np.concatenate([np.zeros((0, 5), np.int32), *self._runs])
        definitions = _sort_definitions(heads, calls, counts, runs, roots, self._count)
        leaves = self._row_potentials + self._shared
        labels = np.full((2, 1 + leaves), -1, np.int32)
        for leaf, at, value in self._labels:
            labels[0, leaf], labels[1, leaf] = at, value
        return _build_arrays(
            self._row_potentials, self._shared, self._count, labels, definitions
        )

    def _reserve_items(self, shape: tuple[int, ...], is_leaf: bool) -> Items:
        size = _num_items(shape)
        first = self._count
        self._count += size
        if self._count > len(self._is_leaf):
            more = np.zeros(self._count, np.bool_)
            self._is_leaf = np.append(self._is_leaf, more)
        self._is_leaf[first : self._count] = is_leaf
        return np.arange(first, self._count, dtype=np.int32).reshape(shape)

    def _gather_factors(
        self, shape: tuple[int, ...], term: Sequence[ArrayLike]
    ) -> tuple[Items, Items]:
        """Both factors of a term as ``[items, products]``."""
        if not isinstance(term, (tuple, list)) or len(term) not in (1, 2):
            raise TypeError("define: expected terms (left, right) or (left,)")
        factors = [np.asarray(x, np.int32) for x in term]
        for factor in factors:
            fits = factor.ndim == len(shape) + 1 and all(
                have in (1, want)
                for have, want in zip(factor.shape, shape, strict=False)
            )
            if not fits:
                raise ValueError(
                    f"define: expected factors (*{shape}, products), got "
                    f"{factor.shape}; give each axis, one of length 1 is repeated"
                )
        widths = {x.shape[-1] for x in factors}
        if len(widths - {1}) > 1:
            raise ValueError(
                f"define: expected as many left as right factors, got {sorted(widths)}"
            )
        width = min(widths) if 0 in widths else max(widths)
        size = _num_items(shape)
        left, *right = (
            np.broadcast_to(x[..., :width], (*shape, width)).reshape(size, width)
            for x in factors
        )
        return left, right[0] if right else np.full_like(left, self.ONE)

    def _add_definitions(
        self,
        heads: Items,
        starts: NDArray[np.int64],
        left: Items,
        right: Items,
        calls: Items,
    ) -> None:
        absent = (left < 0) | (right < 0)
        if absent.any():
            left, right = np.where(absent, -1, left), np.where(absent, -1, right)
        ordered = np.sort(heads)
        twice = (ordered[1:] == ordered[:-1]).any()
        if twice or self._is_leaf[heads].any():
            raise ValueError("define: an item is defined twice, or is a leaf")
        self._is_leaf[heads] = True
        counts = np.empty(len(heads), np.int32)
        runs = np.empty((2 * len(heads), 5), np.int32)
        products = starts, np.ascontiguousarray(left), np.ascontiguousarray(right)
        result = topology.compress_into_runs(*products, counts, runs)
        if result > len(runs):
            runs = np.empty((result, 5), np.int32)
            topology.compress_into_runs(*products, counts, runs)
        self._heads.append(heads)
        self._calls.append(calls)
        self._counts.append(counts)
        self._runs.append(runs[:result].copy())

    def _check_order(self, name: str, early: bool) -> None:
        if not early or self._count > 1 + self._row_potentials + self._shared:
            raise ValueError(f"{name}: expected leaves, then shared ones, then charts")


def subgraph(edges: CircuitArrays, root: int) -> CircuitArrays:
    """Return the edges with only the definitions reachable from a root, in order."""
    tiles, order = edges.tiles, np.empty_like(edges.heads)
    args = edges.starts, edges.runs, tiles, edges.definition
    order = np.sort(order[: topology.depth_first_order(*args, np.array([root]), order)])
    if len(order) == len(tiles):
        return edges
    labels = np.stack([edges.positions, edges.values])
    definitions = _reorder_definitions(
        order, edges.heads, edges.starts, edges.runs, tiles
    )
    return _build_arrays(
        edges.num_row_leaves,
        edges.num_shared_leaves,
        edges.num_items,
        labels,
        definitions,
    )


def _build_arrays(
    num_row_leaves: int,
    num_shared_leaves: int,
    num_items: int,
    labels: Items,
    definitions: Definitions,
) -> CircuitArrays:
    heads, starts, runs, tiles = definitions
    properties = np.empty((4, num_items), np.int32)
    num_leaves = num_row_leaves + num_shared_leaves
    topology.item_properties(num_leaves, heads, starts, runs, tiles, *properties)
    definition, first_definition, max_leaves, depths = properties
    return CircuitArrays(
        num_items=num_items,
        num_row_leaves=num_row_leaves,
        num_shared_leaves=num_shared_leaves,
        heads=heads,
        starts=starts,
        runs=runs,
        tiles=tiles,
        definition=definition,
        first_definition=first_definition,
        max_leaves=max_leaves,
        max_depth=int(depths.max()),
        positions=labels[0],
        values=labels[1],
    )


def _sort_definitions(
    heads: Items,
    calls: Items,
    counts: Items,
    runs: Items,
    roots: NDArray[np.int64],
    items: int,
) -> Definitions:
    """Order the definitions reachable from the roots depth first.

    Factors then are defined shortly before their use.
    """
    starts = np.append(0, np.cumsum(counts)).astype(np.int32)
    tiles, order = np.empty_like(heads), np.empty_like(heads)
    topology.mark_tiles_and_swap_factors(calls, starts, runs, tiles)
    definition = np.full(items, -1, np.int32)
    definition[heads] = np.arange(len(heads))
    order = order[
        : topology.depth_first_order(starts, runs, tiles, definition, roots, order)
    ]
    return _reorder_definitions(order, heads, starts, runs, tiles)


def _reorder_definitions(
    order: Items, heads: Items, starts: Items, runs: Items, tiles: Items
) -> Definitions:
    """Gather definitions and their runs in the given order."""
    counts = np.diff(starts)[order]
    ends = np.append(0, np.cumsum(counts)).astype(np.int32)
    within = np.arange(ends[-1]) - np.repeat(ends[:-1], counts)
    runs = np.ascontiguousarray(runs[np.repeat(starts[order], counts) + within])
    return heads[order], ends, runs, tiles[order]


def _num_items(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64))
