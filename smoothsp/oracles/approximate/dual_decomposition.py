"""Dual decomposition into forests: a labelling of any graph, and an upper bound."""

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from smoothsp._kernels.combinatorial import dual_decomposition
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp.oracles._inference import checks
from smoothsp.oracles._inference.to_numpy import to_numpy
from smoothsp.oracles.approximate import pairwise

Forests = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


def approximate_by_dual_decomposition(
    nodes: Float[Tensor, "batch v s"],
    edges: Tensor,
    index: Int[Tensor, "e 2"],
    *,
    max_rounds: int = 1000,
) -> tuple[
    Float[Tensor, " batch"],
    Int[Tensor, "batch v"],
    Bool[Tensor, " batch"],
    Float[Tensor, " batch"],
]:
    r"""Find a labelling of any graph, and an upper bound that may certify it.

    .. math:: \max_y s(y) \le \min_m \sum_v \max_a \nu_v(a)
        + \sum_{e = (i, j)} \max_{a, b} \epsilon_e(a, b)

    where nu and epsilon are a reparametrisation of the scores with equal sums,

    .. math:: \nu_v(a) = \mathrm{nodes}[v, a] + \sum_{e \ni v} m_{e, v}(a), \quad
        \epsilon_e(a, b) = \mathrm{edges}[e, a, b] - m_{e, i}(a) - m_{e, j}(b).

    The bound approaches that of the linear programme over local marginals. The exact
    maximum is NP-hard. A labelling that attains the bound is the best, and ``exact`` is
    True. A loss over this maximum is correct only where ``exact`` is True.

    Parameters
    ----------
    nodes
        ``(batch, V, S)``, float32 or float64; ``-inf`` forbids a label.
    edges
        ``(batch, E)``: the score of equal labels (Potts), of any sign. Or
        ``(batch, E, S, S)``, finite: labels of the first and of the second node.
    index
        ``(E, 2)`` integers from 0 to V - 1: the nodes of each edge.
    max_rounds
        Maximum number of passes over all edges, at least 1.

    Returns
    -------
    value
        ``(batch,)``: scores of the labellings, differentiable.
    y
        ``(batch, V)`` int64.
    exact
        ``(batch,)`` bool: True where value and bound agree up to rounding in float64.
        Always True if edges form no cycle.
    bound
        ``(batch,)`` float64: upper bound of all scores, not differentiable. More rounds
        never raise it.

    Raises
    ------
    TypeError
        For a wrong type, dtype or device.
    ValueError
        For a wrong shape, NaN or +inf, edges with -inf, a node without labels.

    Notes
    -----
    Forests cover the edges; their number is at most the maximum degree. A round updates
    each forest in turn by one pass to its roots and one back, which is an optimal block
    update of the bound. It ends when a labelling attains the bound or the
    bound stops improving. O(E S^2) per round and row, in float64 on the CPU; tensors on
    a device are copied to the CPU and back.

    Source: Sontag and Jaakkola, "Tree Block Coordinate Descent for MAP in Graphical
    Models" (2009), section 3. Here nodes keep scores in proportion to their edges in
    other forests. The bound: Wainwright, Jaakkola and Willsky (2005).

    Examples
    --------
    Three nodes with repulsive edges, which cannot all differ with two labels, but can
    with three:

    >>> import torch
    >>> from smoothsp.oracles import approximate_by_dual_decomposition
    >>> ring = torch.tensor([[0, 1], [1, 2], [2, 0]])
    >>> differ = -torch.ones(1, 3)
    >>> value, y, exact, bound = approximate_by_dual_decomposition(
    ...     torch.zeros(1, 3, 2), differ, ring
    ... )
    >>> value.tolist(), exact.tolist(), bound.tolist()
    ([-1.0], [False], [0.0])
    >>> value, y, exact, bound = approximate_by_dual_decomposition(
    ...     torch.tensor([[[1.0, 0.5, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]]),
    ...     differ,
    ...     ring,
    ... )
    >>> value.tolist(), y.tolist(), exact.tolist()
    ([1.5], [[1, 0, 2]], [True])
    """
    max_rounds = checks.as_positive_int("max_rounds", max_rounds)
    nodes, edge_tables, index = pairwise.checked_graph(nodes, edges, index)
    forests = cover_with_forests(index, nodes.shape[1])
    y, exact, bound = run_block_descent(nodes, edge_tables, forests, max_rounds)
    return pairwise.score_labellings(nodes, edge_tables, index, y), y, exact, bound


def cover_with_forests(index: Tensor, V: int) -> Forests:
    """Cover the edges with forests: edges ``[E, 2]``, node orders, parent edges."""
    pairs = to_numpy(index.cpu())
    # each forest takes an edge of every node that has one left
    max_degree = max(int(np.bincount(pairs.reshape(-1), minlength=1).max()), 1)
    order, parent_edges = np.empty((2, max_degree, V), np.int64)
    num_forests = np.empty(1, np.int64)
    dual_decomposition.fill_forest_cover(pairs, V, order, parent_edges, num_forests)
    return pairs, order[: num_forests[0]], parent_edges[: num_forests[0]]


def run_block_descent(
    nodes: Tensor, edges: Tensor, forests: Forests, max_rounds: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Minimise the dual bound; labellings ``[B, V]``, exact ``[B]``, bounds ``[B]``."""
    # float64: the certificate compares a sum of scores with a sum of maxima
    tables = [to_numpy(x.cpu().double()) for x in (nodes, edges)]
    B, V, S = nodes.shape
    labels, bound = np.zeros((B, V), np.int64), np.empty(B)
    exact = np.empty(B, np.bool_)
    # estimated work in the units of run_rows, for about 20 passes over all edges
    work = 20 * B * (V + edges.shape[1] * S) * S
    args = *tables, forests, max_rounds
    run_rows(
        dual_decomposition.block_coordinate_descent,
        B,
        work,
        *args,
        labels,
        bound,
        exact,
    )
    tensors = (torch.from_numpy(x).to(nodes.device) for x in (labels, exact, bound))
    return tuple(tensors)  # type: ignore[return-value]
