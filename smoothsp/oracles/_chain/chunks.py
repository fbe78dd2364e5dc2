"""Chunks of rows: one compiled call each, distributed over threads."""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch

from smoothsp._kernels.threads.ranges import CHUNKS_PER_THREAD, run_all
from smoothsp._kernels.vectors.lane_products import prefer_lanes
from smoothsp._kernels.vectors.state_products import ROWS_PER_PASS

# One vector of the dtype to compute in: its type selects the compiled specialisation.
VECTORS = {
    torch.float32: np.zeros(16, np.float32),
    torch.float64: np.zeros(8, np.float64),
}
# Arguments ``in_lanes, over_states`` of kernels: one is 1, the other None.
SimdLayout = tuple[int | None, int | None]
# Work of a chunk in vector operations: half a millisecond, far above a thread's start.
MIN_CHUNK_WORK = 800_000
# Chunks consist of groups of rows that are computed together. Over states a group has
# twice the rows of one pass: fewer would share too little of the preparation.
MAX_STATES_IN_LANES, ROWS_IN_LANES, ROWS_OVER_STATES = 32, 32, 8


@lru_cache(maxsize=256)
def rows_per_chunk(B: int, T: int, S: int) -> int:
    """Number of rows of a chunk; a small batch is one chunk.

    It depends on the shape alone, so that sums over rows have the same order, and the
    same bits, for any number of threads.
    """
    work = _estimate_work(B, T, S)
    # even, so that two threads get equal work
    num_chunks = max(2 * (work // (2 * MIN_CHUNK_WORK)), 1)
    group_size = ROWS_OVER_STATES if S > MAX_STATES_IN_LANES else ROWS_IN_LANES
    return -(-B // (num_chunks * group_size)) * group_size


def rows_per_chunk_rowwise(B: int, T: int, S: int, itemsize: int = 4) -> int:
    """Number of rows of a chunk if no result sums over rows.

    The number may then depend on threads: bits of a row do not depend on its chunk.
    ``itemsize`` is that of the dtype to compute in.
    """
    rows = rows_per_chunk(B, T, S)
    if S <= MAX_STATES_IN_LANES:
        return rows  # the layout depends on the chunk size, and bits on the layout
    work = _estimate_work(B, T, S) * itemsize // 4
    num_threads = torch.get_num_threads() if work >= 2 * MIN_CHUNK_WORK else 1
    if num_threads < 2:
        return rows
    # two rows go to two threads instead of sharing a pass over the transitions
    group_size = ROWS_PER_PASS if B > 2 else 1
    num_chunks = (
        min(-(-(work // MIN_CHUNK_WORK) // num_threads), CHUNKS_PER_THREAD)
        * num_threads
    )
    return min(rows, -(-B // (num_chunks * group_size)) * group_size)


def _estimate_work(B: int, T: int, S: int) -> int:
    """Number of vector operations in float32."""
    return B * T * S * (4 + S // 8)


@lru_cache(maxsize=256)
def single_call_layout(B: int, T: int, S: int, itemsize: int) -> SimdLayout | None:
    """``simd_layout`` if any number of threads would get one chunk, else None."""
    work = _estimate_work(B, T, S) * itemsize // 4
    if rows_per_chunk(B, T, S) < B or (
        S > MAX_STATES_IN_LANES and work >= 2 * MIN_CHUNK_WORK
    ):
        return None
    return _simd_layout(B, S, 64 // itemsize)


def simd_layout(addresses: tuple[Any, ...]) -> SimdLayout:
    """``in_lanes, over_states`` of ``_kernels.chain.cpu.fused``."""
    return _simd_layout(addresses[0], addresses[2], len(addresses[9]))


@lru_cache(maxsize=256)
def _simd_layout(B: int, S: int, lanes: int) -> SimdLayout:
    return (1, None) if prefer_lanes(B, S, lanes) else (None, 1)


def slice_rows(
    addresses: tuple[Any, ...], first_row: int, rows: int
) -> tuple[Any, ...]:
    """Sizes and addresses of ``rows`` rows from ``first_row``, or of the rest."""
    B, T, S, emissions, transitions, start, end, steps, lengths, zeros = addresses
    return (
        min(rows, B - first_row),
        T,
        S,
        emissions + first_row * T * S * zeros.itemsize,
        transitions,
        start,
        end,
        steps and steps + 8 * first_row * T,
        lengths and lengths + 8 * first_row,
        zeros,
    )


def run_in_chunks(
    addresses: tuple[Any, ...],
    call: Callable[[tuple[Any, ...], SimdLayout, int], int],
    passes_per_row: int = 1,
) -> int:
    """Sum of ``call(addresses, layout, b)`` over the chunks of a batch.

    Chunks begin at row b. ``passes_per_row`` is the work of a row relative to the
    forward-backward algorithm.
    """
    B, T, S, item = *addresses[:3], addresses[-1].itemsize
    layout = single_call_layout(B, T * passes_per_row, S, item)
    rows = B if layout else rows_per_chunk_rowwise(B, T * passes_per_row, S, item)
    if rows >= B:
        return call(addresses, layout or simd_layout(addresses), 0)
    chunks = {b: slice_rows(addresses, b, rows) for b in range(0, B, rows)}
    return sum(
        run_all([partial(call, x, simd_layout(x), b) for b, x in chunks.items()])
    )
