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

ConflictMatrix = NDArray[np.bool_]


@dataclass(frozen=True)
class Packing:
    """A structure over labelled boxes, and where each of them stands in it."""

    program: IntegerProgram
    """A row for each part of the graph of conflicts."""
    row: Tensor
    """``(pair,)``: the row of each box with a label."""
    column: Tensor
    """``(pair,)``: its variable there."""

    def scatter(self, values: Tensor, fill: float = 0.0) -> Tensor:
        """Values ``(pair,)`` as the variables stand, ``rest`` where there is none."""
        scattered = values.new_full(tuple(self.program.scores.shape), fill)
        return scattered.index_put((self.row, self.column), values)

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
    conflicts = find_conflicts(boxes, overlap)
    row = _component_indices(conflicts)
    column = np.zeros(len(row), np.int64)
    members = [np.flatnonzero(row == part) for part in range(row.max() + 1)]
    count = len(members)
    clique_covers = []
    for nodes in members:
        column[nodes] = np.arange(len(nodes))
        clique_covers.append(cover_with_cliques(conflicts[np.ix_(nodes, nodes)]))
    size = max(map(len, members))
    table = np.zeros((count, max(map(len, clique_covers)), size))
    for part, clique_cover in enumerate(clique_covers):
        for number, clique in enumerate(clique_cover):
            table[part, number, clique] = 1
    positions = torch.from_numpy(row).long(), torch.from_numpy(column)
    scattered = scores.new_full((count, size), -torch.inf).index_put(positions, scores)
    return Packing(IntegerProgram(scattered, (table, -np.inf, 1.0)), *positions)


def find_conflicts(boxes: Tensor, overlap: float) -> ConflictMatrix:
    """Return which boxes exclude each other, bool ``(box, box)``; none itself."""
    is_conflict: ConflictMatrix = (box_iou(boxes, boxes) > overlap).numpy()
    np.fill_diagonal(is_conflict, False)
    return is_conflict


def _component_indices(conflict: ConflictMatrix) -> NDArray[np.intp]:
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
    is_near = find_conflicts(boxes, overlap)
    np.fill_diagonal(is_near, True)
    # of equal ones the first stays
    rank = np.empty(len(is_near), np.int64)
    rank[np.argsort(-scores.numpy(), kind="stable")] = np.arange(len(is_near))
    closed = is_near.astype(np.float32)
    is_inside = closed @ (1 - closed).T == 0
    is_dominated_by = is_near & is_inside & (rank[:, None] < rank)
    return torch.from_numpy(np.flatnonzero(~is_dominated_by.any(0)))


def cover_with_cliques(conflict: ConflictMatrix) -> list[NDArray[np.intp]]:
    """Cliques that cover all edges of a graph ``(node, node)``.

    Each begins with the first edge that none covers yet, and grows as long as a node is
    a neighbour of all.
    """
    uncovered = np.triu(conflict)
    cliques = []
    while uncovered.any():
        first, second = np.argwhere(uncovered)[0]
        clique, common = [first, second], conflict[first] & conflict[second]
        while common.any():
            nodes = np.flatnonzero(common)
            # the one that keeps most of what is left
            node = nodes[conflict[np.ix_(nodes, nodes)].sum(1).argmax()]
            clique.append(node)
            common = common & conflict[node]
        members = np.array(clique)
        uncovered[np.ix_(members, members)] = False
        cliques.append(members)
    return cliques
