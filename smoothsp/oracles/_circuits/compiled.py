"""The compiled loops, called: contiguous CPU tensors in and out, and no gradients."""

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothsp._kernels.circuits.cpu import best as best_cpu
from smoothsp._kernels.circuits.cpu import faults, given_outputs
from smoothsp._kernels.circuits.cpu import k_best as k_best_cpu
from smoothsp._kernels.circuits.cpu import samples as samples_cpu
from smoothsp._kernels.circuits.cpu import sums as sums_cpu
from smoothsp._kernels.circuits.cpu import tangent as tangent_cpu
from smoothsp._kernels.circuits.cpu.numbers import LN2, furthest
from smoothsp._kernels.circuits.layout.edges import Edges
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp._kernels.vectors.whole_arrays import narrow, scale_rows
from smoothsp.oracles._circuits import levels
from smoothsp.oracles._circuits.asked import Asked, Leaves

# Steps of the innermost loop that a product of a vector of rows costs, in sums and in
# maxima; and what a leaf of an output costs to find.
SUM_STEPS, MAX_STEPS, TRACE_STEPS = 12, 2, 30
# Lanes of a vector.
LANES = {torch.float32: 16, torch.float64: 8}
VECTORS = {
    dtype: torch.zeros(n, dtype=dtype, device="cpu").numpy()
    for dtype, n in LANES.items()
}

LARGEST = {dtype: torch.finfo(dtype).max for dtype in LANES}
FLOAT64 = np.dtype(np.float64)


