"""Binary labels of the nodes of any graph with submodular edges."""

import functools
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from smoothsp._kernels.combinatorial import graph_cut, ibfs_max_flow
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp.oracles._inference import checks, in_graphs, score_values
from smoothsp.oracles._inference.to_numpy import to_numpy
from smoothsp.oracles._inference.tracing import is_compiling, is_eager
from smoothsp.oracles._k_best import bmmf
from smoothsp.oracles._searches.structure import SearchStructure

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Graph = tuple[NDArray[np.integer[Any]], ...]
Tables = tuple[NDArray[Any], NDArray[Any]]


class BinaryGraph(SearchStructure):
    r"""A batch of graphs with binary node labels and submodular edge scores.

    .. math:: s(y) = \sum_v \mathrm{nodes}[v, y_v]
        + \sum_{e = (i, j)} \mathrm{edges}[e, y_i, y_j]

    Each edge must be submodular, so that it favours equal labels: ``edges[e, 0, 0] +
    edges[e, 1, 1] >= edges[e, 0, 1] + edges[e, 1, 0]``. The best labelling is then a
    minimum cut; without submodularity the problem is NP-hard. A violation at the level
    of rounding is ignored.

    Parameters
    ----------
    nodes
        ``(batch, V, 2)``, float32 or float64; bfloat16 and float16 are computed in
        float32. A score of ``-inf`` forbids a label.
    edges
        ``(batch, E, 2, 2)``: ``[e, label of the first node, label of the second]``, of
        the dtype of ``nodes``; ``-inf`` may forbid that they differ. Or ``(batch, E)``:
        at least 0, the score of equal labels (Potts).
    index
        ``(E, 2)`` integers from 0 to V - 1: the nodes of each edge, for all rows; or
        ``(batch, E, 2)``. Several edges may join the same nodes, but no edge joins a
        node with itself. Pad rows that have fewer edges with edges of score 0.

    Raises
    ------
    TypeError
        For a wrong type, dtype or device.
    ValueError
        For a wrong shape, NaN or +inf, an edge that is not submodular (the message
        names it), or a row whose labellings are all forbidden.

    Notes
    -----
    An output is ``(batch, V)``, or ``(batch, H, W)`` for a ``grid``. ``decode`` is one
    maximum flow in float64. ``bound()`` is the value of the flow, which certifies the
    maximum. The k best need 2k - 1 sets of max-marginals.

    There is no ``log_partition``, which is #P-hard. For graphs without cycles use
    ``Tree``, which has one and needs no submodularity. For more than two labels on
    graphs with cycles, see ``approximate_by_alpha_expansion`` and
    ``approximate_by_dual_decomposition``. The latter also returns a bound that may
    certify its labelling.

    On the CPU; tensors on a device are copied to the CPU and back.

    Source: Kolmogorov and Zabih, "What Energy Functions Can Be Minimized via Graph
    Cuts?" (2004); Goldberg et al., "Maximum Flows by Incremental Breadth-First Search"
    (2011); Yanover and Weiss (2004) for the k best.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.oracles import BinaryGraph
    >>> nodes = torch.tensor([[[0.0, 2.0], [0.5, 0.0], [0.0, 1.0]]])
    >>> graph = BinaryGraph(nodes, torch.ones(1, 2), torch.tensor([[0, 1], [1, 2]]))
    >>> value, labels = graph.decode()
    >>> value.tolist(), labels.tolist()
    ([5.0], [[1, 1, 1]])
    """

    nodes: Tensor
    edges: Tensor
    _label_counts_width = 2
    # key (addresses and shapes of the potentials) and the arrays made from them
    _tables_cache: tuple[Any, Tables] | None = None
    output_description = "labels 0 or 1"

    def __init__(self, nodes: Tensor, edges: Tensor, index: Tensor) -> None:
        nodes = checks.as_potentials("nodes", nodes)
        if nodes.dim() != 3 or nodes.shape[2] != 2:
            raise ValueError(f"nodes: expected (batch, V, 2), got {tuple(nodes.shape)}")
        edges = checks.as_potentials("edges", edges)
        checks.require_same_dtype("edges", edges, "nodes", nodes)
        if is_compiling():
            self._set_graph(nodes, edges, ())
            return
        # the index is a constant, so a torch.func transform need not wrap it
        with torch._C._DisableFuncTorch():
            pairs = to_numpy(checks.as_int64("index", index, nodes.device).cpu())
        B, V = len(nodes), nodes.shape[1]
        has_row_graphs = pairs.ndim == 3
        E = pairs.shape[-2] if pairs.ndim in (2, 3) else -1
        if E < 0 or pairs.shape != ((B, E, 2) if has_row_graphs else (E, 2)):
            raise ValueError(
                f"index: expected (E, 2) or (batch, E, 2) with batch = {B}, got "
                f"{pairs.shape}"
            )
        if edges.dim() == 2:
            checks.require_shape("edges", edges, (B, E), "(batch, E)")
        else:
            checks.require_shape("edges", edges, (B, E, 2, 2), "(batch, E, 2, 2)")
        pairs = pairs.reshape(B if has_row_graphs else 1, E, 2)
        self._set_graph(nodes, edges, _build_csr_graph(pairs, V))

    def _set_graph(self, nodes: Tensor, edges: Tensor, graph: Graph) -> None:
        self._graph = graph
        self.shape = tuple(nodes.shape[1:-1])
        self._set_potentials({"nodes": nodes, "edges": edges})
        self._record_versions(self._row_potentials)
        may_lack_output = self._validate_values("nodes")
        # the kernel test is exact; only on failure the tolerance of rounding is applied
        if is_eager() and graph_cut.any_not_submodular(self._node_and_edge_tables()[1]):
            _require_submodular(self._edge_tables())
        if may_lack_output:
            self._require_feasible("nodes")

    @classmethod
    def grid(cls, nodes: Tensor, down: Tensor, right: Tensor) -> "BinaryGraph":
        """Create the graph of an image in which each pixel has four neighbours.

        Parameters
        ----------
        nodes
            ``(batch, H, W, 2)``.
        down
            ``(batch, H - 1, W, 2, 2)``, or ``(batch, H - 1, W)`` of at least 0: scores
            of each pixel with the pixel below.
        right
            ``(batch, H, W - 1, 2, 2)`` or ``(batch, H, W - 1)``: scores of each pixel
            with the pixel to its right.
        """
        nodes = checks.as_potentials("nodes", nodes)
        if nodes.dim() != 4 or nodes.shape[3] != 2:
            raise ValueError(
                f"nodes: expected (batch, H, W, 2), got {tuple(nodes.shape)}"
            )
        B, H, W, _ = nodes.shape
        sizes = {"down": (max(H - 1, 0), W), "right": (H, max(W - 1, 0))}
        flat, potentials = [], {"nodes": nodes}
        for (name, size), x in zip(sizes.items(), (down, right), strict=True):
            edge_scores = checks.as_potentials(name, x)
            label_axes = tuple(edge_scores.shape[3:])
            shape = (B, *size, *label_axes)
            if tuple(edge_scores.shape) != shape or label_axes not in ((), (2, 2)):
                expected = f"{(B, *size)} or {(B, *size, 2, 2)}"
                raise ValueError(
                    f"{name}: expected {expected}, got {tuple(edge_scores.shape)}"
                )
            checks.require_same_dtype(name, edge_scores, "nodes", nodes)
            potentials[name] = edge_scores
            flat.append(edge_scores.reshape(B, size[0] * size[1], *label_axes))
        if flat[0].dim() != flat[1].dim():
            flat = [_expand_potts(x) for x in flat]
        graph = object.__new__(cls)
        edges = torch.cat(flat, 1)
        if is_compiling():
            vars(graph)["_constructor_call"] = in_graphs.record_call(
                _build_grid, (cls, nodes, down, right)
            )
            graph._set_graph(nodes, edges, ())
            return graph
        try:
            graph._set_graph(nodes, edges, _build_grid_csr_graph(H, W))
        except ValueError as error:
            # the caller passed no edges: name the arguments that were concatenated
            expected = str(error).replace("edges:", "down, right:", 1)
            raise ValueError(expected) from None
        graph._record_versions(potentials)
        return graph

    @property
    def index(self) -> Int[Tensor, "*batch e 2"]:
        """``(E, 2)``, or ``(batch, E, 2)``: the nodes of each edge; a copy."""
        index = torch.from_numpy(self._graph[0].copy()).to(self.nodes.device)
        return index[0] if len(index) == 1 else index

    @property
    def _has_row_graphs(self) -> bool:
        """Return True if rows have different graphs; False for a batch of one."""
        return len(self._graph[0]) > 1

    @property
    def _num_nodes(self) -> int:
        return self.nodes.shape[1:-1].numel()

    def _select_rows(self, rows: Tensor) -> "BinaryGraph":
        other = super()._select_rows(rows)
        # graphs are numpy arrays, which kernels read
        if not is_compiling() and self._has_row_graphs:
            other._graph = tuple(x[to_numpy(rows.cpu())] for x in self._graph)
        return other

    def _from_row_tensors(self, tensors: tuple[Tensor, ...]) -> "BinaryGraph":
        other = super()._from_row_tensors(tensors)
        if self._has_row_graphs:
            # vmap stacks repetitions of the batch
            times = len(tensors[0]) // len(self._graph[0])
            other._graph = tuple(np.concatenate([x] * times) for x in self._graph)
        return other

    def _is_output(self, y: Tensor) -> Tensor:
        return ((y >= 0) & (y < 2)).flatten(2).all(2)

    def _used_entry_indices(self, y: Tensor) -> Tensor:
        labels = y.flatten(2).clamp(0, 1)
        V, E = self._num_nodes, self.edges.shape[1]
        index = torch.from_numpy(self._graph[0]).to(y.device)
        index = index.expand(len(y), E, 2)
        first, second = (
            labels.gather(2, index[:, None, :, i].expand(-1, labels.shape[1], -1))
            for i in range(2)
        )
        # a Potts edge is used if its labels agree; nodes have the first 2 V entries
        edge = torch.arange(E, device=y.device)
        if self.edges.dim() == 2:
            edge = torch.where(first == second, 2 * V + edge, -1)
        else:
            edge = 2 * V + 4 * edge + 2 * first + second
        node = 2 * torch.arange(V, device=y.device)
        return torch.cat([node + labels, edge], 2)

    def _select_graphs(self, rows: Ints) -> Graph:
        return (
            tuple(x[rows] for x in self._graph) if self._has_row_graphs else self._graph
        )

    def _node_and_edge_tables(self) -> Tables:
        """Arrays of nodes ``[B, V, 2]`` and edges ``[B, E, 4]``.

        Potts edges are ``[B, E, 1]``. Cached for contiguous CPU tensors, as views.
        """
        potentials = self._row_potentials.values()
        can_cache = all(x.is_contiguous() and x.is_cpu for x in potentials)
        # the cached views keep the memory alive: no other tensor can have its address
        memory = (
            tuple((x.data_ptr(), x.shape) for x in potentials) if can_cache else None
        )
        if (
            can_cache
            and self._tables_cache is not None
            and self._tables_cache[0] == memory
        ):
            return self._tables_cache[1]
        nodes, edges = (to_numpy(x.cpu()) for x in potentials)
        B, E = edges.shape[:2]
        nodes = nodes.reshape(B, self._num_nodes, 2)
        edges = edges.reshape(B, E, 1 if edges.ndim == 2 else 4)
        tables = np.ascontiguousarray(nodes), np.ascontiguousarray(edges)
        self._tables_cache = memory, tables
        return tables

    def _edge_tables(self) -> Tensor:
        """Edges ``[B, E, 2, 2]``, without gradient."""
        return _expand_potts(self.edges.detach())

    def _kernel_scores(self, y: Ints) -> Floats:
        labels = y.reshape(*y.shape[:2], self._num_nodes)
        values = np.empty(y.shape[:2])
        arrays = *self._node_and_edge_tables(), self._graph[0], labels, values
        graph_cut.score_labellings(*arrays)
        return values

    def _minimum_cut(
        self, tables: Tables, graph: Graph
    ) -> tuple[Ints, Floats, Floats, Bools]:
        """Solve the minimum cut: labels ``[M, V]``, scores, bounds and which exist."""
        M, V = tables[0].shape[:2]
        labels, has_output = np.empty((M, V), np.int64), np.empty(M, np.bool_)
        values, bound = np.empty((2, M))
        work = 100 * M * (V + tables[1].shape[1])
        arrays = *tables, graph, labels, values, bound, has_output
        run_rows(graph_cut.min_cut, M, work, *arrays)
        return labels, values, bound, has_output

    def _decode_tables(self, nodes: Floats, rows: Ints) -> tuple[Ints, Bools]:
        edges = self._node_and_edge_tables()[1][rows].astype(np.float64)
        labels, _, _, has_output = self._minimum_cut(
            (nodes, edges), self._select_graphs(rows)
        )
        return labels, has_output

    def _first_infeasible_row(self) -> int:
        # without -inf edges a row is infeasible iff a node has no label: no cut needed
        if score_values.value_flags(self.edges) & score_values.NEG_INF_OR_LOW:
            return super()._first_infeasible_row()
        node = score_values.first_forbidden_row(self.nodes.reshape(-1, 2))
        return node if node < 0 else node // self._num_nodes

    def _search_best_outputs(self) -> tuple[Ints, Bools]:
        labels, _, _, has_output = self._minimum_cut(
            self._node_and_edge_tables(), self._graph
        )
        return labels.reshape(len(labels), *self.shape), has_output

    def _search_best_outputs_and_scores(self) -> tuple[Ints, Floats]:
        labels, values, _, _ = self._minimum_cut(
            self._node_and_edge_tables(), self._graph
        )
        return labels.reshape(len(labels), *self.shape), values

    def _search_k_best_outputs(self, k: int) -> tuple[Ints, Bools]:
        nodes = self._node_and_edge_tables()[0].astype(np.float64)
        # without nodes there is one output, the empty one
        if self._num_nodes == 0:
            valid = np.zeros((len(nodes), k), np.bool_)
            valid[:, 0] = True
            return np.empty((len(nodes), k, *self.shape), np.int64), valid
        outputs, valid = bmmf.k_best(
            nodes, k, self._decode_tables, self._nearest_max_marginals
        )
        return outputs.reshape(len(nodes), k, *self.shape), valid

    def bound(self) -> Float[Tensor, " batch"]:
        """Upper bound of all scores: the value of the maximum flow.

        ``decode()`` attains it up to rounding, which certifies both.
        """
        flow = self._minimum_cut(self._node_and_edge_tables(), self._graph)[2]
        bound_ = torch.from_numpy(flow).to(self.nodes.device)
        if self.edges.dim() == 4:
            # the cut clips edges that rounding made supermodular: add the amount back
            agree, differ = _agree_and_differ_sums(self.edges.detach())
            bound_ = bound_ + (differ - agree).clamp(min=0).sum(1)
        return bound_.to(self.nodes.dtype)

    def max_marginals(self) -> Float[Tensor, "batch ... 2"]:
        """Highest score of a labelling with each label of each node.

        Has the shape of ``nodes``, with -inf where there is none. Not differentiable.
        One maximum flow, then one update per node for its other label.
        """
        nodes = self._node_and_edge_tables()[0].astype(np.float64)
        highest = self._max_marginals(nodes, np.arange(len(nodes)))
        return torch.from_numpy(highest).to(self.nodes).reshape(self.nodes.shape)

    def _nearest_max_marginals(self, nodes: Floats, rows: Ints) -> Floats:
        """Max-marginals that are right for the best and second-best outputs only."""
        return self._max_marginals(nodes, rows, only_nearest=True)

    def _max_marginals(
        self, nodes: Floats, rows: Ints, only_nearest: bool = False
    ) -> Floats:
        M, V = nodes.shape[:2]
        edges = self._node_and_edge_tables()[1][rows].astype(np.float64)
        labels, loss = np.empty((M, V), np.int64), np.empty((M, V))
        has_output, best = np.empty(M, np.bool_), np.empty((M, 1))
        graph = self._select_graphs(rows)
        # estimated work of a cut, and of an update for each node
        work = 2000 * M * (V + edges.shape[1])
        arrays = nodes, edges, graph, only_nearest, labels, loss, has_output
        run_rows(graph_cut.max_marginal_gaps, M, work, *arrays)
        graph_cut.score_labellings(nodes, edges, graph[0], labels[:, None], best)
        # the label of the cut has the maximum; the other one loses the kernel's gap
        best = np.where(has_output[:, None], best, -np.inf)[..., None]
        is_other_label = np.arange(2) != labels[..., None]
        return np.where(is_other_label, best - loss[..., None], best)


