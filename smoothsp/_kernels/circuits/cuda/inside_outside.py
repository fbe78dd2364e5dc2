"""Inside-outside in Triton: log-partition, and marginals of the leaves.

The results are those of the CPU version, ``circuits.cpu.inside_outside``. There the
outside pass adds the terms of an item to its factors; here each item sums over its
uses. Each cell thus has one writer, and no sum needs atomics:

    z(i)       = sum over products (a, b) of i of z(a) z(b)      from leaves to roots
    outside(a) = sum over uses (i, b) of a of outside(i) z(b)    from roots to leaves
    mu(leaf)   = outside(leaf) z(leaf)

with outside(root) = 1 / z(root). Sums run over the axis ``EDGES`` of blocks ``[HEADS,
EDGES, LANES]``: rows never mix.
"""

import torch
import triton  # noqa: TID253
import triton.language as tl  # noqa: TID253

from smoothsp._kernels.circuits.cuda.scaled_floats import (
    EMPTY_SUM_EXPONENT,
    LN2,
    MAX_EXPONENT,
    exp_to_scaled,
    normalise,
    pow2,
)
from smoothsp._kernels.circuits.cuda.tiles import (
    EDGES,
    HEADS,
    LANES,
    REGISTERS,
    WARPS,
    chart_offset,
    chart_spec,
    edge_offsets,
    item_offsets,
    load_run,
    num_programs,
    program_rows,
    run_bounds,
)
from smoothsp._kernels.compilation.launch import launch

BLOCK = {"HEADS": HEADS, "EDGES": EDGES, "LANES": LANES}
BLOCK |= {"num_warps": WARPS, "maxnreg": REGISTERS, "enable_fp_fusion": False}


def inside_outside(
    row_scores,
    shared_scores,
    circuit,
    rows,
    with_marginals,
    value,
    out_of_range,
    marginals,
):
    """Fill value[B], float64, and, if ``with_marginals``, marginals[B, P + Q].

    Parameters
    ----------
    row_scores, shared_scores
        Scores [B, P] of the rows, and [Q] of all rows, float32 or float64.
    circuit, rows
        ``DeviceCircuit`` and ``DeviceRowRoots``.
    out_of_range
        bool [B]: the scores of the row exceed the range of exponents, and its results
        are invalid.
    """
    B, P = row_scores.shape
    Q = len(shared_scores)
    m = torch.empty(**chart_spec(circuit, B, row_scores.dtype, row_scores.device))
    e = torch.empty(**chart_spec(circuit, B, torch.int32, row_scores.device))
    sizes = (B, P, Q, circuit.num_items)
    tables = (circuit.depths, circuit.max_leaves)
    kernel_args = (row_scores, shared_scores, *rows, *tables, *circuit.inside_schedule)
    launch(
        _inside_kernel,
        num_programs(B),
        row_scores,
        *kernel_args,
        m,
        e,
        value,
        out_of_range,
        *sizes,
        **BLOCK,
    )
    if with_marginals:
        # items above the roots are not written: their outside values are 0
        outside = torch.zeros_like(m)
        kernel_args = (
            *rows,
            circuit.depths,
            *circuit.outside_schedule,
            m,
            e,
            outside,
            marginals,
        )
        sizes = (circuit.max_depth, B, P + Q, circuit.num_items)
        launch(
            _outside_kernel, num_programs(B), row_scores, *kernel_args, *sizes, **BLOCK
        )


