"""Validation and scores of pairwise models on graphs, for approximate decoders."""

import torch
from torch import Tensor

from smoothsp.oracles._inference import checks, score_values


def checked_graph(
    nodes: Tensor, edges: Tensor, index: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Validate nodes ``(batch, V, S)``, edges ``(batch, E, S, S)``, index ``(E, 2)``.

    Edges ``(batch, E)`` are scores of equal labels (Potts) and are expanded.
    """
    nodes = checks.as_potentials("nodes", nodes)
    if nodes.dim() != 3 or not nodes.shape[2]:
        raise ValueError(
            "nodes: expected (batch, V, S) with at least one label, got "
            f"{tuple(nodes.shape)}"
        )
    B, V, S = nodes.shape
    edges = checks.as_potentials("edges", edges)
    checks.require_same_dtype("edges", edges, "nodes", nodes)
    index = checks.as_int64("index", index, nodes.device)
    if index.dim() != 2 or index.shape[1] != 2:
        raise ValueError(f"index: expected (E, 2), got {tuple(index.shape)}")
    # one graph for all rows, so a loop over its edges is cheap
    for e, (i, j) in enumerate(index.tolist()):
        if not (0 <= i < V and 0 <= j < V and i != j):
            raise ValueError(
                f"index: expected two nodes from 0 to {V - 1}, got {i} and {j} at edge "
                f"{e}"
            )
    E = len(index)
    nodes, edges = _checked_scores("nodes", nodes), _checked_scores("edges", edges)
    # decoders take differences of edge scores, which -inf would turn into NaN
    if bool((edges == -torch.inf).any()):
        raise ValueError("edges: expected finite numbers; forbid labels by nodes")
    if edges.dim() == 2:
        checks.require_shape("edges", edges, (B, E), "(batch, E)")
        same = torch.eye(S, dtype=torch.bool, device=edges.device)
        edges = torch.where(same, edges[..., None, None], 0.0)
    checks.require_shape("edges", edges, (B, E, S, S), "(batch, E, S, S)")
    best = nodes.detach().amax(2)
    if bool((best == -torch.inf).any()):
        b, v = (best == -torch.inf).nonzero()[0].tolist()
        raise ValueError(
            f"nodes: row {b} has no feasible output: all labels of node {v} are "
            "forbidden (-inf); allow one"
        )
    return nodes, edges, index


def score_labellings(nodes: Tensor, edges: Tensor, index: Tensor, y: Tensor) -> Tensor:
    """Scores ``(batch,)`` of labellings ``(batch, V)``, differentiable."""
    row = torch.arange(len(y), device=y.device)[:, None]
    e = torch.arange(len(index), device=y.device)
    first, second = y[:, index[:, 0]], y[:, index[:, 1]]
    # sums in float64, rounded once
    node_scores = nodes.gather(2, y.unsqueeze(2)).squeeze(2).double().sum(1)
    total = node_scores + edges[row, e, first, second].double().sum(1)
    return total.to(nodes.dtype)


def _checked_scores(name: str, x: Tensor) -> Tensor:
    """Raise ValueError for NaN or too large scores; replace low ones by -inf."""
    is_invalid = score_values.is_invalid(x)
    if bool(is_invalid.any()):
        entry = is_invalid.nonzero()[0].tolist()
        where = f"row {entry[0]}, entry {entry[1:]}"
        raise ValueError(
            score_values.invalid_value_message(name, x[tuple(entry)].item(), where)
        )
    return score_values.mask_low_scores(x)
