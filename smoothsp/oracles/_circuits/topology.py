"""Topologies of circuits, built once for each structure and size."""

import operator
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothsp._kernels.circuits.layout.addresses import address_table
from smoothsp._kernels.circuits.layout.circuit_arrays import CircuitArrays
from smoothsp.oracles._circuits.circuit import Circuit, Items, subgraph
from smoothsp.oracles._inference import checks
from smoothsp.oracles._inference.in_graphs import compile_time_constant
from smoothsp.oracles._inference.tracing import is_dense_cpu

Builder = Callable[..., tuple[Circuit, Items]]
CACHE_BYTES = 2**28

_lock = threading.Lock()
_built: OrderedDict[tuple[Hashable, ...], "Topology"] = OrderedDict()


@dataclass(frozen=True, eq=False)
class Topology:
    """Topology shared by all rows of a batch.

    Attributes
    ----------
    edges
        Items and their products.
    roots
        Root items by size, int64, of the shape that the builder returned.
    labels
        Number of labels of an output.
    """

    edges: CircuitArrays
    roots: Tensor
    labels: int

    # Definitions reachable from one root, by root.
    subgraphs: dict[int, CircuitArrays] = field(default_factory=dict, repr=False)
    # Masks of the leaves and labels that outputs of one root may use, by root.
    usable_parts: dict[int, tuple[Tensor, Tensor]] = field(
        default_factory=dict, repr=False
    )

    @classmethod
    def from_circuit(cls, circuit: Circuit, root_items: Items) -> "Topology":
        """Build the topology from the results of a builder."""
        roots = np.array(root_items, np.int64)
        if (roots == circuit.NONE).any():
            impossible = circuit.chart(1)
            circuit.define(impossible)
            roots[roots == circuit.NONE] = impossible
        edges = circuit.edges(roots.reshape(-1))
        undefined = (edges.definition[roots] < 0) & (
            roots > edges.num_row_leaves + edges.num_shared_leaves
        )
        if undefined.any():
            raise ValueError("roots: expected items that are defined, or leaves")
        # the topology outlives transforms, which must not wrap its constants
        with torch._C._DisableFuncTorch():
            result = torch.from_numpy(roots)
        return cls(edges, result, 1 + int(edges.positions.max(initial=-1)))

    @property
    def leaves(self) -> int:
        """Number of leaves of a row, plus shared leaves."""
        return self.edges.num_row_leaves + self.edges.num_shared_leaves

    def subgraph(self, root: int) -> CircuitArrays:
        """Return the definitions reachable from a root, cached."""
        if root not in self.subgraphs:
            self.subgraphs[root] = subgraph(self.edges, root)
        return self.subgraphs[root]

    @cached_property
    def edges_address(self) -> NDArray[np.int64]:
        """Address table of ``edges`` for compiled loops."""
        return address_table(self.edges)

    def __getstate__(self) -> dict[str, Any]:
        # addresses are those of this object's arrays: a copy computes its own
        return {name: x for name, x in vars(self).items() if name != "edges_address"}

    @cached_property
    def nbytes(self) -> int:
        """Bytes of the arrays of ``edges``."""
        arrays = (x for x in self.edges if isinstance(x, np.ndarray))
        return sum(x.nbytes for x in arrays)

    def root(self, *size: Tensor | int) -> Tensor | int:
        """Return the root items of sizes, numbers or ``(batch,)``.

        Raises
        ------
        TypeError, ValueError
            For a size that is no integer, or that has no root.
        """
        if all(isinstance(x, int) for x in size):
            try:
                if min(size, default=0) >= 0:
                    return int(self._roots[size])
            except IndexError:
                pass
        if checks.has_concrete_values() and all(
            isinstance(x, int) or is_dense_cpu(x) for x in size
        ):
            root_index = [x.numpy() if isinstance(x, Tensor) else x for x in size]
            with suppress(TypeError, ValueError):
                # unlike indexing, this raises an error for negative sizes
                items = np.ravel_multi_index(root_index, self._roots.shape)
                return torch.from_numpy(self._roots.reshape(-1)[items])
        for x, end in zip(size, self.roots.shape, strict=True):
            _require_size(x, end)
        return self.roots[tuple(x.cpu() if isinstance(x, Tensor) else x for x in size)]

    @cached_property
    def _roots(self) -> NDArray[np.int64]:
        with torch._C._DisableFuncTorch():
            roots: NDArray[np.int64] = self.roots.numpy()
        return roots

    @cached_property
    def products(self) -> int:
        """Number of products of two items."""
        return int(self.edges.runs[:, 0].sum())

    @cached_property
    def max_leaves(self) -> int:
        """Maximum number of leaves of an output."""
        return max(0, int(self.edges.max_leaves[self._roots].max(initial=0)))

    @cached_property
    def labels_of(self) -> tuple[Tensor, Tensor]:
        """Position and value of the label of the empty product and each leaf, or -1."""
        tables = self.edges.positions, self.edges.values
        with torch._C._DisableFuncTorch():
            at, value = (torch.from_numpy(x).long() for x in tables)
        return at, value

    @cached_property
    def leaf_of_label(self) -> Tensor:
        """``[labels, values]``: index from 0 of the leaf with that label, or -1."""
        positions, values = self.edges.positions[1:], self.edges.values[1:]
        leaf = np.flatnonzero(positions >= 0)
        table = np.full((self.labels, 1 + int(values.max(initial=-1))), -1)
        table[positions[leaf], values[leaf]] = leaf
        with torch._C._DisableFuncTorch():
            tensor = torch.from_numpy(table)
        return tensor