def _build_grid(structure_class: type[BinaryGraph], *args: Any) -> BinaryGraph:
    return structure_class.grid(*args)


def _build_csr_graph(edges: Ints, num_nodes: int) -> Graph:
    """Copy the edges ``[L, E, 2]`` and build their adjacency in CSR form.

    Each edge gives two arcs; ``reverse`` maps an arc to the opposite one.
    """
    L, E, _ = edges.shape
    starts = np.empty((L, num_nodes + 1), np.int32)
    heads, reverse = np.empty((2, L, 2 * E), np.int32)
    index, arc_index = np.empty((L, E, 2), np.int64), np.empty((L, E), np.int32)
    is_valid = np.empty(1, np.bool_)
    ibfs_max_flow.build_adjacency(
        np.ascontiguousarray(edges), index, starts, heads, reverse, arc_index, is_valid
    )
    if not is_valid[0]:
        _raise_invalid_index(edges, num_nodes)
    return index, starts, heads, reverse, arc_index


@functools.lru_cache(maxsize=8)
def _build_grid_csr_graph(H: int, W: int) -> Graph:
    """Graph of an H x W grid, cached by size and read-only: first down, then right."""
    node = np.arange(H * W).reshape(H, W)
    pairs = ((node[:-1], node[1:]), (node[:, :-1], node[:, 1:]))
    index = np.concatenate([np.stack(x, -1).reshape(-1, 2) for x in pairs])
    return _build_csr_graph(index[None], H * W)


