"""Schedules of topologies for devices: level by level, upwards and downwards."""

from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from smoothsp._kernels.circuits.cpu.topology import item_properties
from smoothsp._kernels.circuits.layout.circuit_arrays import CircuitArrays
from smoothsp._kernels.circuits.layout.schedule import DeviceCircuit, Schedule
from smoothsp.oracles._circuits.topology import Topology

Ints = NDArray[np.int64]
_CACHE: "WeakKeyDictionary[Topology, dict[torch.device, DeviceCircuit]]" = (
    WeakKeyDictionary()
)


def device_schedule(topology: Topology, device: torch.device) -> DeviceCircuit:
    """Return the topology on a device, cached by device."""
    circuits = _CACHE.setdefault(topology, {})
    if device not in circuits:
        circuits[device] = _build_device_schedule(topology.edges, device)
    return circuits[device]


def depths(edges: CircuitArrays) -> NDArray[np.int32]:
    """Depth of each item: the number of definitions on its longest path to a leaf."""
    leaves = edges.num_row_leaves + edges.num_shared_leaves
    needs = np.empty((4, edges.num_items), np.int32)
    item_properties(leaves, edges.heads, edges.starts, edges.runs, edges.tiles, *needs)
    result: NDArray[np.int32] = needs[3]
    return result


def products(edges: CircuitArrays) -> tuple[Ints, Ints, Ints]:
    """Expand the runs to products: definition, left factor and right factor."""
    count, a, step_a, b, step_b = edges.runs.T.astype(np.int64)
    run = np.repeat(np.arange(len(count)), count)
    i = np.arange(len(run)) - np.repeat(np.cumsum(count) - count, count)
    definition = np.repeat(np.arange(len(edges.heads)), np.diff(edges.starts))
    return definition[run], a[run] + i * step_a[run], b[run] + i * step_b[run]


def _build_device_schedule(edges: CircuitArrays, device: torch.device) -> DeviceCircuit:
    depth = depths(edges)

    def to_device(x: NDArray[np.integer]) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(x, np.int32)).to(device)

    def schedule(rank: Ints, heads: Ints, counts: Ints, runs: Ints) -> Schedule:
        return Schedule(*map(to_device, _group_by_rank(rank, heads, counts, runs)))

    of_definitions = depth[edges.heads].astype(np.int64)
    counts = np.diff(edges.starts).astype(np.int64)
    heads, runs = edges.heads.astype(np.int64), edges.runs.astype(np.int64)
    up = schedule(of_definitions - 1, heads, counts, runs)
    items, uses, runs = _list_uses(edges)
    deepest = int(depth.max(initial=0))
    down = schedule(deepest - depth[items].astype(np.int64), items, uses, runs)
    tables = (edges.max_leaves, edges.positions, edges.values)
    return DeviceCircuit(
        edges.num_items, deepest, up, down, to_device(depth), *map(to_device, tables)
    )


def _list_uses(edges: CircuitArrays) -> tuple[Ints, Ints, Ints]:
    """Leaves and defined items, the number of runs of their uses, and the runs.

    A use of an item is a product with it: the head of the product and the other factor.
    Marginals gather over uses, so no two threads add to one item.
    """
    definition, left, right = products(edges)
    head = edges.heads.astype(np.int64)[definition]
    used, other = np.append(left, right), np.append(right, left)
    head = np.append(head, head)
    is_leaf = used > 0  # the empty product has no marginal
    used, head, other = used[is_leaf], head[is_leaf], other[is_leaf]
    order = np.lexsort((other, head, used))
    used, head, other = used[order], head[order], other[order]
    begins = _starts_run(used, head, other)
    first = np.flatnonzero(begins)
    count = np.diff(np.append(first, len(used)))
    second = np.minimum(first + 1, max(len(used) - 1, 0))
    steps = (np.where(count > 1, x[second] - x[first], 0) for x in (head, other))
    step_head, step_other = steps
    runs = np.stack([count, head[first], step_head, other[first], step_other], 1)
    leaves = np.arange(1, 1 + edges.num_row_leaves + edges.num_shared_leaves)
    items = np.sort(np.append(leaves, edges.heads))
    return items, np.bincount(used[first], minlength=edges.num_items)[items], runs


def _starts_run(used: Ints, head: Ints, other: Ints) -> NDArray[np.bool_]:
    """Mask of the uses that start a run with constant steps."""
    n = len(used)
    same = np.zeros(n, np.bool_)
    same[1:] = used[1:] == used[:-1]
    goes_on = np.zeros(n, np.bool_)
    if n > 2:
        even = np.ones(n - 2, np.bool_)
        for x in (head, other):
            step = np.diff(x)
            even &= step[1:] == step[:-1]
        goes_on[2:] = even & same[2:] & same[1:-1]
    # Two uses always form a run. In a row of uses that do not continue a run, every
    # second use begins one, counted from the first, or from the first of an item.
    position = np.arange(n)
    opens = ~goes_on & (~same | np.append(True, goes_on[:-1])[:n])
    since = position - np.maximum.accumulate(np.where(opens, position, 0))
    begins: NDArray[np.bool_] = ~goes_on & (since % 2 == 0)
    return begins


def _group_by_rank(
    rank: Ints, heads: Ints, counts: Ints, runs: Ints
) -> tuple[Ints, ...]:
    """Levels, heads, starts and runs of items in order of rank.

    Within a level items are sorted by their number of runs: a block of items takes as
    long as its largest.
    """
    starts = np.cumsum(counts) - counts
    order = np.lexsort((counts, rank))
    levels = np.append(0, np.cumsum(np.bincount(rank)))
    ends = np.append(0, np.cumsum(counts[order]))
    within = np.arange(ends[-1]) - np.repeat(ends[:-1], counts[order])
    runs = runs[np.repeat(starts[order], counts[order]) + within]
    return levels, heads[order], ends, runs