def _require_size(size: object, end: int) -> None:
    """Require sizes, a number or ``(batch,)``, from 0 to ``end - 1``."""
    if isinstance(size, int):
        size = torch.tensor(size, device="cpu")
    value = checks.as_dense("size", size)
    value = checks.as_int64("size", value, value.device)
    if not checks.has_concrete_values() or value.is_cuda or not value.numel():
        return
    min_size, max_size = (x.item() for x in torch.aminmax(value))
    if min_size < 0 or max_size >= end:
        raise ValueError(
            f"size: expected values from 0 to {end - 1}, for which the circuit has"
            f" roots, got {min_size if min_size < 0 else max_size}"
        )


class DeferredTopology:
    """A topology in a graph of ``torch.compile``, built when the graph runs."""

    def __init__(self, build: Builder, sizes: tuple[Any, ...]) -> None:
        self.build, self.sizes = build, sizes

    def root(self, *size: Any) -> int:
        return 0

    @property
    def values(self) -> int:
        """Number of values of a label."""
        sizes = [operator.index(x) if type(x) is int else x for x in self.sizes]
        num_values: int = _count_label_values(self.build, *sizes)
        return num_values


@compile_time_constant
def _count_label_values(build: Builder, *sizes: Hashable) -> int:
    return _build_cached(build, *sizes).leaf_of_label.shape[1]


def topology(build: Builder, *sizes: Hashable) -> Topology:
    """Return ``build(*sizes)``, cached; the oldest entries are evicted first.

    Parameters
    ----------
    build
        Returns a circuit, and its roots as an array of any shape.
    sizes
        Hashable arguments of ``build``, and with it the key of the cache.
    """
    if torch.compiler.is_compiling():
        return DeferredTopology(build, sizes)  # type: ignore[return-value]
    return _build_cached(build, *sizes)


def _build_cached(build: Builder, *sizes: Hashable) -> Topology:
    key = (build, *sizes)
    with _lock:
        built = _built.get(key)
        if built is not None:
            _built.move_to_end(key)
            return built
        built = _built[key] = Topology.from_circuit(*build(*sizes))
        total = sum(x.nbytes for x in _built.values())
        while total > CACHE_BYTES and len(_built) > 1:
            total -= _built.popitem(last=False)[1].nbytes
        return built