def _expand_potts(edges: Tensor) -> Tensor:
    """Edges ``[B, E, 2, 2]``; Potts scores ``[B, E]`` become those of equal labels."""
    if edges.dim() == 4:
        return edges
    same = torch.eye(2, dtype=torch.bool, device=edges.device)
    return torch.where(same, edges[..., None, None], 0.0)


def _raise_invalid_index(index: Ints, V: int) -> None:
    """Raise ValueError that names an invalid edge of ``index [L, E, 2]``."""
    out_of_bounds = (index < 0) | (index >= V)
    if out_of_bounds.any():
        node = index[out_of_bounds][0]
        raise ValueError(f"index: expected nodes from 0 to {V - 1}, got {node}")
    loop = (index[..., 0] == index[..., 1]).nonzero()[-1][0]
    raise ValueError(
        f"index: expected two different nodes, got one twice at edge {loop}; add its "
        "scores to those of the node"
    )


def _agree_and_differ_sums(edges: Tensor) -> tuple[Tensor, Tensor]:
    """Sums over equal and over different labels of edges, ``[B, E]`` in float64."""
    edges_float64 = edges.double()
    return edges_float64[..., 0, 0] + edges_float64[..., 1, 1], edges_float64[
        ..., 0, 1
    ] + edges_float64[..., 1, 0]


def _require_submodular(edges: Tensor) -> None:
    """Raise ValueError if an edge is not submodular."""
    agree, differ = _agree_and_differ_sums(edges)
    # tolerance for scores rounded to the input dtype
    sizes = edges.double().abs().nan_to_num(0, 0, 0).sum((2, 3))
    slack = 4 * torch.finfo(edges.dtype).eps * sizes
    violates = ~(agree - differ >= -slack) | (agree == -torch.inf)
    violates = violates & ~((differ == -torch.inf) & (agree > -torch.inf))
    if bool(violates.any()):
        row, edge = violates.nonzero()[0].tolist()
        raise ValueError(
            "edges: expected [0, 0] + [1, 1] to be at least [0, 1] + [1, 0], got "
            f"{agree[row, edge].item():.8g} and {differ[row, edge].item():.8g} at row "
            f"{row}, edge {edge}; for other edges use Tree if they form no cycle; "
            "forbid labels with nodes"
        )
