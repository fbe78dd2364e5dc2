"""Pictorial structures: positions of a tree of parts joined by springs."""

from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from smoothsp._kernels.combinatorial import distance_transform
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp.oracles._inference import checks, double_double, score_values
from smoothsp.oracles._inference.double_double import DoubleDouble
from smoothsp.oracles._inference.to_numpy import to_numpy
from smoothsp.oracles._inference.tracing import is_compiling
from smoothsp.oracles._k_best import bmmf
from smoothsp.oracles._searches.structure import SearchStructure

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class PictorialStructure(SearchStructure):
    r"""A batch of trees of parts, with each part at one cell of a grid.

    .. math:: s(y) = \sum_p \mathrm{parts}[p, y_p]
        - \sum_{p \text{ with parent } q}
        \langle \mathrm{deformation}[p], \Delta(y_p - y_q - \mathrm{anchors}[p])
        \rangle, \qquad \Delta(d) = (d_1, d_1^2, d_2, d_2^2)

    with d_1 in rows and d_2 in columns. Heat maps score the cells of each part. Springs
    penalise the squared offset from the position relative to the parent. A cell with
    score ``-inf`` is forbidden. Every result is exact, and differentiable in scores,
    deformation and anchors.

    Parameters
    ----------
    parts
        ``(batch, P, H, W)``, float32 or float64; bfloat16 and float16 are computed in
        float32.
    deformation
        ``(P, 4)`` or ``(batch, P, 4)``, weights of :math:`\Delta`, the squared terms
        (entries 1 and 3) at least 0. Entries of roots are never read.
    parents
        ``(P,)`` integers: the parent of each part, -1 at roots. Any number of roots;
        parts may stand in any order.
    anchors
        ``(P, 2)`` or ``(batch, P, 2)``: rest position of a part relative to its parent,
        in rows and columns. Fractions are allowed. 0 if absent.

    Raises
    ------
    TypeError
        For a wrong type, dtype or device.
    ValueError
        For a wrong shape, an empty grid, a parent that is not a part, or a cycle. Also
        for NaN or +inf, a squared term below 0, or a row whose outputs are all
        forbidden.

    Notes
    -----
    An output is ``(batch, P, 2)``: row and column of each part. ``hamming`` counts
    misplaced parts. For a cost that forgives small offsets, pass ``distance_cost`` as
    ``cost=`` to a loss.

    ``decode`` is O(P H W) per row of the batch, however far parts may move.
    Max-marginals cost about three times as much, and the k best need 2 k - 1 sets of
    max-marginals. There is no ``log_partition``. For sums use ``Tree`` with the H W
    cells as states, O(P (H W)^2), or train with ``StructuralHinge(L2(mu, k))``.

    In float64, on the CPU; tensors on a device are copied to the CPU and back.

    Source: Felzenszwalb and Huttenlocher, "Pictorial Structures for Object Recognition"
    (2005) and "Distance Transforms of Sampled Functions" (2012).

    Examples
    --------
    The spring of the body rests two rows below the head; the best body is also one
    column to the right.

    >>> import torch
    >>> from smoothsp.oracles import PictorialStructure
    >>> parts = torch.zeros(1, 2, 5, 4)
    >>> parts[0, 0, 1, 1], parts[0, 1, 3, 2] = 3.0, 2.0
    >>> deformation = torch.tensor([0.0, 0.5, 0.0, 0.5]).expand(2, 4)
    >>> anchors = torch.tensor([[0.0, 0.0], [2.0, 0.0]])
    >>> body = PictorialStructure(parts, deformation, torch.tensor([-1, 0]), anchors)
    >>> value, places = body.decode()
    >>> value.tolist(), places.tolist()
    ([4.5], [[[1, 1], [3, 2]]])
    """

    parts: Tensor
    deformation: Tensor
    parents: Tensor
    anchors: Tensor
    row_attributes: ClassVar[tuple[str, ...]] = ("anchors",)
    output_description = "a row and a column of the grid for each part"

    def __init__(
        self,
        parts: Tensor,
        deformation: Tensor,
        parents: Tensor,
        anchors: Tensor | None = None,
    ) -> None:
        parts = checks.as_potentials("parts", parts)
        if parts.dim() != 4 or 0 in parts.shape[2:]:
            raise ValueError(
                "parts: expected (batch, P, H, W) with at least one cell, got "
                f"{tuple(parts.shape)}"
            )
        B, P = parts.shape[:2]
        deformation = checks.as_potentials("deformation", deformation)
        checks.require_same_dtype("deformation", deformation, "parts", parts)
        deformation = _expand_to_rows("deformation", deformation, (B, P, 4))
        if anchors is None:
            anchors = parts.new_zeros((P, 2))
        anchors = checks.as_potentials("anchors", anchors)
        checks.require_device("anchors", anchors, parts.device)
        is_small = anchors.abs() < score_values.LIMIT
        if checks.has_concrete_values() and not bool(is_small.all()):
            raise ValueError(
                "anchors: expected numbers below 2^40 (1.1e12) in size, got others"
            )
        self.anchors = _expand_to_rows("anchors", anchors, (B, P, 2))
        if is_compiling():
            super().__init__({"parts": parts, "deformation": deformation}, (P, 2))
            return
        # parents are constants, so a torch.func transform need not wrap them
        with torch._C._DisableFuncTorch():
            parents = checks.as_int64("parents", parents, parts.device)
            checks.require_shape("parents", parents, (P,), "(P,)")
            self.parents = parents.clone(memory_format=torch.contiguous_format)
            self._parents = self.parents.cpu().numpy()
            self._topological_order = _parents_before_children(self._parents)
            self._non_root_parts = (self.parents >= 0).nonzero().squeeze(1)
        self._require_convex_springs(deformation)
        super().__init__({"parts": parts, "deformation": deformation}, (P, 2))

    def _require_convex_springs(self, deformation: Tensor) -> None:
        """Raise ValueError for -inf or negative weights of squares (non-convex)."""
        if not checks.has_concrete_values():
            return
        deformation_read = deformation.detach()[:, self._non_root_parts]
        is_invalid = deformation_read < 0
        # linear terms (entries 0 and 2) may be negative, but not -inf
        is_invalid[..., 0] = deformation_read[..., 0] <= -score_values.LIMIT
        is_invalid[..., 2] = deformation_read[..., 2] <= -score_values.LIMIT
        if bool(is_invalid.any()):
            b, i, entry = is_invalid.nonzero()[0].tolist()
            raise ValueError(
                "deformation: expected finite weights, those of squares (entries 1 "
                f"and 3) at least 0, got {deformation_read[b, i, entry].item():.6g} at "
                f"row {b}, part {int(self._non_root_parts[i])}, entry {entry}; compute "
                "them with softplus"
            )

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        """``(batch,)``: the number of parts."""
        B, P = self.parts.shape[:2]
        return torch.full((B,), P, device=self.parts.device)

    def _usable_parts(self, name: str) -> Tensor | None:
        # roots have no spring: their deformation is never read
        if name == "parts":
            return None
        has_parent = (self.parents >= 0)[None, :, None]
        return has_parent.expand(self._row_potentials[name].shape)

    @property
    def _label_counts_width(self) -> int:
        return self.parts.shape[2:].numel()

    def _labels_of_outputs(self, y: Tensor) -> Tensor:
        """Cell number ``row W + column`` of each part, -1 outside the grid."""
        row, column = y.unbind(3)
        is_inside = self._is_inside_grid(y)
        return torch.where(is_inside, row * self.parts.shape[3] + column, -1)

    def _is_inside_grid(self, y: Tensor) -> Tensor:
        H, W = self.parts.shape[2:]
        row, column = y.unbind(3)
        return (row >= 0) & (row < H) & (column >= 0) & (column < W)

    def _is_output(self, y: Tensor) -> Tensor:
        return self._is_inside_grid(y).all(2)

    def _used_entry_indices(self, y: Tensor) -> Tensor:
        """Entries of the parts' scores; ``_score_float64`` subtracts the springs."""
        part = torch.arange(self.parts.shape[1], device=y.device)
        return part * self._label_counts_width + self._labels_of_outputs(y).clamp(min=0)

    def _with_hi_lo(self, value: Tensor, y: Tensor) -> DoubleDouble:
        return DoubleDouble(
            value.to(self._first_potentials.dtype), double_double.as_hi_lo(value)
        )

    def _score_unmasked(self, y: Tensor) -> Tensor:
        return self._score_float64(y)

    def _score_float64(self, y: Tensor) -> Tensor:
        parts = self._non_root_parts
        # Delta(d) = (d1, d1^2, d2, d2^2) after flattening: offset, square by axis
        displacement = (y[:, :, parts] - y[:, :, self.parents[parts]]).double()
        deviation = displacement - self.anchors[:, None, parts].double()
        terms = torch.stack([deviation, deviation.square()], 4).flatten(3)
        springs = self.deformation[:, None, parts].double()
        return super()._score_float64(y) - (springs * terms).sum((2, 3))

    def distance_cost(
        self, y: Tensor, reach: float | Tensor
    ) -> Float[Tensor, "batch part row column"]:
        """Cost of each cell: squared distance to the part's cell in y, at most 1.

        The cost of cell l for part p is ``min(1, |l - y_p|^2 / reach^2)``. Use it as
        ``StructuralHinge()(structure, y, cost=structure.distance_cost(y, 4.0))``.

        Parameters
        ----------
        y
            ``(batch, P, 2)``.
        reach
            Distance in cells, > 0, at which the cost reaches 1: a number, or one for
            each row, ``(batch,)``.

        Notes
        -----
        Source: Osokin et al., "Minding the Gaps for Block Frank-Wolfe Optimization of
        Structured SVMs" (2016), the loss on LSP, there divided by the number of parts.
        """
        _, has_k = self._checked_outputs(y)
        if has_k:
            raise ValueError(f"y: expected (batch, P, 2), got {tuple(y.shape)}")
        B, _, H, W = self.parts.shape
        if not isinstance(reach, Tensor):
            checks.require_number("reach", reach)
        # float64, rounded once to the dtype of the scores
        radius = torch.as_tensor(reach, dtype=torch.float64, device=self.parts.device)
        if radius.dim() and tuple(radius.shape) != (B,):
            raise ValueError(
                f"reach: expected a number or (batch,) = ({B},), got "
                f"{tuple(radius.shape)}"
            )
        if not bool(((radius > 0) & (radius < torch.inf)).all()):
            raise ValueError(f"reach: expected positive numbers, got {reach}")
        # offsets of all cells from the part's cell, (batch, P, H, W) by broadcasting
        row = torch.arange(H, device=y.device)[:, None] - y[..., 0, None, None]
        column = torch.arange(W, device=y.device) - y[..., 1, None, None]
        squared = (row.square() + column.square()).double()
        cost = squared / radius.expand(B)[:, None, None, None].square()
        return cost.clamp(max=1).to(self.parts.dtype)

    def _kernel_args(self, rows: Ints) -> tuple[Floats, Floats, Ints, Ints]:
        """Deformation, anchors, parents and topological order, for kernels."""
        springs = np.ascontiguousarray(self._potentials_as_numpy("deformation")[rows])
        anchors = to_numpy(self.anchors.cpu().double())[rows]
        return (
            springs,
            np.ascontiguousarray(anchors),
            self._parents,
            self._topological_order,
        )

    def _decode_tables(self, tables: Floats, rows: Ints) -> tuple[Ints, Bools]:
        """Best cells ``[M, P]`` of tables ``[M, P, H W]``, and which exist."""
        H, W = self.parts.shape[2:]
        # bmmf forbids cells in flat tables; kernels read grids
        M, P = tables.shape[:2]
        scores = np.ascontiguousarray(tables).reshape(M, P, H, W)
        cells, has_output = np.empty((M, P, 2), np.int64), np.empty(M, np.bool_)
        arrays = scores, *self._kernel_args(rows), cells, has_output
        run_rows(distance_transform.best_locations, M, 20 * tables.size, *arrays)
        return cells[..., 0] * W + cells[..., 1], has_output

    def _max_marginals(self, tables: Floats, rows: Ints) -> Floats:
        """Max-marginals ``[M, P, H W]`` of tables; ``rows`` select springs, anchors."""
        H, W = self.parts.shape[2:]
        M, P = tables.shape[:2]
        scores = np.ascontiguousarray(tables).reshape(M, P, H, W)
        highest = np.empty_like(scores)
        arrays = scores, *self._kernel_args(rows), highest
        run_rows(distance_transform.max_marginals, M, 60 * tables.size, *arrays)
        return highest.reshape(tables.shape)

    def _score_tables_and_rows(self) -> tuple[Floats, Ints]:
        """Scores of parts as tables ``[B, P, H W]``, and the row numbers ``[B]``."""
        B, P = self.parts.shape[:2]
        tables = self._potentials_as_numpy("parts").reshape(
            B, P, self._label_counts_width
        )
        return np.ascontiguousarray(tables), np.arange(B)

    def _cells_to_rows_and_columns(self, cells: Ints) -> Ints:
        """Convert cell numbers to (row, column) ``[..., 2]``; -1 stays -1."""
        W = self.parts.shape[3]
        rows_and_columns = np.stack([cells // W, cells % W], -1)
        return np.where(cells[..., None] < 0, -1, rows_and_columns)

    def _first_infeasible_row(self) -> int:
        # springs are finite, so a row is infeasible iff a part has no allowed cell
        part = score_values.first_forbidden_row(self.parts.flatten(0, 1).flatten(1))
        return part if part < 0 else part // self.shape[0]

    def _search_best_outputs(self) -> tuple[Ints, Bools]:
        cells, has_output = self._decode_tables(*self._score_tables_and_rows())
        return self._cells_to_rows_and_columns(cells), has_output

    def _search_k_best_outputs(self, k: int) -> tuple[Ints, Bools]:
        tables, _ = self._score_tables_and_rows()
        cells, valid = bmmf.k_best(tables, k, self._decode_tables, self._max_marginals)
        return self._cells_to_rows_and_columns(cells), valid

    def max_marginals(self) -> Float[Tensor, "batch part row column"]:
        """Highest score of an output with each part at each cell; -inf if none.

        Has the shape of ``parts``. Not differentiable.
        """
        highest = self._max_marginals(*self._score_tables_and_rows())
        return torch.from_numpy(highest).to(self.parts).reshape(self.parts.shape)


def _expand_to_rows(name: str, value: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """Return ``value`` as ``(batch, P, ...)``; raise ValueError for other shapes."""
    if value.dim() == 2:
        checks.require_shape(name, value, shape[1:], f"(P, {shape[2]})")
        return value.expand(shape)
    checks.require_shape(
        name, value, shape, f"(P, {shape[2]}) or (batch, P, {shape[2]})"
    )
    return value


def _parents_before_children(parents: Ints) -> Ints:
    """Topological order of the parts: by depth, parents before children."""
    P = len(parents)
    if P and not ((parents >= -1) & (parents < P)).all():
        invalid_part = int(((parents < -1) | (parents >= P)).argmax())
        raise ValueError(
            f"parents: expected numbers of parts, 0 to {P - 1}, or -1 at roots, got "
            f"{int(parents[invalid_part])} at part {invalid_part}"
        )
    depth = np.full(P, -1, np.int64)
    for part in range(P):
        # climb to the root or to a part of known depth, then number the path downwards
        path = []
        node = part
        while node >= 0 and depth[node] < 0:
            if node in path:
                raise ValueError(
                    f"parents: expected no cycle, got one through part {node}"
                )
            path.append(node)
            node = int(parents[node])
        base = -1 if node < 0 else int(depth[node])
        for steps, descendant in enumerate(reversed(path), 1):
            depth[descendant] = base + steps
    return np.argsort(depth, kind="stable")