class _Table:
    """Arrays as kernels take them, which it keeps alive, and where answers go."""

    def __init__(
        self, leaves: Leaves, targets: Sequence[Tensor | None] | None = None
    ) -> None:
        every, n = (*leaves.own, *leaves.shared), len(leaves.own)
        B = max(len(leaves.own[0]), 1)
        self.kept = [x if x.is_contiguous() else x.contiguous() for x in every]
        addresses = [0] * len(every) if targets is None else map(_address, targets)
        self.rows = np.array(
            [
                (x.data_ptr(), x.numel() // B if i < n else x.numel(), i >= n, target)
                for i, (x, target) in enumerate(zip(self.kept, addresses, strict=True))
            ],
            np.int64,
        )


def _address(target: Tensor | None) -> int:
    return 0 if target is None else target.data_ptr()


def sums(
    leaves: Leaves, asked: Asked, wanted: Sequence[bool]
) -> tuple[Tensor, list[Tensor]]:
    """Log-partition ``[B]`` in float64, and the marginals ``[B, ...]`` that are wanted.

    In float32 as far as its exponents reach, else in float64, else in log space.
    """
    dtype, B = leaves.own[0].dtype, len(asked.roots)
    marginals = _outputs(leaves, B, wanted)
    given, number = _Table(leaves, marginals), VECTORS[dtype].dtype
    value, far = np.empty(B), np.empty(B, np.bool_)
    outwards = any(wanted)

    def piece(first: int, last: int) -> None:
        scratch = room(asked.edges, 3, number)
        rows = first, last, asked.edges_at, asked.rows_at
        sums_cpu.sums(*rows, given.rows, scratch, outwards, value, far)

    lanes = LANES[dtype]
    run_rows(piece, B, asked.work(lanes, SUM_STEPS), together=lanes)
    found = torch.from_numpy(value)
    if True in far.tobytes():
        rows = truly_far(leaves, asked, far, furthest(lanes))
        if len(rows):
            again = _sums_of_far(pick(leaves, rows), asked.select(rows), wanted)
            found[rows] = again[0]
            for x, y in zip(marginals, again[1], strict=True):
                if x.numel():
                    x[rows] = y.to(x.dtype)
    return found, marginals


def rounded(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Numbers ``[B]`` of float64 in another dtype, on the CPU without PyTorch's way."""
    if dtype == value.dtype or not value.is_cpu:
        return value.to(dtype)
    found = torch.empty(len(value), dtype=dtype, device="cpu")
    narrow(len(value), value.data_ptr(), found.data_ptr(), VECTORS[dtype])
    return found


def scale_in_place(weights: Tensor, parts: Tensor) -> Tensor:
    """The parts ``[B, ...]``, contiguous, each row now times its weight."""
    if weights.dtype != parts.dtype:
        weights = weights.to(parts.dtype)
    B, vector = len(parts), VECTORS[parts.dtype]
    given = weights.data_ptr(), weights.stride(0), parts.data_ptr(), vector
    size = parts.numel()
    run_rows(scale_rows, B, size // 2, size // max(B, 1), *given)
    return parts


def _outputs(leaves: Leaves, B: int, wanted: Sequence[bool]) -> list[Tensor]:
    """Arrays ``[B, ...]`` for what is wanted of the leaves, and empty ones."""
    shapes = [x.shape for x in leaves.own] + [(B, *x.shape) for x in leaves.shared]
    like = leaves.own[0]
    return [
        like.new_empty(shape if some else 0)
        for shape, some in zip(shapes, wanted, strict=True)
    ]


def pick(leaves: Leaves, rows: Tensor) -> Leaves:
    """The leaves of some rows."""
    return Leaves(tuple(x[rows] for x in leaves.own), leaves.shared)


def truly_far(leaves: Leaves, asked: Asked, far: Any, most: float) -> Tensor:
    """Of the rows ``far[B]`` those that read what lies above exponents, ``most``."""
    rows = torch.from_numpy(np.flatnonzero(far))
    read = rows.new_empty((len(rows), asked.topology.leaves), dtype=torch.bool)
    faults.reading(asked.edges_at, asked.roots[rows].numpy(), read.numpy())
    scores = pick(leaves, rows).joined().detach().cpu()
    size = torch.where(scores.abs() < torch.inf, scores, 0).masked_fill(~read, 0)
    reach = size.abs().amax(1).double() * asked.topology.most / LN2
    return rows[reach > most]


def _sums_of_far(
    leaves: Leaves, asked: Asked, wanted: Sequence[bool]
) -> tuple[Tensor, list[Tensor]]:
    if leaves.own[0].dtype == torch.float32:
        return sums(leaves.map(lambda x: x.double()), asked, wanted)
    value, chances = levels.sums(leaves.joined().detach(), asked.topology, asked.roots)
    return value, split(chances, leaves)


def split(numbers: Tensor, leaves: Leaves) -> list[Tensor]:
    """``[B, P + Q]`` numbers of leaves as arrays ``[B, ...]``."""
    shapes = [x.shape[1:] for x in leaves.own] + [x.shape for x in leaves.shared]
    parts = torch.split(numbers, [shape.numel() for shape in shapes], 1)
    B = len(numbers)
    return [x.reshape(B, *shape) for x, shape in zip(parts, shapes, strict=True)]


def choose(
    leaves: Leaves, asked: Asked, k: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Values ``[B, K]``, labels ``[B, K, N]`` and parts ``[B, K, U]`` of the best.

    One for each row, or the k best in float64: so they are sorted, rounded or not.
    """
    if k is not None:
        leaves = leaves.map(lambda x: x.double())
    B, K = len(asked.roots), k or 1
    given, dtype = _Table(leaves), leaves.own[0].dtype
    values = torch.empty((B, K), dtype=torch.float64, device="cpu")
    labels = torch.empty((B, K, asked.topology.labels), dtype=torch.int64, device="cpu")
    parts = torch.empty((B, K, asked.topology.most), dtype=torch.int32, device="cpu")
    out = values.numpy(), labels.numpy(), parts.numpy()
    if k is None:
        out = out[0][:, 0], out[1][:, 0], out[2][:, 0]
    kernel = best_cpu.best if k is None else k_best_cpu.k_best
    lanes, number = LANES[dtype], VECTORS[dtype].dtype

    def piece(first: int, last: int) -> None:
        scratch = room(asked.edges, 1 if k is None else 2, number)
        kernel(first, last, asked.edges_at, asked.rows_at, given.rows, scratch, *out)

    work = asked.work(lanes, MAX_STEPS) + TRACE_STEPS * parts.numel()
    run_rows(piece, B, work, together=lanes)
    return values, labels, parts


def samples(leaves: Leaves, asked: Asked, seeds: Tensor) -> Tensor:
    """Labels ``[B, n, N]`` of independent draws, from seeds ``[B, n]``."""
    B, n = seeds.shape
    given = _Table(leaves.map(lambda x: x.double()))
    labels = torch.empty((B, n, asked.topology.labels), dtype=torch.int64, device="cpu")
    drawn = labels.numpy(), seeds.contiguous().numpy()

    value, far = np.empty(B), np.empty(B, np.bool_)

    def piece(first: int, last: int) -> None:
        scratch = room(asked.edges, 3, FLOAT64)
        for rows in groups(first, last, 8):
            what = *rows, asked.edges_at, asked.rows_at
            sums_cpu.inwards(*what, given.rows, scratch, value, far)
            samples_cpu.samples(*what, drawn[1], scratch, drawn[0])

    work = asked.work(8, SUM_STEPS) + TRACE_STEPS * n * B * asked.topology.most
    run_rows(piece, B, work, together=8)
    return labels


def tangent(
    leaves: Leaves, asked: Asked, along: Leaves, wanted: Sequence[bool]
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Log-partition, mean of ``along`` ``[B]``, and how marginals ``[B, ...]`` move.

    In float64; ``along`` are directions, those of shared leaves as they are or
    ``[B, ...]``.
    """
    B = len(asked.roots)
    wide = leaves.map(lambda x: x.double())
    moved = _outputs(wide, B, wanted)
    given, ways = _Table(wide, moved), _Table(along.map(lambda x: x.double()))
    value, means, far = np.empty(B), np.empty(B), np.empty(B, np.bool_)
    outwards = any(wanted)

    def piece(first: int, last: int) -> None:
        scratch = room(asked.edges, 5, FLOAT64)
        for rows in groups(first, last, 8):
            what = *rows, asked.edges_at, asked.rows_at, given.rows
            sums_cpu.inwards(*what, scratch, value, far)
            tangent_cpu.tangent(*what, ways.rows, scratch, outwards, means)

    run_rows(piece, B, asked.work(8, 3 * SUM_STEPS), together=8)
    found = torch.from_numpy(value), torch.from_numpy(means)
    if True in far.tobytes():
        rows = truly_far(wide, asked, far, furthest(8))
        if len(rows):
            scores, way = pick(wide, rows).joined(), pick(along, rows).joined()
            some = asked.topology, asked.roots[rows]
            again = levels.covariance(scores.detach(), *some, way.double())
            found[0][rows], found[1][rows] = again[:2]
            for x, y in zip(moved, split(again[2], leaves), strict=True):
                if x.numel():
                    x[rows] = y
    return *found, moved


def groups(first: int, last: int, lanes: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows that fit into the lanes of one vector."""
    for begin in range(first, last, lanes):
        yield begin, min(begin + lanes, last)


def total(leaves: Leaves, used: Tensor) -> Tensor:
    """Sums ``[B, K]``, in float64, of the leaves ``used`` ``[B, K, U]``, -1 none."""
    given = _Table(leaves)
    value = torch.empty(used.shape[:2], dtype=torch.float64, device="cpu")
    vector = VECTORS[leaves.own[0].dtype]
    given_outputs.total(given.rows, used.contiguous().numpy(), vector, value.numpy())
    return value


def count(
    weights: Tensor, used: Tensor, leaves: Leaves, wanted: Sequence[bool]
) -> list[Tensor | None]:
    """Weights ``[B, K]`` added up over the leaves ``used``, where that is wanted."""
    every, n = (*leaves.own, *leaves.shared), len(leaves.own)
    kinds = [weights.dtype] * n + [torch.float64] * (len(every) - n)
    # not like the leaves, which may have any strides
    out = [
        torch.zeros(x.shape, dtype=kind, device="cpu") if some else None
        for x, kind, some in zip(every, kinds, wanted, strict=True)
    ]
    arrays = weights.contiguous().numpy(), used.contiguous().numpy()
    given_outputs.count(*arrays, _Table(leaves, out).rows)
    return [None if x is None else x.to(weights.dtype) for x in out]


def exist(asked: Asked, used: Tensor) -> Any:
    """Whether outputs exist that use such leaves ``[B, K, U]``: bool ``[B, K]``."""
    found = np.empty(used.shape[:2], np.bool_)
    given_outputs.exist(
        asked.edges_at, asked.rows.roots, used.contiguous().numpy(), found
    )
    return found


def possible(leaves: Leaves, asked: Asked) -> Any:
    """Whether a row has an output that is not forbidden: bool ``[B]``."""
    found = np.empty(len(asked.roots), np.bool_)
    given, vector = _Table(leaves), VECTORS[leaves.own[0].dtype]
    faults.possible(asked.edges_at, asked.rows.roots, given.rows, vector, found)
    return found


# Each thread keeps its scratch: fresh memory costs more than the work. What is larger
# than this is given back after the call.
MOST_BYTES = 2**28
_kept = threading.local()


def room(edges: Edges, arrays: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """``[arrays, size]``, aligned to 64 bytes: a vector an item, and some more."""
    asked = edges.items, arrays, dtype
    kept: dict[str, Any] = _kept.__dict__
    found: NDArray[Any]
    if kept.get("asked") == asked:
        found = kept["found"]
        return found
    lanes = 64 // dtype.itemsize
    # rows come and go in squares of vectors
    size = (edges.items + lanes) * lanes
    needed = arrays * size * dtype.itemsize + 64
    raw = kept.get("raw")
    if raw is None or raw.nbytes < needed:
        raw = np.zeros(needed, np.uint8)
    skip = -raw.ctypes.data % 64
    found = raw[skip : skip + needed - 64].view(dtype).reshape(arrays, size)
    if needed <= MOST_BYTES:
        kept.update(asked=asked, found=found, raw=raw)
    return found
