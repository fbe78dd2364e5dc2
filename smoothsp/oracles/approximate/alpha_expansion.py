"""Alpha expansion: approximate labellings of any graph by repeated cuts."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from smoothsp.oracles._inference import checks
from smoothsp.oracles.approximate import dual_decomposition, pairwise
from smoothsp.oracles.graphs.binary_graph import BinaryGraph


def approximate_by_alpha_expansion(
    nodes: Float[Tensor, "batch v s"],
    edges: Tensor,
    index: Int[Tensor, "e 2"],
    *,
    max_rounds: int = 100,
) -> tuple[Float[Tensor, " batch"], Int[Tensor, "batch v"], Bool[Tensor, " batch"]]:
    r"""Find a labelling that no expansion of one label improves.

    .. math:: s(y) = \sum_v \mathrm{nodes}[v, y_v]
        + \sum_{e = (i, j)} \mathrm{edges}[e, y_i, y_j]

    An expansion assigns one label to any set of nodes; the best expansion is a minimum
    cut. Labels take turns until none improves the score. The exact maximum is NP-hard,
    so the score is a lower bound of it. For this reason it is a function, not a
    structure that losses accept. ``exact`` marks labellings that are certified to be
    the best; ``approximate_by_dual_decomposition`` certifies more of them.

    Parameters
    ----------
    nodes
        ``(batch, V, S)``, float32 or float64; ``-inf`` forbids a label.
    edges
        ``(batch, E)``, at least 0: the score of equal labels (Potts). Or ``(batch, E,
        S, S)``, finite: labels of the first and of the second node. For all labels a,
        b, c the sum of ``[a, a]`` and ``[b, c]`` must be at least that of ``[b, a]``
        and ``[a, c]``.
    index
        ``(E, 2)`` integers from 0 to V - 1: the nodes of each edge.
    max_rounds
        Maximum number of rounds over all labels, at least 1.

    Returns
    -------
    value
        ``(batch,)``: scores of the labellings, differentiable.
    y
        ``(batch, V)`` int64.
    exact
        ``(batch,)`` bool: True with one or two labels, or if edges form no cycle.

    Raises
    ------
    TypeError, ValueError
        As for :class:`BinaryGraph`, and for edges that violate the inequality above;
        the message names them.

    Notes
    -----
    Each round needs one cut per label, for the rows that still improve. Subtract the
    scores of equal labels so that edges score at most 0, and suppose that nodes score
    at most 0. With Potts edges the negated score is then at most twice its minimum.
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
    max_rounds = checks.as_positive_int("max_rounds", max_rounds)
    nodes, edge_tables, index = pairwise.checked_graph(nodes, edges, index)
    B, V, S = nodes.shape
    with torch.no_grad():
        detached = nodes.detach(), edge_tables.detach()
        forests = dual_decomposition.cover_with_forests(index, V)
        exact = torch.ones(B, dtype=torch.bool, device=nodes.device)
        if S == 1 or len(forests[1]) == 1:
            y, _, _ = dual_decomposition.run_block_descent(*detached, forests, 1)
        elif S == 2:
            y = BinaryGraph(*detached, index).decode()[1]
        else:
            _require_triangle_inequality(detached[1])
            y = _run_expansions(*detached, index, max_rounds)
            exact = ~exact
    return pairwise.score_labellings(nodes, edge_tables, index, y), y, exact


def _require_triangle_inequality(edges: Tensor) -> None:
    """Raise ValueError unless ``[a, a] + [b, c] >= [b, a] + [a, c]`` for all a, b, c.

    The condition makes each expansion a submodular problem.
    """
    edges_float64 = edges.double()
    equal_label_scores = edges_float64.diagonal(dim1=2, dim2=3)
    size = (
        edges_float64.abs().amax((2, 3))
        if edges_float64.numel()
        else edges_float64.new_zeros(edges_float64.shape[:2])
    )
    # tolerance for scores rounded to the input dtype
    slack = 8 * torch.finfo(edges.dtype).eps * size
    for a in range(edges.shape[2]):
        left_side = equal_label_scores[:, :, a, None, None] + edges_float64
        right_side = edges_float64[:, :, :, a, None] + edges_float64[:, :, None, a, :]
        is_violated = left_side < right_side - slack[..., None, None]
        if bool(is_violated.any()):
            row, edge, b, c = is_violated.nonzero()[0].tolist()
            raise ValueError(
                f"edges: expected [{a}, {a}] + [{b}, {c}] to be at least "
                f"[{b}, {a}] + [{a}, {c}], got {left_side[row, edge, b, c].item():.6g} "
                f"and {right_side[row, edge, b, c].item():.6g} at row {row}, edge "
                f"{edge}; use Tree where edges form no cycle"
            )


def _run_expansions(
    nodes: Tensor, edges: Tensor, index: Tensor, max_rounds: int
) -> Tensor:
    """Expand labels in turn until no expansion improves; labellings ``(batch, V)``."""
    S = nodes.shape[2]
    y = nodes.argmax(2)
    rows = torch.arange(len(y), device=y.device)
    for _ in range(max_rounds):
        before = y[rows]
        for a in range(S):
            y[rows] = _best_expansion(nodes[rows], edges[rows], index, y[rows], a)
        changed = (y[rows] != before).any(1)
        # only rows that improved in the last round continue
        rows = rows[changed]
        if not len(rows):
            break
    return y


def _best_expansion(
    nodes: Tensor, edges: Tensor, index: Tensor, y: Tensor, label: int
) -> Tensor:
    """Best labelling in which each node keeps its label or changes to ``label``.

    A binary cut: label 0 of the cut keeps, label 1 changes.
    """
    if not len(y):
        return y
    B, E = edges.shape[:2]
    current_scores = nodes.gather(2, y.unsqueeze(2)).squeeze(2)
    node_tables = torch.stack([current_scores, nodes[:, :, label]], 2)
    first, second = y[:, index[:, 0]], y[:, index[:, 1]]
    row_and_edge = (
        torch.arange(B, device=y.device)[:, None],
        torch.arange(E, device=y.device),
    )
    current_edges = edges[(*row_and_edge, first, second)]
    edge_columns = [
        current_edges,
        edges[(*row_and_edge, first, label)],
        edges[(*row_and_edge, label, second)],
        edges[:, :, label, label],
    ]
    edge_tables = torch.stack(edge_columns, 2).reshape(B, E, 2, 2).double()
    # where rounding violates the inequality, raise the score of keeping both labels;
    # the true scores below decide whether the expansion is accepted
    violation = (
        edge_tables[..., 0, 1]
        + edge_tables[..., 1, 0]
        - edge_tables[..., 0, 0]
        - edge_tables[..., 1, 1]
    )
    edge_tables[..., 0, 0] += violation.clamp(min=0)
    _, in_cut = BinaryGraph(node_tables.double(), edge_tables, index).decode()
    expanded = torch.where(in_cut == 1, label, y)
    old = pairwise.score_labellings(nodes.double(), edges.double(), index, y)
    new = pairwise.score_labellings(nodes.double(), edges.double(), index, expanded)
    # strict improvement beyond rounding: tied labellings could alternate for ever
    better = new > old + 1e-12 * (1 + old.abs())
    return torch.where(better.unsqueeze(1), expanded, y)
