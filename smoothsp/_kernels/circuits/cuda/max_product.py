"""Max-product in Triton: the best output of each row, and the leaves that it uses.

Scores are added and compared in the dtype of the potentials, and traces run in the
order of the CPU version, ``circuits.cpu.max_product``: results are equal to the last
bit.

    x(i) = max over products (a, b) of i of x(a) + x(b)          levels in order

The factors of the best product are stored beside x, whereas the CPU searches for them
again. A trace visits one item of each lane at a time, too few for the threads of a
program to share such searches.
"""

import torch
import triton  # noqa: TID253
import triton.language as tl  # noqa: TID253

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


def best_outputs(row_scores, shared_scores, circuit, rows, value, labels, parts):
    """Fill value[B], labels[B, N] and parts[B, U]; labels and parts are -1 before.

    ``parts`` are the leaves, from 0, that the best output uses; ``labels`` the labels
    that they set; ``value`` the sum of their scores, float64. ``row_scores`` [B, P] and
    ``shared_scores`` [Q] are scores, ``circuit`` is a ``DeviceCircuit`` and ``rows``
    are ``DeviceRowRoots``.
    """
    B, P = row_scores.shape
    x = torch.empty(**chart_spec(circuit, B, row_scores.dtype, row_scores.device))
    left = torch.empty(**chart_spec(circuit, B, torch.int32, row_scores.device))
    right = torch.empty_like(left)
    launch(
        _max_product_kernel,
        num_programs(B),
        row_scores,
        row_scores,
        shared_scores,
        *rows,
        circuit.depths,
        *circuit.inside_schedule,
        circuit.positions,
        circuit.values,
        x,
        left,
        right,
        left.new_empty((num_programs(B), circuit.max_depth + 2, LANES)),
        value,
        labels,
        parts,
        B,
        P,
        len(shared_scores),
        circuit.num_items,
        circuit.max_depth + 2,
        labels.shape[1],
        parts.shape[1],
        HEADS=HEADS,
        EDGES=EDGES,
        LANES=LANES,
        num_warps=WARPS,
        maxnreg=REGISTERS,
        enable_fp_fusion=False,
    )


# item = max over products of a + b, and the first (a, b) that attains it
@triton.jit(do_not_specialize=["B", "P", "Q", "items", "stack_size", "N", "U"])
def _max_product_kernel(
    row_scores,
    shared_scores,
    order,
    roots,
    depths,
    levels,
    heads,
    starts,
    runs,
    positions,
    values,
    x,
    left,
    right,
    stack,
    value,
    labels,
    parts,
    B,
    P,
    Q,
    items,
    stack_size,
    N,
    U,
    HEADS: tl.constexpr,
    EDGES: tl.constexpr,
    LANES: tl.constexpr,
):
    dtype = row_scores.dtype.element_ty
    none = float("-inf")
    b_row, b_real = program_rows(order, B, LANES)  # [LANES]
    x += chart_offset(items, LANES)
    left += chart_offset(items, LANES)
    right += chart_offset(items, LANES)
    b_lane = tl.arange(0, LANES)
    tl.store(x + b_lane, tl.zeros([LANES], dtype))
    _store_leaf_scores(row_scores, b_row * P, b_real, P, x, 1, HEADS * EDGES, LANES)
    _store_leaf_scores(
        shared_scores, b_row * 0, b_real, Q, x, 1 + P, HEADS * EDGES, LANES
    )

    b_root = tl.load(roots + b_row, mask=b_real, other=0)
    # a level reads results of other threads at lower levels: hence the barriers
    for level in range(0, tl.max(tl.load(depths + b_root), 0)):
        tl.debug_barrier()
        last = tl.load(levels + level + 1)
        for first in range(tl.load(levels + level), last, HEADS):
            h = first + tl.arange(0, HEADS)
            b_first, b_runs, max_runs = run_bounds(starts, h, h < last)
            b_top = tl.full([HEADS, LANES], none, dtype)
            b_left = tl.zeros([HEADS, LANES], tl.int32)
            b_right = tl.zeros([HEADS, LANES], tl.int32)
            for r in range(0, max_runs):
                b_count, b_a, b_step_a, b_b, b_step_b, longest = load_run(
                    runs, b_first + r, r < b_runs
                )
                for k in range(0, longest, EDGES):
                    i = k + tl.arange(0, EDGES)[None, :]
                    is_product = (i < b_count[:, None])[:, :, None]
                    a = edge_offsets(b_a[:, None] + i * b_step_a[:, None], LANES)
                    b = edge_offsets(b_b[:, None] + i * b_step_b[:, None], LANES)
                    b_x = tl.load(x + a, mask=is_product, other=none)
                    b_x += tl.load(x + b, mask=is_product, other=none)
                    b_new, b_i = tl.max(b_x, 1, return_indices=True)  # [HEADS, LANES]
                    b_i += k
                    # of equal products the first, as on the CPU
                    better = b_new > b_top
                    b_a_i = b_a[:, None] + b_i * b_step_a[:, None]
                    b_b_i = b_b[:, None] + b_i * b_step_b[:, None]
                    b_left = tl.where(better, b_a_i, b_left)
                    b_right = tl.where(better, b_b_i, b_right)
                    b_top = tl.where(better, b_new, b_top)
            head = item_offsets(tl.load(heads + h, mask=h < last, other=0), LANES)
            real = (h < last)[:, None]
            tl.store(x + head, b_top, mask=real)
            tl.store(left + head, b_left, mask=real)
            tl.store(right + head, b_right, mask=real)

    tl.debug_barrier()
    b_possible = tl.load(x + b_root * LANES + b_lane) > none
    stack += tl.program_id(0).to(tl.int64) * stack_size * LANES + b_lane
    b_total = _trace_leaves(
        row_scores, shared_scores, left + b_lane, right + b_lane, stack, positions,
        values,
        labels + b_row * N, parts + b_row * U, b_row * P, b_root.to(tl.int32),
        b_real & b_possible, P, Q, LANES,
    )  # fmt: skip
    tl.store(value + b_row, tl.where(b_possible, b_total, none), mask=b_real)


