"""Several labels on any graph: good labellings, by a cut for each label in turn."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from smoothsp.oracles._questions import checks
from smoothsp.oracles.graphs.binary_graph import BinaryGraph
from smoothsp.oracles.graphs.tree import Tree


def approximate_by_alpha_expansion(
    nodes: Float[Tensor, "batch v s"],
    edges: Tensor,
    index: Int[Tensor, "e 2"],
    *,
    max_rounds: int = 100,
) -> tuple[Float[Tensor, " batch"], Int[Tensor, "batch v"], Bool[Tensor, " batch"]]:
    r"""A labelling that no expansion of one label improves, of graphs with cycles.

    .. math:: s(y) = \sum_v \mathrm{nodes}[v, y_v]
        + \sum_{e = (i, j)} \mathrm{edges}[e, y_i, y_j]

    An expansion of a label gives it to any set of nodes; the best one is a minimum cut.
    Labels take turns until none improves. To find the best labelling is NP-hard, so the
    score is a lower bound of the maximum, and this is a function rather than a
    structure: a loss over it would not be the loss that it says. Where a labelling is
    known to be the best, ``exact`` says so.

    Parameters
    ----------
    nodes
        ``(batch, V, S)``, float32 or float64; ``-inf`` forbids a label.
    edges
        ``(batch, E)``, at least 0: what it scores to agree (Potts). Or
        ``(batch, E, S, S)``, finite: labels of the first and of the second node; for
        all labels a, b, c the sum of ``[a, a]`` and ``[b, c]`` must be at least that of
        ``[b, a]`` and ``[a, c]``.
    index
        ``(E, 2)`` integers from 0 to V - 1: the nodes of each edge.
    max_rounds
        Turns of all labels, at least 1.

    Returns
    -------
    value
        ``(batch,)``: scores of the labellings, differentiable.
    y
        ``(batch, V)`` int64.
    exact
        ``(batch,)`` bool: with one or two labels, and where edges form no cycle (then
        ``Tree`` answers).

    Raises
    ------
    TypeError, ValueError
        As :class:`BinaryGraph`; and for edges that expansions cannot take, which are
        named.

    Notes
    -----
    One cut a label and round, of the rows that still improve. With Potts edges, and
    nodes that score at most 0 once agreeing edges are counted as 0 and others as
    losses, the loss is at most twice the least.
    Source: Boykov, Veksler and Zabih, "Fast Approximate Energy Minimization via Graph
    Cuts" (2001), sections 3 and 6.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.oracles import approximate_by_alpha_expansion
    >>> nodes = torch.tensor([[[0.0, 0.0, 3.0], [0.5, 0.0, 0.0], [0.0, 1.0, 0.8]]])
    >>> ring = torch.tensor([[0, 1], [1, 2], [2, 0]])
    >>> value, y, exact = approximate_by_alpha_expansion(nodes, torch.ones(1, 3), ring)
    >>> y.tolist(), exact.tolist()
    ([[2, 2, 2]], [False])
    """
    max_rounds = checks.positive_int("max_rounds", max_rounds)
    nodes = checks.potentials("nodes", nodes)
    if nodes.dim() != 3 or not nodes.shape[2]:
        raise ValueError(
            "nodes: expected (batch, V, S) with at least one label, got "
            f"{tuple(nodes.shape)}"
        )
    full, index = _edges(nodes, edges, index)
    B, V, S = nodes.shape
    with torch.no_grad():
        fixed = nodes.detach(), full.detach()
        # the door of the binary graphs looks at nodes, indices, and loops
        empty = nodes.new_zeros((B, len(index), 2, 2))
        first = torch.stack([fixed[0].amax(2), fixed[0].amax(2)], 2)
        BinaryGraph(first, empty, index)
        if S <= 2 or _is_forest(index, V):
            y = _exactly(*fixed, index)
            exact = torch.ones(B, dtype=torch.bool, device=nodes.device)
        else:
            _require_expandable(fixed[1])
            y = _expanded(*fixed, index, max_rounds)
            exact = torch.zeros(B, dtype=torch.bool, device=nodes.device)
    return _score(nodes, full, index, y), y, exact


def _edges(nodes: Tensor, edges: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """Scores ``(batch, E, S, S)``, and the index."""
    edges = checks.potentials("edges", edges)
    checks.like("edges", edges, "nodes", nodes)
    index = checks.integers("index", index, nodes.device)
    if index.dim() != 2 or index.shape[1] != 2:
        raise ValueError(f"index: expected (E, 2), got {tuple(index.shape)}")
    B, _, S = nodes.shape
    E = len(index)
    if not bool(edges.isfinite().all()):
        raise ValueError("edges: expected finite numbers; forbid labels by nodes")
    if edges.dim() == 2:
        checks.shape("edges", edges, (B, E), "(batch, E)")
        same = torch.eye(S, dtype=torch.bool, device=edges.device)
        edges = torch.where(same, edges[..., None, None], 0.0)
    checks.shape("edges", edges, (B, E, S, S), "(batch, E, S, S)")
    return edges, index


def _require_expandable(edges: Tensor) -> None:
    """For all labels a, b, c ``[a, a] + [b, c] >= [b, a] + [a, c]``."""
    wide = edges.double()
    own = wide.diagonal(dim1=2, dim2=3)
    size = wide.abs().amax((2, 3)) if wide.numel() else wide.new_zeros(wide.shape[:2])
    slack = 8 * torch.finfo(torch.float64).eps * size
    for a in range(edges.shape[2]):
        more = own[:, :, a, None, None] + wide
        less = wide[:, :, :, a, None] + wide[:, :, None, a, :]
        wrong = more < less - slack[..., None, None]
        if bool(wrong.any()):
            row, edge, b, c = wrong.nonzero()[0].tolist()
            raise ValueError(
                f"edges: expected [{a}, {a}] + [{b}, {c}] to be at least "
                f"[{b}, {a}] + [{a}, {c}], got {more[row, edge, b, c].item():.6g} and "
                f"{less[row, edge, b, c].item():.6g} at row {row}, edge {edge}; use "
                "Tree where edges form no cycle"
            )


def _expanded(nodes: Tensor, edges: Tensor, index: Tensor, max_rounds: int) -> Tensor:
    """Labellings that no expansion improves."""
    S = nodes.shape[2]
    y = nodes.argmax(2)
    rows = torch.arange(len(y), device=y.device)
    for _ in range(max_rounds):
        before = y[rows]
        for a in range(S):
            y[rows] = _expand(nodes[rows], edges[rows], index, y[rows], a)
        changed = (y[rows] != before).any(1)
        rows = rows[changed]
        if not len(rows):
            break
    return y


def _expand(nodes: Tensor, edges: Tensor, index: Tensor, y: Tensor, a: int) -> Tensor:
    """The best of the labellings in which some nodes change to a."""
    if not len(y):
        return y
    B, E = edges.shape[:2]
    kept = nodes.gather(2, y.unsqueeze(2)).squeeze(2)
    moves = torch.stack([kept, nodes[:, :, a]], 2)
    first, second = y[:, index[:, 0]], y[:, index[:, 1]]
    at = torch.arange(B, device=y.device)[:, None], torch.arange(E, device=y.device)
    stays = edges[(*at, first, second)]
    parts = [stays, edges[(*at, first, a)], edges[(*at, a, second)], edges[:, :, a, a]]
    pairs = torch.stack(parts, 2).reshape(B, E, 2, 2).double()
    # what rounding takes from the triangle goes to where nothing changes
    lack = pairs[..., 0, 1] + pairs[..., 1, 0] - pairs[..., 0, 0] - pairs[..., 1, 1]
    pairs[..., 0, 0] += lack.clamp(min=0)
    _, taken = BinaryGraph(moves.double(), pairs, index).decode()
    moved = torch.where(taken == 1, a, y)
    old = _score(nodes.double(), edges.double(), index, y)
    new = _score(nodes.double(), edges.double(), index, moved)
    # a tie would go on for ever
    better = new > old + 1e-12 * (1 + old.abs())
    return torch.where(better.unsqueeze(1), moved, y)


def _score(nodes: Tensor, edges: Tensor, index: Tensor, y: Tensor) -> Tensor:
    at = torch.arange(len(y), device=y.device)[:, None]
    e = torch.arange(len(index), device=y.device)
    first, second = y[:, index[:, 0]], y[:, index[:, 1]]
    own = nodes.gather(2, y.unsqueeze(2)).squeeze(2).sum(1)
    return own + edges[at, e, first, second].sum(1)


def _is_forest(index: Tensor, V: int) -> bool:
    """Whether no edge closes a cycle."""
    above = list(range(V))
    for i, j in index.tolist():
        while above[i] != i:
            above[i] = i = above[above[i]]
        while above[j] != j:
            above[j] = j = above[above[j]]
        if i == j:
            return False
        above[i] = j
    return True


def _exactly(nodes: Tensor, edges: Tensor, index: Tensor) -> Tensor:
    """Best labellings, where there are two labels or no cycles."""
    B, V, S = nodes.shape
    if S == 1:
        return torch.zeros(B, V, dtype=torch.int64, device=nodes.device)
    if not _is_forest(index, V):
        return BinaryGraph(nodes, edges, index).decode()[1]
    near: list[list[tuple[int, int, bool]]] = [[] for _ in range(V)]
    for e, (i, j) in enumerate(index.tolist()):
        near[i].append((j, e, True))
        near[j].append((i, e, False))
    parents = torch.full((V,), -1, device="cpu")
    tree = edges.new_zeros((B, V, S, S))
    seen = [False] * V
    for root in range(V):
        waiting = [] if seen[root] else [root]
        seen[root] = True
        while waiting:
            v = waiting.pop()
            for u, e, down in near[v]:
                if seen[u]:
                    continue
                seen[u] = True
                parents[u] = v
                tree[:, u] = edges[:, e] if down else edges[:, e].transpose(1, 2)
                waiting.append(u)
    return Tree(nodes, tree, parents.to(nodes.device)).decode()[1]
