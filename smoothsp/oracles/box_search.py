"""Efficient subwindow search: the best boxes of an image by branch and bound."""

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from smoothsp._kernels.combinatorial import box_search
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp.oracles._inference import checks, double_double, score_values
from smoothsp.oracles._inference.double_double import DoubleDouble
from smoothsp.oracles._inference.to_numpy import to_numpy
from smoothsp.oracles._searches.structure import SearchStructure


class BoxSearch(SearchStructure):
    r"""A batch of images of scored cells, with one box chosen in each.

    The score of a box is the sum of its cells, which may have any sign. Cells may hold
    summed weights of visual words, or a score map minus a threshold. A cell with score
    ``-inf`` forbids every box that holds it. ``decode`` finds the best of the O(H^2
    W^2) boxes without visiting most of them.

    Parameters
    ----------
    cells
        ``(batch, H, W)``, float32 or float64; bfloat16 and float16 are computed in
        float32.

    Raises
    ------
    TypeError
        For a wrong type, dtype or device.
    ValueError
        For a wrong shape, no cells, NaN or +inf, or an image whose cells are all
        forbidden.

    Notes
    -----
    An output is ``(batch, 4)``: first row, first column, last row, last column, all
    inclusive.

    The cost of a box is ``1 - IoU`` with the true box, which is not a sum over cells.
    ``hamming(y)`` encodes the true box as cells, 1 inside and 0 outside. ``augment``
    takes these cells times any number c >= 0 and adds ``c (1 - IoU)`` to each box.
    Losses call both for you.

    There is no ``log_partition``, which would need all boxes. Score a list of boxes and
    use ``Multiclass`` instead.

    Best-first branch and bound over sets of boxes: the set with the highest bound is
    halved first. In the worst case all boxes are visited. Integral images are in
    float64: boxes that differ by less than a rounding of the sum of all cells count as
    equal. On the CPU; tensors on a device are copied to the CPU and back.

    Source: Lampert, Blaschko and Hofmann, "Beyond Sliding Windows" (2008); the bound of
    the cost by intersection of the smallest box and union with the largest.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.oracles import BoxSearch
    >>> cells = torch.tensor([[[-0.5, 2.0, -3.0], [1.0, 2.0, -1.0]]])
    >>> value, box = BoxSearch(cells).decode()
    >>> value.tolist(), box.tolist()
    ([4.5], [[0, 0, 1, 1]])
    """

    cells: Tensor
    _gold: Tensor
    _cost_weight: Tensor
    row_attributes = ("_gold", "_cost_weight")
    _computed_attributes = row_attributes
    _label_counts_width = 1
    # 1 - IoU is not a sum over cells, so losses that add costs to parts are excluded
    _has_additive_cost = False
    output_description = (
        "first row, first column, last row, last column inside the image"
    )

    def __init__(self, cells: Tensor) -> None:
        cells = checks.as_potentials("cells", cells)
        if cells.dim() != 3 or 0 in cells.shape[1:]:
            raise ValueError(
                "cells: expected (batch, H, W) with at least one cell, got "
                f"{tuple(cells.shape)}"
            )
        B, device = len(cells), cells.device
        # without a cost its weight is 0, and the true box may be any
        self._gold = torch.zeros((B, 4), dtype=torch.int64, device=device)
        self._cost_weight = torch.zeros(B, dtype=torch.float64, device=device)
        super().__init__({"cells": cells}, (4,))

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        """``(batch,)``: 1 for each image, since a box is one label."""
        return torch.ones_like(self._gold[:, 0])

    def _labels_of_outputs(self, y: Tensor) -> Tensor:
        # all boxes have the one label 0
        return torch.zeros_like(y[..., :1])

    def _is_output(self, y: Tensor) -> Tensor:
        H, W = self.cells.shape[1:]
        top, left, bottom, right = y.unbind(-1)
        rows = (top >= 0) & (top <= bottom) & (bottom < H)
        return rows & (left >= 0) & (left <= right) & (right < W)

    def _first_infeasible_row(self) -> int:
        return score_values.first_forbidden_row(self.cells.flatten(1))

    def _with_hi_lo(self, value: Tensor, y: Tensor) -> DoubleDouble:
        return DoubleDouble(
            value.to(self._first_potentials.dtype), double_double.as_hi_lo(value)
        )

    def _score_unmasked(self, y: Tensor) -> Tensor:
        return self._score_float64(y)

    def _score_float64(self, boxes: Tensor) -> Tensor:
        """Scores ``(batch, k)`` of boxes ``(batch, k, 4)`` in float64."""
        rows, columns = self._row_and_column_masks(boxes)
        # two matrix products with 0/1 masks, differentiable in the cells; -inf is
        # handled apart, since 0 * -inf is NaN
        cells = self.cells.double()
        forbidden = cells.detach() == -torch.inf
        total = ((rows @ cells.masked_fill(forbidden, 0)) * columns).sum(2)
        if not checks.has_concrete_values() or bool(forbidden.any()):
            is_forbidden = ((rows @ forbidden.double()) * columns).sum(2) > 0
            total = total.masked_fill(is_forbidden, -torch.inf)
        return total + self._box_costs(boxes)

    def _box_costs(self, boxes: Tensor) -> Tensor:
        """Costs ``(batch, k)`` added to the scores of boxes ``(batch, k, 4)``."""
        return self._cost_weight[:, None] * (1 - self._intersection_over_union(boxes))

    def costs(self, y: Tensor) -> Float[Tensor, "batch k"]:
        """Cost ``c (1 - IoU)`` of boxes ``(batch, k, 4)``; c = 0 before ``augment``."""
        return self._box_costs(self._checked_outputs(y)[0]).to(self.cells.dtype)

    def _row_and_column_masks(self, boxes: Tensor) -> tuple[Tensor, Tensor]:
        """Indicators of the rows ``(batch, k, H)`` and columns ``(batch, k, W)``."""
        H, W = self.cells.shape[1:]
        top, left, bottom, right = boxes[..., None].unbind(2)
        row = torch.arange(H, device=boxes.device)
        column = torch.arange(W, device=boxes.device)
        rows, columns = (
            (row >= top) & (row <= bottom),
            (column >= left) & (column <= right),
        )
        return rows.double(), columns.double()

    def _intersection_over_union(self, boxes: Tensor) -> Tensor:
        """Intersection over union with the true boxes, ``(batch, k)``."""
        gold = self._gold[:, None]
        low = torch.maximum(boxes[..., :2], gold[..., :2])
        high = torch.minimum(boxes[..., 2:], gold[..., 2:])
        both = (high - low + 1).clamp(min=0).prod(2)
        areas = [(x[..., 2:] - x[..., :2] + 1).prod(2) for x in (boxes, gold)]
        return both.double() / (areas[0] + areas[1] - both)

    def hamming(self, y: Tensor) -> Float[Tensor, "batch H W"]:
        """Cells of the box y as 1, else 0: the ``cost`` of ``augment`` for 1 - IoU."""
        rows, columns = self._row_and_column_masks(self._single_output_per_row(y))
        return (rows[:, 0, :, None] * columns[:, 0, None]).to(self.cells.dtype)

    def augment(self, cost: Tensor) -> "BoxSearch":
        """Return the structure with ``c (1 - IoU)`` added to each box.

        ``cost`` is ``(batch, H, W)``: c in the cells of the true box and 0 elsewhere,
        as ``hamming`` returns for c = 1.
        """
        cost = checks.as_potentials("cost", cost)
        checks.require_device("cost", cost, self.cells.device)
        checks.require_shape("cost", cost, tuple(self.cells.shape), "(batch, H, W)")
        if checks.has_concrete_values() and bool((self._cost_weight > 0).any()):
            raise ValueError(
                "cost: expected a structure without a cost, got one that has a cost"
            )
        # c is read from the maximum, with gradient; where the box lies has none
        weight, cost = cost.flatten(1).amax(1).double(), cost.detach()
        c = cost.flatten(1).amax(1)
        inside = cost != 0
        rows, columns = inside.any(2).long(), inside.any(1).long()
        first = [rows.argmax(1), columns.argmax(1)]
        last = [x.shape[1] - 1 - x.flip(1).argmax(1) for x in (rows, columns)]
        other = self._with_potentials(self._row_potentials)
        other._gold = torch.stack([*first, *last], 1)
        other._cost_weight = weight
        # the cost must be c on a box and 0 elsewhere: compare with the box of its
        # nonzero rows and columns
        filled = self._row_and_column_masks(other._gold[:, None])
        box = filled[0].transpose(1, 2) * filled[1]
        fits = (cost == (box * c[:, None, None]).to(cost.dtype)).flatten(1).all(1)
        wrong = ~(fits & (c >= 0) & (c < score_values.LIMIT))
        if checks.has_concrete_values() and bool(wrong.any()):
            raise ValueError(
                "cost: expected one number of at least 0 in the cells of a box and 0 "
                f"outside, got something else at row {int(wrong.int().argmax())}; use "
                "hamming(y), times a number"
            )
        return other

    def scale(self, factor: float) -> "BoxSearch":
        """Return the structure with every score multiplied by ``factor > 0``."""
        other = super().scale(factor)
        # the cost is part of the scores, but no potential
        other._cost_weight = self._cost_weight * factor
        return other

    def _run_branch_and_bound(
        self, k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_], Tensor]:
        """The k best boxes ``[B, k, 4]``, which exist, and the sets visited ``[B]``."""
        B, H, W = self.cells.shape
        cells = np.ascontiguousarray(self._potentials_as_numpy("cells"))
        args = cells, to_numpy(self._gold.cpu()), to_numpy(self._cost_weight.cpu())
        boxes, valid = np.empty((B, k, 4), np.int64), np.empty((B, k), np.bool_)
        visited = np.empty(B, np.int64)
        work = B * H * W * (100 + 10 * k)
        run_rows(box_search.best_box, B, work, *args, boxes, valid, visited)
        return boxes, valid, torch.from_numpy(visited)

    def _search_best_outputs(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        boxes, valid, _ = self._run_branch_and_bound(1)
        return boxes[:, 0], valid[:, 0]

    def _search_k_best_outputs(
        self, k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        return self._run_branch_and_bound(k)[:2]

    def visits(self, k: int = 1) -> Int[Tensor, " batch"]:
        """Number of sets of boxes that the search for the k best visits."""
        return self._run_branch_and_bound(checks.as_output_count("k", k))[2].to(
            self.cells.device
        )
