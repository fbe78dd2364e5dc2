"""Sum-product inside chunks of time, all chunks at once: the scaled recursion.

It is ``chain.cuda.scaled_recursion``; a chunk starts forward and backward from the
messages that ``chain.cuda.scan_products`` computes for its two ends, and has

    parts      sum_t (log c_t + max e_t + max s); the last chunk adds max end + log z

Each forward message sums to 1, so all ``parts`` add up to the log-partition. A backward
message between chunks has any scale: nodes and edges are divided by their z.
The position that two chunks share belongs to the later one, which fills its node. One
program computes a chunk, with E in registers.
"""

import triton  # noqa: TID253
import triton.language as tl  # noqa: TID253

from smoothsp._kernels.chain.cuda.blocks import finite, states_if
from smoothsp._kernels.chain.cuda.scaled_recursion import (
    backward_row,
    forward_row,
    sum_edges,
)


@triton.jit(do_not_specialize=["T", "L", "chunks"])
def chunks_kernel(
    emissions,
    transitions,
    end,
    steps,
    lengths,
    begins,
    ends,
    room,
    parts,
    safe_chunks,
    nodes,
    edges,
    counts,
    heads,
    tails,
    T,
    S,
    L,
    chunks,
    SHARED: tl.constexpr,
    LEAST: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Fill nodes, heads, tails, and of each chunk parts, safe_chunks and its edges.

    ``parts[B, C + 1]`` are summands of the log-partition. ``safe_chunks[B, C]`` is 0
    where the recursion was not safe. With shared transitions ``counts[B, C, S, S]`` are
    filled, summands of the edges; else edges.
    """
    dtype = emissions.dtype.element_ty
    p = tl.program_id(0).to(tl.int64)
    T = T.to(tl.int64)
    b = p // chunks
    c = p % chunks
    N = tl.load(lengths + b)
    first = c * L
    # steps of this chunk; only the first chunk of a row may have none
    count = tl.maximum(tl.minimum(first + L, N - 1) - first, 0)
    real = (count > 0) | ((c == 0) & (N > 0))
    final = real & (first + count == N - 1)
    o = tl.arange(0, BLOCK)
    m = o < S
    some = states_if(real, S, BLOCK)
    floor = tl.full([], LEAST, dtype) * S * S * tl.maximum(T, 1)
    alphas = room + (b * (2 * T + 1) * S) * (64 // dtype.primitive_bitwidth) + first * S
    weights = alphas + T * S

    b_alpha, log_scale, safe = forward_row(
        b, count + 1, tl.load(begins + p * S + o, mask=some, other=0.0), emissions,
        transitions, steps + first, transitions, transitions, floor, alphas, weights, T,
        S, SHARED, True, BLOCK, ROWS,
    )  # fmt: skip
    b_beta = tl.load(ends + p * S + o, mask=some, other=0.0)  # [BLOCK]
    b_node = b_alpha * b_beta
    z = tl.sum(b_node, 0)
    safe = safe & (z >= floor)
    z = tl.where(z >= floor, z, 1.0)
    b_node = b_node / z
    t = tl.load(steps + b * T + N - 1, mask=final, other=0)
    b_end = tl.load(end + o, mask=m, other=float("-inf"))
    last_scale = finite(tl.max(b_end, 0)).to(tl.float64) + tl.log(z.to(tl.float64))
    log_scale += tl.where(final, last_scale, 0.0)
    tl.store(parts + b * (chunks + 1) + c, log_scale)
    last = states_if(final, S, BLOCK)
    tl.store(nodes + (b * T + t) * S + o, b_node, mask=last)
    closes = final | ((c == 0) & (N == 0))
    tl.store(tails + b * S + o, b_node, mask=states_if(closes, S, BLOCK))
    positions = tl.where(real, count + 1, 0)
    tl.debug_barrier()
    b_node, safe = backward_row(
        b, positions, transitions, steps + first, transitions, transitions, floor,
        alphas, weights, b_beta, b_node, safe, nodes, edges, T, S, SHARED, True, BLOCK,
        ROWS,
    )  # fmt: skip
    tl.store(heads + b * S + o, b_node, mask=states_if(c == 0, S, BLOCK))
    tl.store(safe_chunks + p, (safe | (real == 0)).to(tl.int32))
    if SHARED:
        tl.debug_barrier()
        sum_edges(
            p, positions, transitions, transitions, transitions, alphas, weights,
            counts, S, True, BLOCK, ROWS,
        )  # fmt: skip
