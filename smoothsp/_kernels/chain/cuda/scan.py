"""Sum-product on long chains: chunks of time at once, joined by their products.

Matrix products are associative, so those of chunks of L steps are computed at the same
time. With E, w, a and b of ``chain.cuda.scaled_recursion``, in four launches:

    products      P_c = prod_n E_n diag(w_n) of each chunk c
    meetings      a_{c+1} ~ a_c P_c forward, then b_c ~ P_c b_{c+1} backward
    chunks        a_t, b_t, nodes and edges inside each chunk, from a_c and b_{c+1}
    unsafe rows   rows with a chunk that is not safe, in log space, step by step

The first and the third have programs for all chunks of all rows, the others one for a
row. So L, 2 T / L and 2 L steps run one after the other, and L is about ``sqrt(T)``.
"""

import math

import torch
import triton  # noqa: TID253
import triton.language as tl  # noqa: TID253

from smoothsp._kernels.chain.cuda.blocks import (
    block_of,
    registers_of,
    rows_of,
    warps_of,
)
from smoothsp._kernels.chain.cuda.log_space import forward_backward_row
from smoothsp._kernels.chain.cuda.scan_chunks import chunks_kernel
from smoothsp._kernels.chain.cuda.scan_products import meetings_kernel, products_kernel
from smoothsp._kernels.compilation.launch import launch

# From so many steps on,
SHORTEST = 4096
# up to so many states, whose moves stay in registers,
MOST_STATES = 64
# and up to so many multiplications for each step of the batch.
MOST_WORK = 1 << 20


def supports_matmul(dtype):
    """Return whether Triton multiplies matrices of a dtype: float64 from 3.5 on."""
    version = tuple(map(int, triton.__version__.split(".")[:2]))
    return dtype == torch.float32 or version >= (3, 5)


def prefer_scan(B, T, S, shortest=SHORTEST):
    """Return whether time in parallel is expected to win.

    It takes about ``5 sqrt(T)`` steps in a row instead of ``2 T``, and S times the
    arithmetic. So it is chosen for few long rows with few states: ``T >= 4096``,
    ``S <= 64``, and ``B S^3 <= 2^20`` with S rounded up to a power of two from 16.
    These bounds come from counting, and were never measured on a device.
    """
    return shortest <= T and S <= MOST_STATES and B * block_of(S) ** 3 <= MOST_WORK


def forward_backward(chain, value, marginals, chunk=None):
    """Fill what ``chain.cuda.forward_backward.forward_backward`` fills; S up to 64.

    ``chunk`` is the number of steps of a chunk, by default about ``sqrt(T)``.
    """
    emissions, transitions, start, end, steps, lengths, shared = chain
    nodes, edges, heads, tails = marginals
    B, T, S = emissions.shape
    dtype = emissions.dtype
    limits = torch.finfo(dtype)
    block = block_of(S)
    warps = warps_of(block * block, dtype)
    length = chunk or max(1, math.isqrt(T))
    chunks = max(1, -(-(T - 1) // length))
    rows = 16
    groups = -(-S // rows)
    new = emissions.new_empty
    products = new((B, chunks, S, S))
    scales = new((B, chunks, S), dtype=torch.float64)
    begins, ends = new((B, chunks, S)), new((B, chunks, S))
    parts = new((B, chunks + 1), dtype=torch.float64)
    safe = new((B, chunks), dtype=torch.int32)
    room = new((B, 2 * T + 1, S), dtype=torch.float64)
    counts = new((B, chunks, S, S), dtype=torch.float64) if shared else edges
    launch(
        products_kernel,
        B * chunks * groups,
        emissions,
        emissions,
        transitions,
        steps,
        lengths,
        products,
        scales,
        T,
        S,
        length,
        chunks,
        groups,
        SHARED=shared,
        TINY=limits.tiny,
        BLOCK=block,
        ROWS=rows,
        num_warps=max(1, block // 16),
        enable_fp_fusion=False,
    )
    launch(
        meetings_kernel,
        B,
        emissions,
        emissions,
        start,
        end,
        steps,
        lengths,
        products,
        scales,
        begins,
        ends,
        parts,
        T,
        S,
        length,
        chunks,
        BLOCK=block,
        num_warps=warps_of(block * block, torch.float64),
        enable_fp_fusion=False,
    )
    nodes.zero_()
    if not shared:
        edges.zero_()
    launch(
        chunks_kernel,
        B * chunks,
        emissions,
        emissions,
        transitions,
        end,
        steps,
        lengths,
        begins,
        ends,
        room.view(dtype),
        parts,
        safe,
        nodes,
        edges,
        counts,
        heads,
        tails,
        T,
        S,
        length,
        chunks,
        SHARED=shared,
        LEAST=limits.tiny / limits.eps,
        BLOCK=block,
        ROWS=rows_of(block, warps),
        num_warps=warps,
        maxnreg=registers_of(warps),
        enable_fp_fusion=False,
    )
    value.copy_(parts.sum(1))
    if shared:
        edges.copy_(counts.sum(1, keepdim=True))
    launch(
        _unsafe_rows_kernel,
        B,
        emissions,
        emissions,
        transitions,
        start,
        end,
        steps,
        lengths,
        safe,
        room,
        value,
        nodes,
        edges,
        heads,
        tails,
        T,
        S,
        chunks,
        SHARED=shared,
        BLOCK=block,
        ROWS=(rows_of(block, warps) + 1) // 2,
        num_warps=warps,
        enable_fp_fusion=False,
    )


@triton.jit(do_not_specialize=["T", "chunks"])
def _unsafe_rows_kernel(
    emissions,
    transitions,
    start,
    end,
    steps,
    lengths,
    safe_chunks,
    room,
    value,
    nodes,
    edges,
    heads,
    tails,
    T,
    S,
    chunks,
    SHARED: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    b = tl.program_id(0).to(tl.int64)
    T = T.to(tl.int64)
    N = tl.load(lengths + b)
    b_safe = tl.full([128], 1, tl.int32)
    for first in range(0, chunks, 128):
        c = first + tl.arange(0, 128)
        b_safe &= tl.load(safe_chunks + b * chunks + c, mask=c < chunks, other=1)
    if (N > 0) & (tl.min(b_safe, 0) == 0):
        wide = room + b * (2 * T + 1) * S
        forward_backward_row(
            b, N, emissions, transitions, start, end, steps,
            wide, wide + T * S, wide + 2 * T * S,
            value, nodes, edges, heads, tails, T, S, SHARED, BLOCK, ROWS,
        )  # fmt: skip
