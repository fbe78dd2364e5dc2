"""Graphs whose nodes have labels, and scores for them and for those of each edge."""

import torch
from torch import Tensor

from smoothsp.oracles._questions import checks


def checked(
    nodes: Tensor, edges: Tensor, index: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Nodes ``(batch, V, S)``, edges ``(batch, E, S, S)``, index ``(E, 2)``: sound.

    Edges may be given as ``(batch, E)``, what it scores to agree.
    """
    nodes = checks.potentials("nodes", nodes)
    if nodes.dim() != 3 or not nodes.shape[2]:
        raise ValueError(
            "nodes: expected (batch, V, S) with at least one label, got "
            f"{tuple(nodes.shape)}"
        )
    B, V, S = nodes.shape
    edges = checks.potentials("edges", edges)
    checks.like("edges", edges, "nodes", nodes)
    index = checks.integers("index", index, nodes.device)
    if index.dim() != 2 or index.shape[1] != 2:
        raise ValueError(f"index: expected (E, 2), got {tuple(index.shape)}")
    for e, (i, j) in enumerate(index.tolist()):
        if not (0 <= i < V and 0 <= j < V and i != j):
            raise ValueError(
                f"index: expected two nodes from 0 to {V - 1}, got {i} and {j} at edge "
                f"{e}"
            )
    E = len(index)
    if not bool(edges.isfinite().all()):
        raise ValueError("edges: expected finite numbers; forbid labels by nodes")
    if edges.dim() == 2:
        checks.shape("edges", edges, (B, E), "(batch, E)")
        same = torch.eye(S, dtype=torch.bool, device=edges.device)
        edges = torch.where(same, edges[..., None, None], 0.0)
    checks.shape("edges", edges, (B, E, S, S), "(batch, E, S, S)")
    best = nodes.detach().amax(2)
    if not bool((best < torch.inf).all()):
        b, v = (~(best < torch.inf)).nonzero()[0].tolist()
        raise ValueError(
            f"nodes: expected no NaN and no +inf, got one at row {b}, node {v}; "
            "potentials must be finite, or -inf to forbid"
        )
    if bool((best == -torch.inf).any()):
        b, v = (best == -torch.inf).nonzero()[0].tolist()
        raise ValueError(
            f"nodes: row {b} has no feasible output: all labels of node {v} are "
            "forbidden (-inf); allow one"
        )
    return nodes, edges, index


def score(nodes: Tensor, edges: Tensor, index: Tensor, y: Tensor) -> Tensor:
    """Scores ``(batch,)`` of labellings ``(batch, V)``, differentiable."""
    at = torch.arange(len(y), device=y.device)[:, None]
    e = torch.arange(len(index), device=y.device)
    first, second = y[:, index[:, 0]], y[:, index[:, 1]]
    own = nodes.gather(2, y.unsqueeze(2)).squeeze(2).double().sum(1)
    total = own + edges[at, e, first, second].double().sum(1)
    found = total.to(nodes.dtype)
    if not bool(found.isfinite().all()):
        row = int((~found.isfinite()).nonzero()[0, 0])
        raise ValueError(
            f"nodes, edges: expected scores whose sum {nodes.dtype} holds, got "
            f"{total[row].item():.3g} in row {row}; scale them down, or forbid with "
            "-inf"
        )
    return found