@triton.jit
def _store_leaf_scores(
    scores, b_at, b_real, width, x, item, CELLS: tl.constexpr, LANES: tl.constexpr
):
    """Write the scores from ``b_at`` on to the items from ``item`` on.

    NaN and +inf, which only padding holds, become -inf: no sum is NaN.
    """
    for first in range(0, width, CELLS):
        i = first + tl.arange(0, CELLS)
        inside = (i < width)[:, None]
        b_score = tl.load(
            scores + b_at[None, :] + i[:, None],
            mask=inside & b_real[None, :],
            other=0.0,
        )  # [CELLS, LANES]
        b_score = tl.where(b_score < float("inf"), b_score, float("-inf"))
        tl.store(x + item_offsets(item + i, LANES), b_score, mask=inside)


@triton.jit
def _trace_leaves(
    row_scores,
    shared_scores,
    left,
    right,
    stack,
    positions,
    values,
    labels,
    parts,
    b_at,
    b_root,
    b_is_active,
    P,
    Q,
    LANES: tl.constexpr,
):
    """Write the leaves below the roots, left before right; return their total score.

    Each lane has a stack of items, which begins with the root.
    """
    b_top = b_is_active.to(tl.int32)  # [LANES]: stack sizes
    b_count = tl.zeros([LANES], tl.int32)
    b_total = tl.zeros([LANES], tl.float64)
    tl.store(stack, b_root, mask=b_is_active)
    # two barriers a step: several threads serve a lane, and read each other's pushes
    while tl.max(b_top, 0) > 0:
        tl.debug_barrier()
        busy = b_top > 0
        b_item = tl.load(stack + (b_top - 1) * LANES, mask=busy, other=0)
        tl.debug_barrier()
        inner = b_item > P + Q
        b_a = tl.load(left + b_item * LANES, mask=inner, other=0)
        b_b = tl.load(right + b_item * LANES, mask=inner, other=0)
        tl.store(stack + (b_top - 1) * LANES, b_b, mask=inner)
        tl.store(stack + b_top * LANES, b_a, mask=inner)

        leaf = (b_item > 0) & (b_item <= P + Q)
        b_part = b_item - 1
        tl.store(parts + b_count, b_part, mask=leaf)
        is_row_leaf = leaf & (b_part < P)
        b_row_score = tl.load(row_scores + b_at + b_part, mask=is_row_leaf, other=0.0)
        b_shared_score = tl.load(
            shared_scores + b_part - P, mask=leaf & (b_part >= P), other=0.0
        )
        b_total += tl.where(is_row_leaf, b_row_score, b_shared_score).to(tl.float64)
        b_label = tl.load(positions + b_item, mask=leaf, other=-1)
        b_value = tl.load(values + b_item, mask=leaf, other=-1)
        tl.store(labels + b_label, b_value.to(tl.int64), mask=b_label >= 0)
        b_count += leaf.to(tl.int32)
        b_top += tl.where(inner, 1, tl.where(busy, -1, 0))
    return b_total
