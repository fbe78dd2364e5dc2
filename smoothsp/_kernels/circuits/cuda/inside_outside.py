"""Sums over all outputs in Triton: log-partition, and marginals of every leaf.

The numbers are those of the CPU twin, ``circuits.cpu.inside_outside``. Downwards, the
twin adds the share of an item to those of its factors; here an item sums over its uses.
So each cell has one writer, and no sum needs atomics:

    z(i)     = sum over products (a, b) of i of z(a) z(b)       from leaves to roots
    share(a) = sum over uses (i, b) of a of share(i) z(b)       from roots to leaves
    mu(leaf) = share(leaf) z(leaf)

with share(root) = 1 / z(root). Sums go over the axis ``EDGES`` of blocks ``[HEADS,
EDGES, LANES]``: rows never mix.
"""

import torch
import triton  # noqa: TID253
import triton.language as tl  # noqa: TID253

from smoothsp._kernels.circuits.cuda.scaled_floats import (
    LN2,
    MAX_EXPONENT,
    NOTHING,
    exp_of,
    number,
    power2,
)
from smoothsp._kernels.circuits.cuda.tiles import (
    EDGES,
    HEADS,
    LANES,
    REGISTERS,
    WARPS,
    cells,
    chart,
    chart_of,
    head_cells,
    most_runs,
    programs,
    rows_of,
    run_of,
)
from smoothsp._kernels.compilation.launch import launch

BLOCK = {"HEADS": HEADS, "EDGES": EDGES, "LANES": LANES}
BLOCK |= {"num_warps": WARPS, "maxnreg": REGISTERS, "enable_fp_fusion": False}


def inside_outside(own, shared, circuit, rows, outwards, value, far, marginals):
    """Fill value[B] in float64 and, if ``outwards``, marginals[B, P + Q].

    Parameters
    ----------
    own, shared
        Scores [B, P] of the rows, and [Q] of all rows, float32 or float64.
    circuit, rows
        ``Placed`` and ``Lanes``.
    far
        bool [B]: the scores of the row are too large for exponents: its answers are
        not valid.
    """
    B, P = own.shape
    Q = len(shared)
    m = torch.empty(**chart(circuit, B, own.dtype, own.device))
    e = torch.empty(**chart(circuit, B, torch.int32, own.device))
    sizes = (B, P, Q, circuit.num_items)
    tables = (circuit.depths, circuit.max_leaves)
    given = (own, shared, *rows, *tables, *circuit.inside_schedule)
    launch(_inside_kernel, programs(B), own, *given, m, e, value, far, *sizes, **BLOCK)
    if outwards:
        # items above the roots are not written: their shares are 0
        share = torch.zeros_like(m)
        given = (
            *rows,
            circuit.depths,
            *circuit.outside_schedule,
            m,
            e,
            share,
            marginals,
        )
        sizes = (circuit.max_depth, B, P + Q, circuit.num_items)
        launch(_outside_kernel, programs(B), own, *given, *sizes, **BLOCK)


# item = sum over products of a b = sum m_a m_b 2^(e_a + e_b - top) 2^top
@triton.jit(do_not_specialize=["B", "P", "Q", "items"])
def _inside_kernel(
    own,
    shared,
    order,
    roots,
    depths,
    uses,
    levels,
    heads,
    starts,
    runs,
    m,
    e,
    value,
    far,
    B,
    P,
    Q,
    items,
    HEADS: tl.constexpr,
    EDGES: tl.constexpr,
    LANES: tl.constexpr,
):
    dtype = own.dtype.element_ty
    b_row, b_real = rows_of(order, B, LANES)  # [LANES]
    m += chart_of(items, LANES)
    e += chart_of(items, LANES)
    b_lane = tl.arange(0, LANES)
    tl.store(m + b_lane, tl.full([LANES], 1.0, dtype))
    tl.store(e + b_lane, tl.zeros([LANES], tl.int32))
    b_reach = tl.zeros([LANES], tl.int32)
    b_reach = _enter(own, b_row * P, b_real, P, m, e, 1, b_reach, HEADS * EDGES, LANES)
    b_reach = _enter(
        shared, b_row * 0, b_real, Q, m, e, 1 + P, b_reach, HEADS * EDGES, LANES
    )

    b_root = tl.load(roots + b_row, mask=b_real, other=0)
    # a level reads what other threads wrote at the levels before it: hence the barriers
    for level in range(0, tl.max(tl.load(depths + b_root), 0)):
        tl.debug_barrier()
        last = tl.load(levels + level + 1)
        for first in range(tl.load(levels + level), last, HEADS):
            h = first + tl.arange(0, HEADS)
            b_first, b_runs, most = most_runs(starts, h, h < last)
            b_top = tl.full([HEADS, LANES], NOTHING, tl.int32)
            b_total = tl.zeros([HEADS, LANES], dtype)
            for r in range(0, most):
                b_count, b_a, b_step_a, b_b, b_step_b, longest = run_of(
                    runs, b_first + r, r < b_runs
                )
                for k in range(0, longest, EDGES):
                    i = k + tl.arange(0, EDGES)[None, :]
                    there = (i < b_count[:, None])[:, :, None]
                    a = cells(b_a[:, None] + i * b_step_a[:, None], LANES)
                    b = cells(b_b[:, None] + i * b_step_b[:, None], LANES)
                    b_m = tl.load(m + a, mask=there, other=0.0)
                    b_m *= tl.load(m + b, mask=there, other=0.0)
                    b_e = tl.load(e + a, mask=there, other=0)
                    b_e += tl.load(e + b, mask=there, other=0)
                    b_e = tl.where(b_m > 0, b_e, NOTHING)  # [HEADS, EDGES, LANES]
                    # the largest exponent so far is taken out of the sum so far
                    b_new = tl.maximum(b_top, tl.max(b_e, 1))
                    b_total *= power2(b_top - b_new, dtype)
                    b_total += tl.sum(b_m * power2(b_e - b_new[:, None, :], dtype), 1)
                    b_top = b_new
            b_m, b_e = number(b_total, b_top)
            head = head_cells(tl.load(heads + h, mask=h < last, other=0), LANES)
            tl.store(m + head, b_m, mask=(h < last)[:, None])
            tl.store(e + head, b_e, mask=(h < last)[:, None])

    tl.debug_barrier()
    b_z = tl.load(m + b_root * LANES + b_lane).to(tl.float64)
    b_e = tl.load(e + b_root * LANES + b_lane).to(tl.float64)
    b_log = tl.log(tl.where(b_z > 0, b_z, 1.0)) + b_e * LN2
    tl.store(value + b_row, tl.where(b_z > 0, b_log, float("-inf")), mask=b_real)
    b_uses = tl.maximum(tl.load(uses + b_root), 1).to(tl.int64)
    tl.store(far + b_row, b_reach * b_uses > MAX_EXPONENT, mask=b_real)


