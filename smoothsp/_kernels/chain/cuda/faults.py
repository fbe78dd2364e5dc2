"""What is wrong with the values of a chain, if anything.

The first launch reads every value, one stretch of time a program. The second searches
for an output in the rows that hold a -inf or a large value. Of several faults, the one
that the CPU twin finds is reported. Of a stretch, ``low`` is 0; 1 if it holds a -inf; 2
or 3 if it holds a large value.
"""

import torch
import triton  # noqa: TID253
import triton.language as tl  # noqa: TID253

from smoothsp._kernels.chain.cuda.blocks import (
    block_of,
    edge_scores,
    load_tile,
    rows_of,
    warps_of,
)
from smoothsp._kernels.compilation.launch import launch

# The codes of the CPU twin.
EMISSION = tl.constexpr(1)
TRANSITION = tl.constexpr(2)
START = tl.constexpr(3)
END = tl.constexpr(4)
INFEASIBLE = tl.constexpr(5)
LARGE = 6

# About how many values one program reads.
STRETCH = 1 << 15
# Up to so many states, the table of allowed moves stays in registers.
RESIDENT = 64
# Larger than any place: no fault.
NOWHERE = tl.constexpr(2**62)


def find_fault(
    emissions,
    transitions,
    start,
    end,
    steps,
    lengths,
    shared,
    fault,
):
    """Fill fault[5] with the first NaN or +inf that is read, or row without an output.

    Codes and places as the CPU twin writes them.
    """
    B, T, S = emissions.shape
    block = block_of(S)
    warps = warps_of(block * block, emissions.dtype)
    resident = block <= RESIDENT
    span = max(1, STRETCH // (S if shared else S * S))
    stretches = max(1, -(-T // span))
    # faults of the scores that rows share; then for each row of its stretches'
    # emissions, of their edges, and whether it has an output
    found = fault.new_empty((1 + B * (2 * stretches + 1), 5))
    # of each stretch, and last of the scores that rows share
    low = fault.new_empty(B * stretches + 1, dtype=torch.int32)
    launch(
        _values_kernel,
        B * stretches + 1,
        emissions,
        emissions,
        transitions,
        start,
        end,
        steps,
        lengths,
        found,
        low,
        T,
        S,
        span,
        stretches,
        SHARED=shared,
        BLOCK=block,
        ROWS=rows_of(block, 4),
        num_warps=4,
        enable_fp_fusion=False,
    )
    launch(
        _feasible_kernel,
        B,
        emissions,
        emissions,
        transitions,
        start,
        end,
        steps,
        lengths,
        low,
        emissions.new_empty((B, 2, S), dtype=torch.int32),
        found,
        B,
        T,
        S,
        stretches,
        SHARED=shared,
        RESIDENT=resident,
        BLOCK=block,
        ROWS=block if resident else rows_of(block, warps),
        num_warps=warps,
        enable_fp_fusion=False,
    )
    first = found[:, 0].ne(0).int().argmax(0, keepdim=True)
    fault.copy_(found.index_select(0, first)[0])
    large = (fault[0] == 0) & (low > 1).any()
    fault[0] += LARGE * large


@triton.jit(do_not_specialize=["T", "span", "stretches"])
def _values_kernel(
    emissions,
    transitions,
    start,
    end,
    steps,
    lengths,
    found,
    low,
    T,
    S,
    span,
    stretches,
    SHARED: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    p = tl.program_id(0).to(tl.int64)
    T = T.to(tl.int64)
    if p == tl.num_programs(0) - 1:
        _shared_values(transitions, start, end, found, low + p, S, SHARED, BLOCK, ROWS)
    else:
        b = p // stretches
        c = p % stretches
        row = found + (1 + b * (2 * stretches + 1)) * 5
        N = tl.load(lengths + b)
        steps += b * T
        first = c * span
        last = tl.minimum(first + span, N)
        wrong, has_low = _first_emission(
            emissions + b * T * S, steps, first, last, S, BLOCK, ROWS
        )
        t = tl.load(steps + wrong // S, mask=wrong < NOWHERE, other=0)
        _write(row + c * 5, wrong, EMISSION, b, t, -1, wrong % S)
        wrong = tl.full([], NOWHERE, tl.int64)
        if not SHARED:
            wrong, has_low_edge = _first_edge(
                transitions, b, steps, tl.maximum(first, 1), last, T, S, BLOCK, ROWS
            )
            has_low = has_low | has_low_edge
        t = tl.load(steps + wrong // S // S, mask=wrong < NOWHERE, other=0)
        into = row + (stretches + c) * 5
        _write(into, wrong, TRANSITION, b, t - 1, wrong // S % S, wrong % S)
        tl.store(low + p, has_low)


@triton.jit
def _shared_values(
    transitions,
    start,
    end,
    found,
    low,
    S,
    SHARED: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Look for faults in the scores that all rows share."""
    o = tl.arange(0, BLOCK)
    m = o < S
    b_start = tl.load(start + o, mask=m, other=0.0)
    b_end = tl.load(end + o, mask=m, other=0.0)
    # the start of a state comes before its end
    b_place = tl.where(b_end < float("inf"), NOWHERE, 2 * o.to(tl.int64) + 1)
    b_place = tl.where(b_start < float("inf"), b_place, 2 * o.to(tl.int64))
    has_low = tl.max(tl.maximum(_kind(b_start), _kind(b_end)), 0)
    wrong = tl.min(b_place, 0)
    at_end = wrong % 2 == 1
    state = wrong // 2
    _write(
        found,
        wrong,
        tl.where(at_end, END, START),
        -1,
        -1,
        tl.where(at_end, state, -1),
        tl.where(at_end, -1, state),
    )
    if SHARED:
        sound = wrong == NOWHERE
        wrong, has_low_edge = _first_cell(transitions, S, BLOCK, ROWS)
        has_low = has_low | has_low_edge
        if sound:
            _write(found, wrong, TRANSITION, -1, -1, wrong // S, wrong % S)
    tl.store(low, has_low)


@triton.jit
def _kind(b_x):
    """1 for -inf, 2 for a large number, else 0."""
    b_large = (b_x * b_x == float("inf")) & (tl.abs(b_x) < float("inf"))
    return tl.where(b_large, 2, (b_x == float("-inf")).to(tl.int32))


@triton.jit
def _write(into, wrong, code, row, step, i, j):
    """Write a fault, or that there is none where ``wrong`` is NOWHERE."""
    some = wrong < NOWHERE
    tl.store(into, tl.where(some, code, 0))
    tl.store(into + 1, tl.where(some, row, -1))
    tl.store(into + 2, tl.where(some, step, -1))
    tl.store(into + 3, tl.where(some, i, -1))
    tl.store(into + 4, tl.where(some, j, -1))


@triton.jit
def _first_emission(
    emissions, steps, first, last, S, BLOCK: tl.constexpr, ROWS: tl.constexpr
):
    """Return the first place ``n S + j`` of a NaN or +inf, and the kind of values."""
    j = tl.arange(0, BLOCK)
    b_wrong = tl.full([BLOCK], NOWHERE, tl.int64)
    b_low = tl.zeros([BLOCK], tl.int32)
    for begin in range(first, last, ROWS):
        n = begin + tl.arange(0, ROWS)
        inside = (n[:, None] < last) & (j[None, :] < S)
        t = tl.load(steps + n, mask=n < last, other=0)
        b_x = tl.load(
            emissions + t[:, None] * S + j[None, :], mask=inside, other=0.0
        )  # [ROWS, BLOCK]
        b_place = n[:, None].to(tl.int64) * S + j[None, :]
        b_place = tl.where(b_x < float("inf"), NOWHERE, b_place)
        b_wrong = tl.minimum(b_wrong, tl.min(b_place, 0))
        b_low = b_low | tl.max(_kind(b_x), 0)
    return tl.min(b_wrong, 0), tl.max(b_low, 0)


@triton.jit
def _first_edge(
    transitions,
    b,
    steps,
    first,
    last,
    T,
    S,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Return the first place ``(n S + i) S + j`` of a NaN or +inf, and the kind."""
    wrong = tl.full([], NOWHERE, tl.int64)
    has_low = tl.full([], 0, tl.int32)
    for n in range(first, last):
        scores = edge_scores(transitions, b, tl.load(steps + n), T, S, False)
        cell, low = _first_cell(scores, S, BLOCK, ROWS)
        place = tl.where(cell < NOWHERE, n * S * S + cell, NOWHERE)
        wrong = tl.minimum(wrong, place)
        has_low = has_low | low
    return wrong, has_low


@triton.jit
def _first_cell(scores, S, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """Return the first place ``i S + j`` of a NaN or +inf, and the kind of values."""
    j = tl.arange(0, BLOCK)
    b_wrong = tl.full([BLOCK], NOWHERE, tl.int64)
    b_low = tl.zeros([BLOCK], tl.int32)
    for begin in range(0, S, ROWS):
        i = begin + tl.arange(0, ROWS)
        inside = (i[:, None] < S) & (j[None, :] < S)
        b_x = tl.load(scores + i[:, None] * S + j[None, :], mask=inside, other=0.0)
        b_place = i[:, None].to(tl.int64) * S + j[None, :]
        b_place = tl.where(b_x < float("inf"), NOWHERE, b_place)
        b_wrong = tl.minimum(b_wrong, tl.min(b_place, 0))
        b_low = b_low | tl.max(_kind(b_x), 0)
    return tl.min(b_wrong, 0), tl.max(b_low, 0)


# r_t(j) = e_t(j) > -inf and some i has r_{t-1}(i) and s(i, j) > -inf
@triton.jit(do_not_specialize=["B", "T", "stretches"])
def _feasible_kernel(
    emissions,
    transitions,
    start,
    end,
    steps,
    lengths,
    low,
    room,
    found,
    B,
    T,
    S,
    stretches,
    SHARED: tl.constexpr,
    RESIDENT: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    b = tl.program_id(0).to(tl.int64)
    T = T.to(tl.int64)
    N = tl.load(lengths + b)
    o = tl.arange(0, BLOCK)
    m = o < S
    emissions += b * T * S
    steps += b * T
    room += b * 2 * S
    forbids = tl.load(low + B * stretches.to(tl.int64))
    for c in range(0, stretches):
        forbids = forbids | tl.load(low + b * stretches + c)
    # a row where nothing is forbidden has an output
    N = tl.where(forbids != 0, N, 0)
    stuck = tl.full([], -1, tl.int64)
    if RESIDENT and SHARED:
        b_open = load_tile(transitions, o, S, BLOCK) > float("-inf")  # [BLOCK, BLOCK]
    b_end = tl.load(end + o, mask=m, other=float("-inf"))
    b_reach = (tl.load(start + o, mask=m, other=float("-inf")) > float("-inf")).to(
        tl.int32
    )  # [BLOCK]
    for n in range(0, N):
        t = tl.load(steps + n)
        b_e = tl.load(emissions + t * S + o, mask=m, other=float("-inf"))
        if n > 0:
            scores = edge_scores(transitions, b, t, T, S, SHARED)
            if RESIDENT:
                if not SHARED:
                    b_open = load_tile(scores, o, S, BLOCK) > float("-inf")
                b_reach = tl.max(tl.where(b_open, b_reach[:, None], 0), 0)
            else:
                # two halves in turn, so that no thread overwrites what another still
                # reads
                half = room + (n % 2) * S
                tl.store(half + o, b_reach, mask=m)
                tl.debug_barrier()
                b_reach = tl.zeros([BLOCK], tl.int32)
                for first in range(0, S, ROWS):
                    i = first + tl.arange(0, ROWS)
                    b_from = tl.load(half + i, mask=i < S, other=0)
                    b_tile = load_tile(scores, i, S, BLOCK) > float("-inf")
                    b_into = tl.max(tl.where(b_tile, b_from[:, None], 0), 0)
                    b_reach = tl.maximum(b_reach, b_into)
        b_closed = (b_e == float("-inf")) | ((n == N - 1) & (b_end == float("-inf")))
        b_reach = tl.where(b_closed, 0, b_reach)
        empty = tl.max(b_reach, 0) == 0
        stuck = tl.where(empty & (stuck < 0), t, stuck)
    into = found + ((b + 1) * (2 * stretches + 1)) * 5
    _write(into, tl.where(stuck < 0, NOWHERE, 0), INFEASIBLE, b, stuck, -1, -1)
