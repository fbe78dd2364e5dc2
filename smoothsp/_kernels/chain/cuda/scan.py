"""Sum-product on long chains by a parallel scan over chunks of time.

Matrix products are associative, so the products of chunks of L steps are computed in
parallel. With E, w, a and b of ``chain.cuda.scaled_recursion``, in four launches:

    products      P_c = prod_n E_n diag(w_n) of each chunk c
    messages      a_{c+1} ~ a_c P_c forward, then b_c ~ P_c b_{c+1} backward
    chunks        a_t, b_t, nodes and edges inside each chunk, from a_c and b_{c+1}
    unsafe rows   rows with a chunk that is not safe, in log space, step by step

The first and the third launch have a program for each chunk of each row, the others one
for each row. The first three have L, 2 T / L and 2 L sequential steps; their sum is
smallest for L near ``sqrt(T)``.
"""

import math

import torch
import triton  # noqa: TID253
import triton.language as tl  # noqa: TID253

from smoothsp._kernels.chain.cuda.blocks import (
    block_size,
    max_registers,
    num_warps_for,
    tile_rows,
)
from smoothsp._kernels.chain.cuda.log_space import forward_backward_row
from smoothsp._kernels.chain.cuda.scan_chunks import chunk_forward_backward_kernel
from smoothsp._kernels.chain.cuda.scan_products import (
    chunk_messages_kernel,
    chunk_products_kernel,
)
from smoothsp._kernels.compilation.launch import launch

# Fewest steps for which the scan is chosen.
MIN_LENGTH = 4096
# Most states: their transitions stay in registers.
MAX_STATES = 64
# Most multiplications for each step of the batch.
MAX_WORK = 1 << 20


def supports_matmul(dtype):
    """Return whether Triton multiplies matrices of a dtype: float64 from 3.5 on."""
    version = tuple(map(int, triton.__version__.split(".")[:2]))
    return dtype == torch.float32 or version >= (3, 5)


def prefer_scan(B, T, S, min_length=MIN_LENGTH):
    """Return whether the scan is expected to be faster than the recursion.

    The scan takes about ``5 sqrt(T)`` sequential steps instead of ``2 T``, and S times
    the arithmetic. So it is chosen for few long rows with few states: ``T >= 4096``,
    ``S <= 64``, and ``B S^3 <= 2^20`` with S rounded up to a power of two from 16.
    These bounds are counts of operations; they were not measured on a device.
    """
    return min_length <= T and S <= MAX_STATES and B * block_size(S) ** 3 <= MAX_WORK


def forward_backward(chain, value, marginals, chunk=None):
    """Fill value[B] and the marginals of all rows, by the scan; S up to 64.

    Arguments and outputs as in ``chain.cuda.forward_backward.forward_backward``.
    ``chunk`` is the number of steps of a chunk, by default about ``sqrt(T)``.
    """
    emissions, transitions, start, end, steps, lengths, shared = chain
    nodes, edges, start_marginals, end_marginals = marginals
    B, T, S = emissions.shape
    dtype = emissions.dtype
    limits = torch.finfo(dtype)
    block = block_size(S)
    warps = num_warps_for(block * block, dtype)
    length = chunk or max(1, math.isqrt(T))
    chunks = max(1, -(-(T - 1) // length))
    rows = 16
    groups = -(-S // rows)
    new = emissions.new_empty
    products = new((B, chunks, S, S))
    # float64 for logs, which add up over all steps, and for unsafe rows
    scales = new((B, chunks, S), dtype=torch.float64)
    forward_messages, backward_messages = new((B, chunks, S)), new((B, chunks, S))
    log_z_terms = new((B, chunks + 1), dtype=torch.float64)
    is_safe = new((B, chunks), dtype=torch.int32)
    scratch = new((B, 2 * T + 1, S), dtype=torch.float64)
    edge_terms = new((B, chunks, S, S), dtype=torch.float64) if shared else edges
    launch(
        chunk_products_kernel,
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
        chunk_messages_kernel,
        B,
        emissions,
        emissions,
        start,
        end,
        steps,
        lengths,
        products,
        scales,
        forward_messages,
        backward_messages,
        log_z_terms,
        T,
        S,
        length,
        chunks,
        BLOCK=block,
        num_warps=num_warps_for(block * block, torch.float64),
        enable_fp_fusion=False,
    )
    # masked positions belong to no chunk, so the kernel does not write them
    nodes.zero_()
    if not shared:
        edges.zero_()
    launch(
        chunk_forward_backward_kernel,
        B * chunks,
        emissions,
        emissions,
        transitions,
        end,
        steps,
        lengths,
        forward_messages,
        backward_messages,
        scratch.view(dtype),
        log_z_terms,
        is_safe,
        nodes,
        edges,
        edge_terms,
        start_marginals,
        end_marginals,
        T,
        S,
        length,
        chunks,
        SHARED=shared,
        MIN_SCALE=limits.tiny / limits.eps,
        BLOCK=block,
        ROWS=tile_rows(block, warps),
        num_warps=warps,
        maxnreg=max_registers(warps),
        enable_fp_fusion=False,
    )
    value.copy_(log_z_terms.sum(1))
    if shared:
        edges.copy_(edge_terms.sum(1, keepdim=True))
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
        is_safe,
        scratch,
        value,
        nodes,
        edges,
        start_marginals,
        end_marginals,
        T,
        S,
        chunks,
        SHARED=shared,
        BLOCK=block,
        ROWS=(tile_rows(block, warps) + 1) // 2,
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
    scratch,
    value,
    nodes,
    edges,
    start_marginals,
    end_marginals,
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
        row_scratch = scratch + b * (2 * T + 1) * S
        forward_backward_row(
            b, N, emissions, transitions, start, end, steps,
            row_scratch, row_scratch + T * S, row_scratch + 2 * T * S,
            value, nodes, edges, start_marginals, end_marginals, T, S,
            SHARED, BLOCK, ROWS,
        )  # fmt: skip
