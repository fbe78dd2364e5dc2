"""A linear structured SVM over superpixels, for every lambda, with certificates.

    score(y) = sum_p (2 y_p - 1) <w_U, x_p> + sum_pq <w_P, x_pq> [y_p = y_q],  w_P >= 0

Features of neighbours are at least 0, so that with weights of at least 0 neighbours
rather agree, and a minimum cut finds the best labels. The bounds are kept by the dual
solver, in its certificate too.

Source: Osokin et al., "Minding the Gaps", sections 4 and 5, appendices H and I.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from segmentation.features import EDGE_FEATURES, NODE_FEATURES, Features
from smoothsp.linear.problems import Batch, Parts, StructureProblem
from smoothsp.linear.solvers import BCFW, PathPoint, RegularisationPath, Solution
from smoothsp.oracles import BinaryGraph

WEIGHTS = NODE_FEATURES + EDGE_FEATURES
# The paper's advice where a call of the oracle is dear.
STEPS: dict[str, Any] = {"sampling": "gap", "steps": "pairwise", "cache": True}
KAPPA = 0.8
# Oracle calls an image: of the path, whose last lambdas cost most, and of one lambda.
PATH_PASSES, MOST_PASSES = 100, 3000

Bounds = tuple[np.ndarray, np.ndarray]


class Pictures(BinaryGraph):
    """Graphs that know what a wrong superpixel costs, ``(batch, V, 2)``."""

    costs: Tensor


def problem_of(
    graphs: list[Features],
    golds: list[np.ndarray] | None = None,
    cost: str = "balanced",
) -> StructureProblem:
    """Graphs as one problem, padded to the largest.

    What is added are superpixels that have no features, cost nothing and touch nothing.
    """
    most = max(2, *(len(graph.sizes) for graph in graphs))
    edges = max(len(graph.index) for graph in graphs)
    index = np.tile(np.array([0, 1]), (len(graphs), edges, 1))
    costs = np.zeros((len(graphs), most, 2))
    labels = np.zeros((len(graphs), most), np.int64)
    for i, graph in enumerate(graphs):
        index[i, : len(graph.index)] = graph.index
        if golds is not None:
            gold, own = golds[i], np.arange(len(graph.sizes))
            labels[i, own], costs[i, own, 1 - gold] = gold, graph.costs(gold, cost)
    ends, prices = torch.from_numpy(index), torch.from_numpy(costs)

    def build(potentials: dict[str, Tensor], batch: Batch) -> Pictures:
        figure = potentials["superpixels"]
        nodes = torch.stack([-figure, figure], -1)
        found = Pictures(nodes, potentials["neighbours"], ends[batch.rows])
        found.costs = prices[batch.rows]
        return found

    features = {
        "superpixels": _parts([graph.nodes for graph in graphs], most),
        "neighbours": _parts([graph.edges for graph in graphs], edges),
    }
    known = None if golds is None else labels
    return StructureProblem(build, features, known, cost=lambda graphs, _: graphs.costs)


def _parts(arrays: list[np.ndarray], count: int) -> Parts:
    """Rows of features, and empty ones up to ``count`` for each image."""
    rows = []
    for array in arrays:
        own = sparse.csr_matrix(array.astype(np.float64))
        own.resize(count, array.shape[1])
        rows.append(own)
    return Parts(sparse.vstack(rows, format="csr"), [count] * len(arrays))


def bounds(neighbours: bool = True) -> Bounds:
    """Weights of neighbours at least 0; without neighbours these are 0."""
    lower, upper = np.full(WEIGHTS, -np.inf), np.full(WEIGHTS, np.inf)
    lower[NODE_FEATURES:] = 0
    if not neighbours:
        upper[NODE_FEATURES:] = 0
    return lower, upper


def labels_of(w: np.ndarray, graphs: list[Features]) -> list[np.ndarray]:
    """The best labels of the superpixels of each image."""
    found = problem_of(graphs).decode(w)
    return [y[: len(graph.sizes)] for y, graph in zip(found, graphs, strict=True)]


def path(
    eps: float, seed: int, callback: Callable[[PathPoint], Any] | None = None
) -> RegularisationPath:
    """What finds weights for every lambda."""
    return RegularisationPath(
        eps=eps,
        kappa=KAPPA,
        seed=seed,
        bounds=bounds(),
        max_passes=PATH_PASSES,
        callback=callback,
        **STEPS,
    )


def solve(
    problem: StructureProblem, lam: float, tol: float, seed: int, neighbours: bool
) -> Solution:
    """Weights at one lambda, to a gap of ``tol``; Ctrl-C raises."""
    solver = BCFW(
        lam=lam,
        tol=tol,
        seed=seed,
        bounds=bounds(neighbours),
        max_passes=MOST_PASSES,
        progress=sys.stderr.isatty(),
        **STEPS,
    )
    found = solver.solve(problem)
    if found.interrupted:
        raise KeyboardInterrupt
    return found
