"""Sets of labelled boxes in which boxes that overlap exclude each other.

The score of a set is the sum of the scores of its boxes. The best set is a heaviest
independent set of the graph of conflicts: an ``IntegerProgram`` with a constraint for
each of some cliques that cover all conflicts. Parts of the graph that no conflict joins
are rows of a batch, since each can be decoded alone.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchvision.ops import box_iou

from smoothsp.oracles import IntegerProgram

__all__ = [
    "Packing",
    "build_packing",
    "cover_with_cliques",
    "find_conflicts",
    "undominated_boxes",
]

Graph = NDArray[np.bool_]


@dataclass(frozen=True)
class Packing:
    """A structure over labelled boxes, and where each of them stands in it."""

    program: IntegerProgram
    """A row for each part of the graph of conflicts."""
    row: Tensor
    """``(pair,)``: the row of each box with a label."""
    column: Tensor
    """``(pair,)``: its variable there."""

    def laid_out(self, values: Tensor, rest: float = 0.0) -> Tensor:
        """Values ``(pair,)`` as the variables stand, ``rest`` where there is none."""
        found = values.new_full(tuple(self.program.scores.shape), rest)
        return found.index_put((self.row, self.column), values)

    def best(self) -> Tensor:
        """Return which pairs are in the best set, bool ``(pair,)``."""
        return self.program.decode()[1][self.row, self.column].bool()


def build_packing(scores: Tensor, boxes: Tensor, overlap: float) -> Packing:
    """The structure over pairs of a box and a label.

    Parameters
    ----------
    scores
        ``(pair,)``, at least one.
    boxes
        ``(pair, 4)``; the same box may come several times, with a label each.
    overlap
        Boxes exclude each other if their intersection over union is above this.
    """
    conflict = find_conflicts(boxes, overlap)
    row = _components(conflict)
    column = np.zeros(len(row), np.int64)
    members = [np.flatnonzero(row == part) for part in range(row.max() + 1)]
    count = len(members)
    covers = []
    for own in members:
        column[own] = np.arange(len(own))
        covers.append(cover_with_cliques(conflict[np.ix_(own, own)]))
    size = max(map(len, members))
    table = np.zeros((count, max(map(len, covers)), size))
    for part, cover in enumerate(covers):
        for number, clique in enumerate(cover):
            table[part, number, clique] = 1
    place = torch.from_numpy(row).long(), torch.from_numpy(column)
    laid = scores.new_full((count, size), -torch.inf).index_put(place, scores)
    return Packing(IntegerProgram(laid, (table, -np.inf, 1.0)), *place)


def find_conflicts(boxes: Tensor, overlap: float) -> Graph:
    """Return which boxes exclude each other, bool ``(box, box)``; none itself."""
    found: Graph = (box_iou(boxes, boxes) > overlap).numpy()
    np.fill_diagonal(found, False)
    return found


def _components(conflict: Graph) -> NDArray[np.intp]:
    """Number of the connected part of each node."""
    near = conflict | np.eye(len(conflict), dtype=bool)
    row = np.arange(len(near))
    while ((first := np.where(near, row, len(row)).min(1)) < row).any():
        row = first
    return np.unique(row, return_inverse=True)[1]


def undominated_boxes(scores: Tensor, boxes: Tensor, overlap: float) -> Tensor:
    """Numbers of boxes of which some make up a best set; scores ``(box,)`` are above 0.

    Left out are boxes that a better one excludes which excludes nothing else: it could
    take their place in any set.
    """
    near = find_conflicts(boxes, overlap)
    np.fill_diagonal(near, True)
    # of equal ones the first stays
    rank = np.empty(len(near), np.int64)
    rank[np.argsort(-scores.numpy(), kind="stable")] = np.arange(len(near))
    closed = near.astype(np.float32)
    inside = closed @ (1 - closed).T == 0
    better = near & inside & (rank[:, None] < rank)
    return torch.from_numpy(np.flatnonzero(~better.any(0)))


def cover_with_cliques(conflict: Graph) -> list[NDArray[np.intp]]:
    """Cliques that cover all edges of a graph ``(node, node)``.

    Each begins with the first edge that none covers yet, and grows as long as a node is
    a neighbour of all.
    """
    left = np.triu(conflict)
    found = []
    while left.any():
        one, other = np.argwhere(left)[0]
        clique, near = [one, other], conflict[one] & conflict[other]
        while near.any():
            nodes = np.flatnonzero(near)
            # the one that keeps most of what is left
            node = nodes[conflict[np.ix_(nodes, nodes)].sum(1).argmax()]
            clique.append(node)
            near = near & conflict[node]
        members = np.array(clique)
        left[np.ix_(members, members)] = False
        found.append(members)
    return found
