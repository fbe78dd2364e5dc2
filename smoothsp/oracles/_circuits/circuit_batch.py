"""Batches of rows of a circuit: the root item and the leaf scores of each row."""

from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothsp._kernels.circuits.layout.addresses import address_table
from smoothsp._kernels.circuits.layout.circuit_arrays import RowRoots
from smoothsp._kernels.circuits.layout.schedule import DeviceRowRoots
from smoothsp.oracles._circuits.topology import Topology
from smoothsp.oracles._inference.tracing import is_transformed

# Batches of rows of one size, by topology, root and number of rows.
_CACHE: "OrderedDict[tuple[int, int, int], CircuitBatch]" = OrderedDict()
CACHE_SIZE = 64


class Leaves(NamedTuple):
    """Scores of leaves: arrays ``[B, ...]`` of rows, and arrays shared by all rows."""

    per_row: tuple[Tensor, ...]
    shared: tuple[Tensor, ...]

    @property
    def arrays(self) -> tuple[Tensor, ...]:
        """All arrays."""
        return *self.per_row, *self.shared

    def concatenate(self) -> Tensor:
        """All leaves of each row in one array, ``[B, P + Q]``."""
        rows = [x.flatten(1) for x in self.per_row]
        common = [x.flatten().expand(len(self.per_row[0]), -1) for x in self.shared]
        return torch.cat([*rows, *common], 1)

    def map(self, change: Any) -> "Leaves":
        """Apply a function to each array."""
        return Leaves(tuple(map(change, self.per_row)), tuple(map(change, self.shared)))


class CircuitBatch:
    """A topology, and the root items ``[B]`` of the rows, int64 on the CPU."""

    def __init__(self, topology: Topology, roots: Tensor) -> None:
        self.topology = topology
        self.roots, root_array = (
            _unwrap_roots(roots) if is_transformed() else (roots, roots.numpy())
        )
        self.has_shared_root = not len(root_array) or bool(
            (root_array == root_array[0]).all()
        )
        order = np.arange(len(root_array))
        if not self.has_shared_root:
            # similar rows share a vector, whose work is that of its longest row
            order = np.argsort(-topology.edges.definition[root_array], kind="stable")
        self.rows = RowRoots(order, np.ascontiguousarray(root_array, np.int64))
        self.rows_address = address_table(self.rows)
        self.edges, self.edges_address = topology.edges, topology.edges_address
        self.size = len(root_array)
        self._lanes: dict[torch.device, DeviceRowRoots] = {}
        # reachable leaves and labels of rows with different roots, computed once
        self.usable_parts: tuple[Tensor, Tensor] | None = None
        self.is_feasible = bool((topology.edges.max_leaves[root_array] >= 0).all())

    @classmethod
    def with_shared_root(
        cls, topology: Topology, root: int, rows: int
    ) -> "CircuitBatch":
        """Return the cached batch with one root item for all rows."""
        key = (id(topology), root, rows)
        batch = _CACHE.get(key)
        if batch is None or batch.topology is not topology:
            roots = torch.full((rows,), root, dtype=torch.int64, device="cpu")
            batch = _CACHE[key] = cls(topology, roots)
            batch.edges = topology.subgraph(root)
            batch.edges_address = address_table(batch.edges)
            while len(_CACHE) > CACHE_SIZE:
                _CACHE.popitem(last=False)
        return batch

    def __getstate__(self) -> dict[str, Any]:
        # addresses and device tensors belong to this object: a copy makes its own
        left = {"edges_address", "rows_address", "_lanes"}
        return {name: x for name, x in vars(self).items() if name not in left}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._lanes, self.rows_address = {}, address_table(self.rows)
        self.edges_address = address_table(self.edges)

    def select(self, rows: Any) -> "CircuitBatch":
        """Return the batch of the given rows."""
        return CircuitBatch(self.topology, self.roots[rows])

    def repeat(self, times: int) -> "CircuitBatch":
        """Return the batch that repeats all rows ``times`` times."""
        if self.has_shared_root and len(self.roots):
            num_rows = times * len(self.roots)
            return CircuitBatch.with_shared_root(
                self.topology, int(self.roots[0]), num_rows
            )
        return CircuitBatch(self.topology, self.roots.repeat(times))

    def lanes(self, device: torch.device) -> DeviceRowRoots:
        """Roots and order of the rows on a device, cached."""
        if device not in self._lanes:
            order = torch.from_numpy(self.rows.order)
            self._lanes[device] = DeviceRowRoots(
                order.to(device), self.roots.to(device)
            )
        return self._lanes[device]

    def work(self, lanes: int, steps: int) -> int:
        """Estimated work of a pass over all products, ``steps`` per vector of rows."""
        return self.topology.products * steps * -(-len(self.roots) // lanes)


def _unwrap_roots(roots: Tensor) -> tuple[Tensor, NDArray[np.int64]]:
    """Return the root items as tensor and array, from under ``torch.func``."""
    wrapped = torch._C._functorch
    while wrapped.is_functorch_wrapped_tensor(roots):
        if wrapped.is_batchedtensor(roots):
            raise TypeError(
                "lengths: expected a tensor that is the same in all calls, got one that"
                " torch.func.vmap maps over; map over rows of one length, or put the"
                " rows into one batch"
            )
        roots = wrapped.get_unwrapped(roots)
    with torch._C._DisableFuncTorch():
        return roots, roots.numpy()
