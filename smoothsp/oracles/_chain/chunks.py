"""Addresses of a chain for compiled calls, whole or in pieces."""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch

from smoothsp._kernels.threads.ranges import CHUNKS_PER_THREAD, run_all
from smoothsp._kernels.vectors.lane_products import prefer_lanes
from smoothsp._kernels.vectors.state_products import ROWS_PER_PASS

# One vector of the dtype to compute in, which tells compiled code the dtype.
VECTORS = {
    torch.float32: np.zeros(16, np.float32),
    torch.float64: np.zeros(8, np.float64),
}
# Arguments ``in_lanes, over_states`` of kernels: one is 1, the other None.
SimdLayout = tuple[int | None, int | None]
# Work of a piece in vector operations, over half a millisecond: well above a start.
MIN_CHUNK_WORK = 800_000
# Pieces have whole groups of the rows that are computed together, over states twice as
# many as that: fewer would share too little of the preparation.
STATES_OVER_LANES, IN_LANES, OVER_STATES = 32, 32, 8


@lru_cache(maxsize=256)
def rows_per_chunk(B: int, T: int, S: int) -> int:
    """Number of rows of a piece, one call on one thread; a small batch is one piece.

    It depends on the shape alone: so do sums over rows, whatever the threads.
    """
    work = _work(B, T, S)
    pieces = max(2 * (work // (2 * MIN_CHUNK_WORK)), 1)  # for two threads as much each
    together = OVER_STATES if S > STATES_OVER_LANES else IN_LANES
    return -(-B // (pieces * together)) * together


def rows_per_chunk_rowwise(B: int, T: int, S: int, itemsize: int = 4) -> int:
    """Number of rows of a piece if each row has its own result.

    Several threads then may have smaller ones of large rows, whose bits are the same.
    ``itemsize`` is that of what is computed with.
    """
    rows = rows_per_chunk(B, T, S)
    if S <= STATES_OVER_LANES:
        return rows  # in lanes or over states, as many rows as a piece has say
    work = _work(B, T, S) * itemsize // 4
    threads = torch.get_num_threads() if work >= 2 * MIN_CHUNK_WORK else 1
    if threads < 2:
        return rows
    together = ROWS_PER_PASS if B > 2 else 1  # two share no pass over the transitions
    pieces = min(-(-(work // MIN_CHUNK_WORK) // threads), CHUNKS_PER_THREAD) * threads
    return min(rows, -(-B // (pieces * together)) * together)


def _work(B: int, T: int, S: int) -> int:
    """Vector operations in float32."""
    return B * T * S * (4 + S // 8)


@lru_cache(maxsize=256)
def single_call_layout(B: int, T: int, S: int, itemsize: int) -> SimdLayout | None:
    """``way_of_sums`` of answers that are one piece, whatever the threads, or None."""
    work = _work(B, T, S) * itemsize // 4
    if rows_per_chunk(B, T, S) < B or (
        S > STATES_OVER_LANES and work >= 2 * MIN_CHUNK_WORK
    ):
        return None
    return _way(B, S, 64 // itemsize)


def simd_layout(where: tuple[Any, ...]) -> SimdLayout:
    """``in_lanes, over_states`` of ``_kernels.chain.cpu.fused``."""
    return _way(where[0], where[2], len(where[9]))


@lru_cache(maxsize=256)
def _way(B: int, S: int, lanes: int) -> SimdLayout:
    return (1, None) if prefer_lanes(B, S, lanes) else (None, 1)


def slice_rows(where: tuple[Any, ...], first: int, rows: int) -> tuple[Any, ...]:
    """Sizes and addresses of ``rows`` rows from ``first``, at most as many as exist."""
    B, T, S, emissions, transitions, start, end, steps, lengths, zeros = where
    return (
        min(rows, B - first),
        T,
        S,
        emissions + first * T * S * zeros.itemsize,
        transitions,
        start,
        end,
        steps and steps + 8 * first * T,
        lengths and lengths + 8 * first,
        zeros,
    )


def run_in_chunks(
    where: tuple[Any, ...],
    call: Callable[[tuple[Any, ...], SimdLayout, int], int],
    outputs: int = 1,
) -> int:
    """Sum of ``call(where, way, b)`` over pieces of a batch, which begin at row b.

    ``outputs``: how many times the work of sums a row takes.
    """
    B, T, S, item = *where[:3], where[-1].itemsize
    way = single_call_layout(B, T * outputs, S, item)
    rows = B if way else rows_per_chunk_rowwise(B, T * outputs, S, item)
    if rows >= B:
        return call(where, way or simd_layout(where), 0)
    some = {b: slice_rows(where, b, rows) for b in range(0, B, rows)}
    return sum(run_all([partial(call, x, simd_layout(x), b) for b, x in some.items()]))