# item = sum over products of a b = sum m_a m_b 2^(e_a + e_b - top) 2^top
@triton.jit(do_not_specialize=["B", "P", "Q", "items"])
def _inside_kernel(
    row_scores,
    shared_scores,
    order,
    roots,
    depths,
    max_leaves,
    levels,
    heads,
    starts,
    runs,
    m,
    e,
    value,
    out_of_range,
    B,
    P,
    Q,
    items,
    HEADS: tl.constexpr,
    EDGES: tl.constexpr,
    LANES: tl.constexpr,
):
    dtype = row_scores.dtype.element_ty
    b_row, b_real = program_rows(order, B, LANES)  # [LANES]
    m += chart_offset(items, LANES)
    e += chart_offset(items, LANES)
    b_lane = tl.arange(0, LANES)
    tl.store(m + b_lane, tl.full([LANES], 1.0, dtype))
    tl.store(e + b_lane, tl.zeros([LANES], tl.int32))
    b_max_exponent = tl.zeros([LANES], tl.int32)
    b_max_exponent = _store_leaf_scores(
        row_scores, b_row * P, b_real, P, m, e, 1, b_max_exponent, HEADS * EDGES, LANES
    )
    b_max_exponent = _store_leaf_scores(
        shared_scores,
        b_row * 0,
        b_real,
        Q,
        m,
        e,
        1 + P,
        b_max_exponent,
        HEADS * EDGES,
        LANES,
    )

    b_root = tl.load(roots + b_row, mask=b_real, other=0)
    # a level reads results of other threads at lower levels: hence the barriers
    for level in range(0, tl.max(tl.load(depths + b_root), 0)):
        tl.debug_barrier()
        last = tl.load(levels + level + 1)
        for first in range(tl.load(levels + level), last, HEADS):
            h = first + tl.arange(0, HEADS)
            b_first, b_runs, max_runs = run_bounds(starts, h, h < last)
            b_top = tl.full([HEADS, LANES], EMPTY_SUM_EXPONENT, tl.int32)
            b_total = tl.zeros([HEADS, LANES], dtype)
            for r in range(0, max_runs):
                b_count, b_a, b_step_a, b_b, b_step_b, longest = load_run(
                    runs, b_first + r, r < b_runs
                )
                for k in range(0, longest, EDGES):
                    i = k + tl.arange(0, EDGES)[None, :]
                    is_product = (i < b_count[:, None])[:, :, None]
                    a = edge_offsets(b_a[:, None] + i * b_step_a[:, None], LANES)
                    b = edge_offsets(b_b[:, None] + i * b_step_b[:, None], LANES)
                    b_m = tl.load(m + a, mask=is_product, other=0.0)
                    b_m *= tl.load(m + b, mask=is_product, other=0.0)
                    b_e = tl.load(e + a, mask=is_product, other=0)
                    b_e += tl.load(e + b, mask=is_product, other=0)
                    # [HEADS, EDGES, LANES]
                    b_e = tl.where(b_m > 0, b_e, EMPTY_SUM_EXPONENT)
                    # the running sum is rescaled to the largest exponent so far
                    b_new = tl.maximum(b_top, tl.max(b_e, 1))
                    b_total *= pow2(b_top - b_new, dtype)
                    b_total += tl.sum(b_m * pow2(b_e - b_new[:, None, :], dtype), 1)
                    b_top = b_new
            b_m, b_e = normalise(b_total, b_top)
            head = item_offsets(tl.load(heads + h, mask=h < last, other=0), LANES)
            tl.store(m + head, b_m, mask=(h < last)[:, None])
            tl.store(e + head, b_e, mask=(h < last)[:, None])

    tl.debug_barrier()
    b_z = tl.load(m + b_root * LANES + b_lane).to(tl.float64)
    b_e = tl.load(e + b_root * LANES + b_lane).to(tl.float64)
    b_log = tl.log(tl.where(b_z > 0, b_z, 1.0)) + b_e * LN2
    tl.store(value + b_row, tl.where(b_z > 0, b_log, float("-inf")), mask=b_real)
    b_max_leaves = tl.maximum(tl.load(max_leaves + b_root), 1).to(tl.int64)
    tl.store(
        out_of_range + b_row, b_max_exponent * b_max_leaves > MAX_EXPONENT, mask=b_real
    )


@triton.jit
def _store_leaf_scores(
    scores,
    b_at,
    b_real,
    width,
    m,
    e,
    item,
    b_max_exponent,
    CELLS: tl.constexpr,
    LANES: tl.constexpr,
):
    """Write exp of the scores from ``b_at`` on to the items from ``item`` on.

    Return the largest absolute exponent, ``b_max_exponent`` included.
    """
    for first in range(0, width, CELLS):
        i = first + tl.arange(0, CELLS)
        inside = (i < width)[:, None]
        b_score = tl.load(
            scores + b_at[None, :] + i[:, None],
            mask=inside & b_real[None, :],
            other=0.0,
        )  # [CELLS, LANES]
        b_m, b_e = exp_to_scaled(b_score)
        tl.store(m + item_offsets(item + i, LANES), b_m, mask=inside)
        tl.store(e + item_offsets(item + i, LANES), b_e, mask=inside)
        b_size = tl.where(b_m > 0, tl.abs(b_e), 0)
        b_max_exponent = tl.maximum(b_max_exponent, tl.max(b_size, 0))
    return b_max_exponent


