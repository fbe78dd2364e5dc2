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
PATH_PASSES, MAX_PASSES = 100, 3000

Bounds = tuple[np.ndarray, np.ndarray]


class GraphsWithCosts(BinaryGraph):
    """Graphs that know what a wrong superpixel costs, ``(batch, V, 2)``."""

    costs: Tensor


def build_problem(
    graphs: list[Features],
    golds: list[np.ndarray] | None = None,
    cost: str = "balanced",
) -> StructureProblem:
    """Graphs as one problem, padded to the largest.

    What is added are superpixels that have no features, cost nothing and touch nothing.
    """
    max_nodes = max(2, *(len(graph.sizes) for graph in graphs))
    max_edges = max(len(graph.index) for graph in graphs)
    index = np.tile(np.array([0, 1]), (len(graphs), max_edges, 1))
    costs = np.zeros((len(graphs), max_nodes, 2))
    labels = np.zeros((len(graphs), max_nodes), np.int64)
    for i, graph in enumerate(graphs):
        index[i, : len(graph.index)] = graph.index
        if golds is not None:
            gold, real = golds[i], np.arange(len(graph.sizes))
            labels[i, real], costs[i, real, 1 - gold] = gold, graph.costs(gold, cost)
    edge_index, cost_tensor = torch.from_numpy(index), torch.from_numpy(costs)

    def build(potentials: dict[str, Tensor], batch: Batch) -> GraphsWithCosts:
        figure = potentials["superpixels"]
        nodes = torch.stack([-figure, figure], -1)
        structure = GraphsWithCosts(
            nodes, potentials["neighbours"], edge_index[batch.rows]
        )
        structure.costs = cost_tensor[batch.rows]
        return structure

    features = {
        "superpixels": _stack_features([graph.nodes for graph in graphs], max_nodes),
        "neighbours": _stack_features([graph.edges for graph in graphs], max_edges),
    }
    gold_or_none = None if golds is None else labels
    return StructureProblem(
        build, features, gold_or_none, cost=lambda graphs, _: graphs.costs
    )


def _stack_features(arrays: list[np.ndarray], count: int) -> Parts:
    """Rows of features, and empty ones up to ``count`` for each image."""
    rows = []
    for array in arrays:
        sparse_rows = sparse.csr_matrix(array.astype(np.float64))
        sparse_rows.resize(count, array.shape[1])
        rows.append(sparse_rows)
    return Parts(sparse.vstack(rows, format="csr"), [count] * len(arrays))


def bounds(neighbours: bool = True) -> Bounds:
    """Weights of neighbours at least 0; without neighbours these are 0."""
    lower, upper = np.full(WEIGHTS, -np.inf), np.full(WEIGHTS, np.inf)
    lower[NODE_FEATURES:] = 0
    if not neighbours:
        upper[NODE_FEATURES:] = 0
    return lower, upper


def predict_labels(w: np.ndarray, graphs: list[Features]) -> list[np.ndarray]:
    """The best labels of the superpixels of each image."""
    labels = build_problem(graphs).decode(w)
    return [y[: len(graph.sizes)] for y, graph in zip(labels, graphs, strict=True)]


def regularisation_path(
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
        max_passes=MAX_PASSES,
        progress=sys.stderr.isatty(),
        **STEPS,
    )
    solution = solver.solve(problem)
    if solution.interrupted:
        raise KeyboardInterrupt
    return solution
