"""Sum-product on chains in log space, for rows that are not safe when scaled.

Messages forward first, then backward with the nodes, then the edges, a tile of moves at
a time: its sums over time stay in registers. All in float64.
"""

import triton  # noqa: TID253
import triton.language as tl  # noqa: TID253

from smoothsp._kernels.chain.cuda.blocks import (
    edge_scores,
    finite,
    load_tile,
    log_pull,
    log_push,
    log_total,
    row_edges,
)


# a_t(j) = e_t(j) + log sum_i exp(a_{t-1}(i) + s(i, j)), less its own log sum;
# b_{t-1}(i) = log sum_j exp(s(i, j) + e_t(j) + b_t(j)), less its largest;
# edges exp(a_{t-1}(i) + s(i, j) + e_t(j) + b_t(j) - z_t), z_t so that they sum to 1
@triton.jit
def forward_backward_row(
    b,
    N,
    emissions,
    transitions,
    start,
    end,
    steps,
    alphas,
    pulls,
    grown,
    value,
    nodes,
    edges,
    heads,
    tails,
    T,
    S,
    SHARED: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Fill row b, of N > 0 positions, in float64, whatever the range of its scores.

    A row without a feasible output gets -inf and zero marginals. Scratch, in float64:
    alphas[T, S], pulls[T, S] and grown[S].
    """
    o = tl.arange(0, BLOCK)
    m = o < S
    t = tl.load(steps + b * T)
    b_first = tl.load(start + o, mask=m, other=float("-inf")).to(tl.float64)
    b_x = b_first + tl.load(
        emissions + (b * T + t) * S + o, mask=m, other=float("-inf")
    )
    log_z = log_total(b_x)
    b_alpha = b_x - finite(log_z)  # [BLOCK]
    tl.store(alphas + o, b_alpha, mask=m)
    for n in range(1, N):
        t = tl.load(steps + b * T + n)
        scores = edge_scores(transitions, b, t, T, S, SHARED)
        tl.debug_barrier()
        b_x = log_push(alphas + (n - 1) * S, scores, S, BLOCK, ROWS)
        b_x += tl.load(emissions + (b * T + t) * S + o, mask=m, other=float("-inf"))
        norm = log_total(b_x)
        log_z += norm
        b_alpha = b_x - finite(norm)
        tl.store(alphas + n * S + o, b_alpha, mask=m)

    b_beta = tl.load(end + o, mask=m, other=float("-inf")).to(tl.float64)
    z = log_total(b_alpha + b_beta)
    tl.store(value + b, log_z + z)
    b_node = tl.exp(b_alpha + b_beta - finite(z))
    tl.store(nodes + (b * T + t) * S + o, b_node, mask=m)
    tl.store(tails + b * S + o, b_node, mask=m)
    for n in range(N - 1, 0, -1):
        t = tl.load(steps + b * T + n)
        scores = edge_scores(transitions, b, t, T, S, SHARED)
        b_pull = b_beta + tl.load(
            emissions + (b * T + t) * S + o, mask=m, other=float("-inf")
        )
        tl.debug_barrier()
        log_pull(scores, b_pull, grown, S, BLOCK, ROWS)
        tl.debug_barrier()
        b_grown = tl.load(grown + o, mask=m, other=float("-inf"))
        b_x = b_grown + tl.load(alphas + (n - 1) * S + o, mask=m, other=float("-inf"))
        z = finite(log_total(b_x))
        b_node = tl.exp(b_x - z)
        before = tl.load(steps + b * T + n - 1)
        tl.store(nodes + (b * T + before) * S + o, b_node, mask=m)
        tl.store(pulls + n * S + o, b_pull - z, mask=m)
        b_beta = b_grown - finite(tl.max(b_grown, 0))
    tl.store(heads + b * S + o, b_node, mask=m)

    tl.debug_barrier()
    for first in range(0, S, ROWS):
        i = first + tl.arange(0, ROWS)
        inside = (i[:, None] < S) & m[None, :]
        cells = i[:, None] * S + o[None, :]
        b_total = tl.zeros([ROWS, BLOCK], tl.float64)
        for n in range(1, N):
            t = tl.load(steps + b * T + n)
            scores = edge_scores(transitions, b, t, T, S, SHARED)
            b_score = load_tile(scores, i, S, BLOCK).to(tl.float64)
            b_a = tl.load(alphas + (n - 1) * S + i, mask=i < S, other=float("-inf"))
            b_pull = tl.load(pulls + n * S + o, mask=m, other=float("-inf"))
            b_edge = tl.exp(b_a[:, None] + b_score + b_pull[None, :])
            if SHARED:
                b_total += b_edge
            else:
                into = row_edges(edges, b, t, T, S, SHARED)
                tl.store(into + cells, b_edge, mask=inside)
        if SHARED:
            tl.store(edges + b * S * S + cells, b_total, mask=inside)