# outside(item) = its marginal over its m: 1 / m at the root, else the sum over uses
# of outside(defined) m_other 2^(e_item + e_other - e_defined)
@triton.jit(do_not_specialize=["max_depth", "B", "leaves", "items"])
def _outside_kernel(
    order,
    roots,
    depths,
    levels,
    heads,
    starts,
    runs,
    m,
    e,
    outside,
    marginals,
    max_depth,
    B,
    leaves,
    items,
    HEADS: tl.constexpr,
    EDGES: tl.constexpr,
    LANES: tl.constexpr,
):
    dtype = m.dtype.element_ty
    b_row, b_real = program_rows(order, B, LANES)  # [LANES]
    m += chart_offset(items, LANES)
    e += chart_offset(items, LANES)
    outside += chart_offset(items, LANES)
    b_root = tl.load(roots + b_row, mask=b_real, other=0)
    top = tl.max(tl.load(depths + b_root), 0)
    # from the level of the deepest root of these rows; the last level is the leaves
    for level in range(max_depth - top, max_depth + 1):
        tl.debug_barrier()
        last = tl.load(levels + level + 1)
        for first in range(tl.load(levels + level), last, HEADS):
            h = first + tl.arange(0, HEADS)
            b_first, b_runs, max_runs = run_bounds(starts, h, h < last)
            b_item = tl.load(heads + h, mask=h < last, other=0)
            b_m = tl.load(m + item_offsets(b_item, LANES))  # [HEADS, LANES]
            b_e = tl.load(e + item_offsets(b_item, LANES))
            b_nonzero_m = tl.where(b_m > 0, b_m, 1.0)
            b_total = tl.where(
                b_item[:, None] == b_root[None, :], 1.0 / b_nonzero_m, 0.0
            )
            for r in range(0, max_runs):
                b_count, b_a, b_step_a, b_b, b_step_b, longest = load_run(
                    runs, b_first + r, r < b_runs
                )
                for k in range(0, longest, EDGES):
                    i = k + tl.arange(0, EDGES)[None, :]
                    is_product = (i < b_count[:, None])[:, :, None]
                    a = edge_offsets(b_a[:, None] + i * b_step_a[:, None], LANES)
                    b = edge_offsets(b_b[:, None] + i * b_step_b[:, None], LANES)
                    b_outside = tl.load(outside + a, mask=is_product, other=0.0)
                    b_other = tl.load(m + b, mask=is_product, other=0.0)
                    b_k = b_e[:, None, :] + tl.load(e + b, mask=is_product, other=0)
                    b_k -= tl.load(e + a, mask=is_product, other=0)
                    b_part = b_outside * (b_other * pow2(b_k, dtype))
                    # items that no row needs were never written, and are arbitrary
                    is_nonzero = (b_outside > 0) & (
                        b_other > 0
                    )  # [HEADS, EDGES, LANES]
                    b_total += tl.sum(tl.where(is_nonzero, b_part, 0.0), 1)
            b_total = tl.where(b_m > 0, b_total, 0.0)
            head = item_offsets(b_item, LANES)
            tl.store(outside + head, b_total, mask=(h < last)[:, None])
    tl.debug_barrier()
    for first in range(0, leaves, HEADS * EDGES):
        i = first + tl.arange(0, HEADS * EDGES)
        inside = (i < leaves)[:, None]
        leaf = item_offsets(1 + i, LANES)
        b_outside = tl.load(outside + leaf, mask=inside, other=0.0)
        b_marginal = b_outside * tl.load(m + leaf, mask=inside, other=0.0)
        offset = b_row[None, :] * leaves + i[:, None]
        tl.store(marginals + offset, b_marginal, mask=inside & b_real[None, :])