@triton.jit
def _enter(
    scores,
    b_at,
    b_real,
    width,
    m,
    e,
    item,
    b_reach,
    CELLS: tl.constexpr,
    LANES: tl.constexpr,
):
    """Write exp of the scores from ``b_at`` on to the items from ``item`` on.

    Returns the largest absolute exponent so far, ``b_reach`` included.
    """
    for first in range(0, width, CELLS):
        i = first + tl.arange(0, CELLS)
        inside = (i < width)[:, None]
        b_score = tl.load(
            scores + b_at[None, :] + i[:, None],
            mask=inside & b_real[None, :],
            other=0.0,
        )  # [CELLS, LANES]
        b_m, b_e = exp_of(b_score)
        tl.store(m + head_cells(item + i, LANES), b_m, mask=inside)
        tl.store(e + head_cells(item + i, LANES), b_e, mask=inside)
        b_size = tl.where(b_m > 0, tl.abs(b_e), 0)
        b_reach = tl.maximum(b_reach, tl.max(b_size, 0))
    return b_reach


# share(item) = its marginal over its m: of the root 1 / m, of others the sum over uses
# of share(defined) m_other 2^(e_item + e_other - e_defined)
@triton.jit(do_not_specialize=["deepest", "B", "leaves", "items"])
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
    share,
    marginals,
    deepest,
    B,
    leaves,
    items,
    HEADS: tl.constexpr,
    EDGES: tl.constexpr,
    LANES: tl.constexpr,
):
    dtype = m.dtype.element_ty
    b_row, b_real = rows_of(order, B, LANES)  # [LANES]
    m += chart_of(items, LANES)
    e += chart_of(items, LANES)
    share += chart_of(items, LANES)
    b_root = tl.load(roots + b_row, mask=b_real, other=0)
    top = tl.max(tl.load(depths + b_root), 0)
    # from the level of the deepest root of these rows; the last level is the leaves
    for level in range(deepest - top, deepest + 1):
        tl.debug_barrier()
        last = tl.load(levels + level + 1)
        for first in range(tl.load(levels + level), last, HEADS):
            h = first + tl.arange(0, HEADS)
            b_first, b_runs, most = most_runs(starts, h, h < last)
            b_item = tl.load(heads + h, mask=h < last, other=0)
            b_m = tl.load(m + head_cells(b_item, LANES))  # [HEADS, LANES]
            b_e = tl.load(e + head_cells(b_item, LANES))
            b_some = tl.where(b_m > 0, b_m, 1.0)
            b_total = tl.where(b_item[:, None] == b_root[None, :], 1.0 / b_some, 0.0)
            for r in range(0, most):
                b_count, b_a, b_step_a, b_b, b_step_b, longest = run_of(
                    runs, b_first + r, r < b_runs
                )
                for k in range(0, longest, EDGES):
                    i = k + tl.arange(0, EDGES)[None, :]
                    there = (i < b_count[:, None])[:, :, None]
                    a = cells(b_a[:, None] + i * b_step_a[:, None], LANES)
                    b = cells(b_b[:, None] + i * b_step_b[:, None], LANES)
                    b_share = tl.load(share + a, mask=there, other=0.0)
                    b_other = tl.load(m + b, mask=there, other=0.0)
                    b_k = b_e[:, None, :] + tl.load(e + b, mask=there, other=0)
                    b_k -= tl.load(e + a, mask=there, other=0)
                    b_part = b_share * (b_other * power2(b_k, dtype))
                    # items that no row needs were never written: they hold anything
                    some = (b_share > 0) & (b_other > 0)  # [HEADS, EDGES, LANES]
                    b_total += tl.sum(tl.where(some, b_part, 0.0), 1)
            b_total = tl.where(b_m > 0, b_total, 0.0)
            head = head_cells(b_item, LANES)
            tl.store(share + head, b_total, mask=(h < last)[:, None])
    tl.debug_barrier()
    for first in range(0, leaves, HEADS * EDGES):
        i = first + tl.arange(0, HEADS * EDGES)
        inside = (i < leaves)[:, None]
        leaf = head_cells(1 + i, LANES)
        b_share = tl.load(share + leaf, mask=inside, other=0.0)
        b_chance = b_share * tl.load(m + leaf, mask=inside, other=0.0)
        place = b_row[None, :] * leaves + i[:, None]
        tl.store(marginals + place, b_chance, mask=inside & b_real[None, :])
