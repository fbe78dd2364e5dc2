"""Vector-Jacobian products of one number per row with the potentials of a chain.

With g the weight of a row, and parts the gradient of its number, marginals for example:

    emissions(b, t, s)  = g_b nodes(b, t, s)
    transitions(i, j)   = sum_b g_b edges(b, i, j); not shared, g_b edges(b, t, i, j)
    start(s), end(s)    = sum_b g_b heads(b, s), sum_b g_b tails(b, s)

A sum over rows has a program for every CELLS numbers, which adds up GROUP rows at once.
No two programs write to one number, so there are no atomic additions.
"""

import triton  # noqa: TID253
import triton.language as tl  # noqa: TID253

from smoothsp._kernels.compilation.launch import launch

# Numbers that one program scales, and numbers that one sums over rows, GROUP rows at a
# time.
BLOCK = 1024
CELLS = 32
GROUP = 64


def vjp(weights, marginals, shared, out):
    """Fill the gradients of the potentials with ``weights[B]`` times the marginals.

    ``marginals`` are of the shapes that ``chain.cuda.forward_backward`` gives them.
    What rows share is added up in float64, in an order that depends on B alone. One
    launch: the first programs scale, the others sum.
    """
    nodes, edges, heads, tails = marginals
    emissions, transitions, start, end = out
    B, S = heads.shape
    parts = (nodes,) if shared else (nodes, edges)
    counts = [triton.cdiv(x.numel(), BLOCK) for x in parts]
    if shared:
        counts.append(triton.cdiv(S * S, CELLS))
    ends = triton.cdiv(S, CELLS)
    launch(
        _vjp_kernel,
        sum(counts) + 2 * ends,
        nodes,
        weights,
        nodes,
        edges,
        heads,
        tails,
        emissions,
        transitions,
        start,
        end,
        B,
        nodes.numel(),
        edges.numel(),
        S,
        *counts,
        ends,
        SHARED=shared,
        BLOCK=BLOCK,
        CELLS=CELLS,
        GROUP=GROUP,
        num_warps=4,
        enable_fp_fusion=False,
    )


@triton.jit(do_not_specialize=["B", "node_cells", "edge_cells", "p_nodes", "p_edges"])
def _vjp_kernel(
    weights,
    nodes,
    edges,
    heads,
    tails,
    emissions,
    transitions,
    start,
    end,
    B,
    node_cells,
    edge_cells,
    S,
    p_nodes,
    p_edges,
    p_ends,
    SHARED: tl.constexpr,
    BLOCK: tl.constexpr,
    CELLS: tl.constexpr,
    GROUP: tl.constexpr,
):
    p = tl.program_id(0).to(tl.int64)
    B = B.to(tl.int64)
    if p < p_nodes:
        _scale(p, B, weights, nodes, emissions, node_cells.to(tl.int64), BLOCK)
    elif p < p_nodes + p_edges:
        if SHARED:
            _sum_rows(p - p_nodes, B, weights, edges, transitions, S * S, CELLS, GROUP)
        else:
            cells = edge_cells.to(tl.int64)
            _scale(p - p_nodes, B, weights, edges, transitions, cells, BLOCK)
    elif p < p_nodes + p_edges + p_ends:
        _sum_rows(p - p_nodes - p_edges, B, weights, heads, start, S, CELLS, GROUP)
    else:
        _sum_rows(
            p - p_nodes - p_edges - p_ends, B, weights, tails, end, S, CELLS, GROUP
        )


@triton.jit
def _scale(p, B, weights, parts, out, cells, BLOCK: tl.constexpr):
    """Write a block of parts, each times the weight of its row."""
    o = p * BLOCK + tl.arange(0, BLOCK)
    m = o < cells
    b_weight = tl.load(weights + o // (cells // B), mask=m, other=0.0)
    tl.store(out + o, b_weight * tl.load(parts + o, mask=m, other=0.0), mask=m)


@triton.jit
def _sum_rows(
    p, B, weights, parts, out, size, CELLS: tl.constexpr, GROUP: tl.constexpr
):
    """Write a block of the sum over rows of weights times parts."""
    o = p * CELLS + tl.arange(0, CELLS)
    m = o < size
    b_total = tl.zeros([CELLS], tl.float64)
    for first in range(0, B, GROUP):
        b = first + tl.arange(0, GROUP)
        inside = (b[:, None] < B) & m[None, :]
        b_weight = tl.load(weights + b, mask=b < B, other=0.0).to(tl.float64)
        b_x = tl.load(parts + b[:, None] * size + o[None, :], mask=inside, other=0.0)
        b_total += tl.sum(b_weight[:, None] * b_x, 0)
    tl.store(out + o, b_total, mask=m)
