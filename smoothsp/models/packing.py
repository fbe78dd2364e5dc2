"""Packing of labelled boxes: sets without overlapping boxes, as integer programs.

The score of a set is the sum of the scores of its boxes. The best set is a
maximum-weight independent set of the conflict graph. It is an ``IntegerProgram`` with
one constraint for each clique of a cover of all edges. Clique constraints are tighter
than edge constraints.
Connected components of the graph are rows of a batch, since they decode independently.
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
    """Integer program over labelled boxes, and the variable of each box."""

    program: IntegerProgram
    """One row for each connected component of the conflict graph."""
    row: Tensor
    """``(pair,)``: row of each pair of box and label."""
    column: Tensor
    """``(pair,)``: variable of the pair in its row."""

    def scatter(self, values: Tensor, fill: float = 0.0) -> Tensor:
        """Scatter values ``(pair,)`` to variables; other variables get ``fill``."""
        scattered = values.new_full(tuple(self.program.scores.shape), fill)
        return scattered.index_put((self.row, self.column), values)

    def best(self) -> Tensor:
        """Return whether each pair is in the best set, bool ``(pair,)``."""
        return self.program.decode()[1][self.row, self.column].bool()


def build_packing(scores: Tensor, boxes: Tensor, overlap: float) -> Packing:
    """Build the integer program over pairs of a box and a label.

    Parameters
    ----------
    scores
        ``(pair,)``, at least one.
    boxes
        ``(pair, 4)``; a box may occur several times, with one label each.
    overlap
        Boxes exclude each other if their intersection over union is above this.
    """
    conflicts = find_conflicts(boxes, overlap)
    row = _find_components(conflicts)
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
    """Return the conflict graph, bool ``(box, box)``, with a False diagonal."""
    is_conflict: ConflictMatrix = (box_iou(boxes, boxes) > overlap).numpy()
    np.fill_diagonal(is_conflict, False)
    return is_conflict


def _find_components(conflict: ConflictMatrix) -> NDArray[np.intp]:
    """Return the index of the connected component of each node.

    Labels propagate: each node takes the smallest label of its neighbours until none
    changes.
    """
    near = conflict | np.eye(len(conflict), dtype=bool)
    row = np.arange(len(near))
    while ((first := np.where(near, row, len(row)).min(1)) < row).any():
        row = first
    return np.unique(row, return_inverse=True)[1]


def undominated_boxes(scores: Tensor, boxes: Tensor, overlap: float) -> Tensor:
    """Return indices of boxes that are not dominated; scores ``(box,)`` are positive.

    A better box whose conflicts are all conflicts of the other one, too, dominates it:
    it can replace the other box in any set. So some best set has no dominated boxes.
    """
    is_near = find_conflicts(boxes, overlap)
    np.fill_diagonal(is_near, True)
    # Ties: the first of equal boxes is ranked better.
    rank = np.empty(len(is_near), np.int64)
    rank[np.argsort(-scores.numpy(), kind="stable")] = np.arange(len(is_near))
    closed = is_near.astype(np.float32)
    is_inside = closed @ (1 - closed).T == 0
    is_dominated_by = is_near & is_inside & (rank[:, None] < rank)
    return torch.from_numpy(np.flatnonzero(~is_dominated_by.any(0)))


def cover_with_cliques(conflict: ConflictMatrix) -> list[NDArray[np.intp]]:
    """Cover all edges of a graph ``(node, node)`` with maximal cliques.

    Greedy: a clique starts with the first uncovered edge, and grows while some node is
    a neighbour of all its members.
    """
    uncovered = np.triu(conflict)
    cliques = []
    while uncovered.any():
        first, second = np.argwhere(uncovered)[0]
        clique, common = [first, second], conflict[first] & conflict[second]
        while common.any():
            nodes = np.flatnonzero(common)
            # Add the node with the most neighbours among the common neighbours.
            node = nodes[conflict[np.ix_(nodes, nodes)].sum(1).argmax()]
            clique.append(node)
            common = common & conflict[node]
        members = np.array(clique)
        uncovered[np.ix_(members, members)] = False
        cliques.append(members)
    return cliques
