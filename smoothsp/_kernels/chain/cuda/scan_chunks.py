"""Scaled forward-backward recursion inside chunks of time, all chunks in parallel.

The recursion is that of ``chain.cuda.scaled_recursion``. It starts forward and backward
from the messages that ``chain.cuda.scan_products`` computes for both ends of a chunk. A
chunk contributes to the log-partition

    log_z_terms    sum_t (log c_t + max e_t + max s)

and the last chunk adds ``max end + log z``. Each forward message sums to 1, so the
terms add up to the log-partition. A backward message between chunks has any scale:
nodes and edges are divided by their z. The boundary position of two chunks belongs to
the later one, which fills its node. One program computes a chunk, with E in registers.
"""

import triton  # noqa: TID253
import triton.language as tl  # noqa: TID253

from smoothsp._kernels.chain.cuda.blocks import state_mask, zero_if_neg_inf
from smoothsp._kernels.chain.cuda.scaled_recursion import (
    backward_row,
    forward_row,
    sum_edges,
)


@triton.jit(do_not_specialize=["T", "L", "chunks"])
def chunk_forward_backward_kernel(
    emissions,
    transitions,
    end,
    steps,
    lengths,
    forward_messages,
    backward_messages,
    scratch,
    log_z_terms,
    safe_chunks,
    nodes,
    edges,
    edge_terms,
    start_marginals,
    end_marginals,
    T,
    S,
    L,
    chunks,
    SHARED: tl.constexpr,
    MIN_SCALE: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Fill the marginals, log_z_terms and safe_chunks of all chunks.

    ``log_z_terms[B, C + 1]`` are the summands of the log-partition. ``safe_chunks[B,
    C]`` is 0 where a c_t or z_t was below ``MIN_SCALE S^2 T``. With shared transitions
    ``edge_terms[B, C, S, S]``, the summands of the edges, are filled; else ``edges``.
    """
    dtype = emissions.dtype.element_ty
    p = tl.program_id(0).to(tl.int64)
    T = T.to(tl.int64)
    b = p // chunks
    c = p % chunks
    N = tl.load(lengths + b)
    first = c * L
    # steps of this chunk; the first chunk of a row of one position has none, but a node
    count = tl.maximum(tl.minimum(first + L, N - 1) - first, 0)
    is_real = (count > 0) | ((c == 0) & (N > 0))
    is_final = is_real & (first + count == N - 1)
    o = tl.arange(0, BLOCK)
    m = o < S
    mask_real = state_mask(is_real, S, BLOCK)
    min_scale = tl.full([], MIN_SCALE, dtype) * S * S * tl.maximum(T, 1)
    alphas = (
        scratch + (b * (2 * T + 1) * S) * (64 // dtype.primitive_bitwidth) + first * S
    )
    weights = alphas + T * S

    b_alpha, log_scale, is_safe = forward_row(
        b, count + 1, tl.load(forward_messages + p * S + o, mask=mask_real, other=0.0),
        emissions,
        transitions, steps + first, transitions, transitions, min_scale, alphas,
        weights, T,
        S, SHARED, True, BLOCK, ROWS,
    )  # fmt: skip
    b_beta = tl.load(
        backward_messages + p * S + o, mask=mask_real, other=0.0
    )  # [BLOCK]
    b_node = b_alpha * b_beta
    z = tl.sum(b_node, 0)
    is_safe = is_safe & (z >= min_scale)
    z = tl.where(z >= min_scale, z, 1.0)
    b_node = b_node / z
    t = tl.load(steps + b * T + N - 1, mask=is_final, other=0)
    b_end = tl.load(end + o, mask=m, other=float("-inf"))
    last_scale = zero_if_neg_inf(tl.max(b_end, 0)).to(tl.float64) + tl.log(
        z.to(tl.float64)
    )
    log_scale += tl.where(is_final, last_scale, 0.0)
    tl.store(log_z_terms + b * (chunks + 1) + c, log_scale)
    last = state_mask(is_final, S, BLOCK)
    tl.store(nodes + (b * T + t) * S + o, b_node, mask=last)
    has_end = is_final | ((c == 0) & (N == 0))
    tl.store(end_marginals + b * S + o, b_node, mask=state_mask(has_end, S, BLOCK))
    positions = tl.where(is_real, count + 1, 0)
    tl.debug_barrier()
    b_node, is_safe = backward_row(
        b, positions, transitions, steps + first, transitions, transitions, min_scale,
        alphas, weights, b_beta, b_node, is_safe, nodes, edges, T, S, SHARED, True,
        BLOCK,
        ROWS,
    )  # fmt: skip
    tl.store(start_marginals + b * S + o, b_node, mask=state_mask(c == 0, S, BLOCK))
    tl.store(safe_chunks + p, (is_safe | (is_real == 0)).to(tl.int32))
    if SHARED:
        tl.debug_barrier()
        sum_edges(
            p, positions, transitions, transitions, transitions, alphas, weights,
            edge_terms, S, True, BLOCK, ROWS,
        )  # fmt: skip
