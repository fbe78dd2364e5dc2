"""Calls of the compiled loops for circuits: CPU tensors in and out, no gradients.

For a small batch the overhead dominates. A call into PyTorch or numpy takes several
times longer here than in a tight loop, because its code has left the cache. The
functions therefore make few such calls, always to the same functions.
"""

import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothsp._kernels.circuits.cpu import inside_outside as inside_outside_cpu
from smoothsp._kernels.circuits.cpu import k_best as k_best_cpu
from smoothsp._kernels.circuits.cpu import max_marginals as max_marginals_cpu
from smoothsp._kernels.circuits.cpu import max_product as max_product_cpu
from smoothsp._kernels.circuits.cpu import samples as samples_cpu
from smoothsp._kernels.circuits.cpu import samples_without_replacement as distinct_cpu
from smoothsp._kernels.circuits.cpu import scores as scores_cpu
from smoothsp._kernels.circuits.cpu import tangent as tangent_cpu
from smoothsp._kernels.circuits.cpu import validation
from smoothsp._kernels.circuits.cpu.scaled_floats import exponent_limit
from smoothsp._kernels.circuits.layout.circuit_arrays import CircuitArrays
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp._kernels.vectors.double_double import LN2
from smoothsp._kernels.vectors.whole_arrays import add_rows, scale_rows
from smoothsp.oracles._circuits.circuit_batch import CircuitBatch, Leaves
from smoothsp.oracles._inference import score_values as numbers
from smoothsp.oracles._inference import to_numpy as arrays
from smoothsp.oracles._inference.to_numpy import PointerTable

# Measured work, in iterations of the innermost loop: of a product of one vector of rows
# in sums and in maxima, and of tracing one leaf of an output.
SUM_STEPS, MAX_STEPS, TRACE_STEPS = 12, 2, 30
# Lanes of a vector.
LANES = {torch.float32: 16, torch.float64: 8}
VECTORS = {
    dtype: torch.zeros(n, dtype=dtype, device="cpu").numpy()
    for dtype, n in LANES.items()
}

# x.new_empty is cheaper than torch.empty with a dtype and a device.
EMPTY = {
    dtype: torch.empty(0, dtype=dtype, device="cpu")
    for dtype in (torch.float32, torch.float64, torch.int64, torch.int32)
}
FLOAT64 = np.dtype(np.float64)
# From this score on, float32 roundings (2^-12 and more) may change the maximiser.
MAX_FLOAT32_SCORE = 2.0**12


def log_partition_and_marginals(
    leaves: Leaves, batch: CircuitBatch, needs_grad: Sequence[bool], dtype: torch.dtype
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Log-partition ``[B]``, as double-doubles ``[B, 2]``, and marginals ``[B, ...]``.

    Marginals are empty unless ``needs_grad``. float32 rows out of the exponent range
    are computed again in float64.
    """
    leaf_dtype, B = leaves.per_row[0].dtype, batch.size
    marginals = _empty_outputs(leaves, B, needs_grad)
    table, scratch_dtype = PointerTable(*leaves, marginals), VECTORS[leaf_dtype].dtype
    new = EMPTY[torch.float64].new_empty
    hi_lo, out_of_range = new(B, 2), new(B)
    value = EMPTY[leaf_dtype].new_empty(B if leaf_dtype == dtype else 0)
    out_ptrs = (
        hi_lo.data_ptr(),
        out_of_range.data_ptr(),
        value.data_ptr() if leaf_dtype == dtype else 0,
    )
    with_marginals = any(needs_grad)
    num_out_of_range: list[int] = []

    def run_chunk(first: int, last: int) -> None:
        scratch = scratch_memory(batch.edges, 3, scratch_dtype)
        rows = first, last, batch.edges_address, batch.rows_address
        num_out_of_range.append(
            inside_outside_cpu.inside_outside(
                *rows, table.address_and_size, scratch, with_marginals, out_ptrs
            )
        )

    lanes = LANES[leaf_dtype]
    run_rows(run_chunk, B, batch.work(lanes, SUM_STEPS), group_size=lanes)
    if leaf_dtype == torch.float32 and any(num_out_of_range):
        rows = rows_out_of_range(
            leaves, batch, out_of_range.numpy(), exponent_limit(lanes)
        )
        if len(rows):
            float64_leaves = select_rows(leaves, rows).map(lambda x: x.double())
            refilled = log_partition_and_marginals(
                float64_leaves, batch.select(rows), needs_grad, torch.float64
            )
            hi_lo[rows] = refilled[1]
            if leaf_dtype == dtype:
                value[rows] = refilled[0].to(dtype)
            for x, y in zip(marginals, refilled[2], strict=True):
                if x.numel():
                    x[rows] = y.to(x.dtype)
    return value if leaf_dtype == dtype else round_hi_lo(hi_lo, dtype), hi_lo, marginals


def round_hi_lo(hi_lo: Tensor, dtype: torch.dtype) -> Tensor:
    """Round double-doubles ``[..., 2]`` to new values ``[...]`` of a dtype."""
    return hi_lo[..., 0].to(dtype, copy=True)


def scale_rows_inplace(weights: Tensor, parts: Tensor) -> Tensor:
    """Multiply the rows of contiguous parts ``[B, ...]`` by weights, in place."""
    if weights.dtype != parts.dtype:
        weights = weights.to(parts.dtype)
    B, vector = len(parts), VECTORS[parts.dtype]
    weight_args = weights.data_ptr(), weights.stride(0), parts.data_ptr(), vector
    size = parts.numel()
    run_rows(scale_rows, B, size // 2, size // max(B, 1), *weight_args)
    return parts


def sum_weighted_rows(weights: Tensor, parts: Tensor) -> Tensor:
    """Sum the rows of contiguous parts ``[B, ...]``, multiplied by weights."""
    if weights.dtype != parts.dtype:
        weights = weights.to(parts.dtype)
    B, *shape = parts.shape
    total = EMPTY[parts.dtype].new_empty(shape)
    weight_args = (
        weights.data_ptr(),
        weights.stride(0),
        parts.data_ptr(),
        total.data_ptr(),
    )
    add_rows(B, total.numel(), *weight_args, VECTORS[parts.dtype])
    return total


def _empty_outputs(leaves: Leaves, B: int, needs_grad: Sequence[bool]) -> list[Tensor]:
    """Allocate ``[B, ...]`` for the leaves in ``needs_grad``; others get size 0."""
    new, n = EMPTY[leaves.per_row[0].dtype].new_empty, len(leaves.per_row)
    enumerated = enumerate((*leaves.per_row, *leaves.shared))
    return [
        (new(x.shape) if i < n else new(B, *x.shape)) if needs_grad[i] else new(0)
        for i, x in enumerated
    ]


def select_rows(leaves: Leaves, rows: Tensor) -> Leaves:
    """Return the leaves of the given rows."""
    return Leaves(tuple(x[rows] for x in leaves.per_row), leaves.shared)


def rows_out_of_range(
    leaves: Leaves, batch: CircuitBatch, out_of_range: Any, max_exponent_sum: float
) -> Tensor:
    """Rows of mask ``out_of_range`` ``[B]`` whose scores exceed ``max_exponent_sum``.

    The bound on exponents is the largest leaf of a row times the leaves of an output.
    """
    rows = torch.from_numpy(np.flatnonzero(out_of_range))
    is_read = rows.new_empty((len(rows), batch.topology.leaves), dtype=torch.bool)
    validation.reachable_leaves(
        batch.edges_address, batch.roots[rows].numpy(), is_read.numpy()
    )
    scores = select_rows(leaves, rows).concatenate().detach().cpu()
    magnitudes = torch.where(scores.abs() < torch.inf, scores, 0).masked_fill(
        ~is_read, 0
    )
    max_sums = magnitudes.abs().amax(1).double() * batch.topology.max_leaves / LN2
    return rows[max_sums > max_exponent_sum]


def split_leaves(numbers: Tensor, leaves: Leaves) -> list[Tensor]:
    """Split ``[B, P + Q]`` into one array ``[B, ...]`` per array of leaves."""
    shapes = [x.shape[1:] for x in leaves.per_row] + [x.shape for x in leaves.shared]
    parts = torch.split(numbers, [shape.numel() for shape in shapes], 1)
    B = len(numbers)
    return [x.reshape(B, *shape) for x, shape in zip(parts, shapes, strict=True)]


def best(
    leaves: Leaves,
    batch: CircuitBatch,
    k: int | None,
    dtype: torch.dtype,
    recheck_in_float64: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Maxima ``[B, K]``, as double-doubles, labels ``[B, K, N]``, parts ``[B, K, U]``.

    Without k ``[B]``, ``[B, 2]``, ``[B, N]`` and ``[B, U]``. The k best are computed in
    float64, so that they are sorted also after rounding. With ``recheck_in_float64``,
    float32 batches with large scores are decoded again in float64, since rounding may
    change the maximiser.
    """
    B, K, leaf_dtype = batch.size, k or 1, leaves.per_row[0].dtype
    N, U = batch.topology.labels, batch.topology.max_leaves
    shape = (B,) if k is None else (B, K)
    hi_lo = EMPTY[torch.float64].new_empty(*shape, 2)
    labels = EMPTY[torch.int64].new_empty(*shape, N)
    parts = EMPTY[torch.int32].new_empty(*shape, U)
    # the kernel of the k best writes rounded values in float32 only
    written = leaf_dtype == dtype and (k is None or leaf_dtype == torch.float32)
    value = EMPTY[leaf_dtype].new_empty(shape if written else 0)
    value_at = value.data_ptr() if written else 0
    out_ptrs = hi_lo.data_ptr(), value_at, labels.data_ptr(), parts.data_ptr()
    if k is None:
        sizes: tuple[int, ...] = N, U
        kernel, arrays = max_product_cpu.best_outputs, 1
    else:
        leaves, leaf_dtype = leaves.map(lambda x: x.double()), torch.float64
        kernel, arrays, sizes = k_best_cpu.k_best, 2, (K, N, U)
    table, lanes, scratch_dtype = (
        PointerTable(*leaves),
        LANES[leaf_dtype],
        VECTORS[leaf_dtype].dtype,
    )

    def run_chunk(first: int, last: int) -> None:
        scratch = scratch_memory(batch.edges, arrays, scratch_dtype)
        rows = first, last, batch.edges_address, batch.rows_address
        kernel(*rows, table.address_and_size, scratch, sizes, out_ptrs)

    work = batch.work(lanes, MAX_STEPS) + TRACE_STEPS * B * K * U
    run_rows(run_chunk, B, work, group_size=lanes)
    if (
        recheck_in_float64
        and leaf_dtype == torch.float32
        and _exceeds_float32_precision(hi_lo)
    ):
        return best(leaves.map(lambda x: x.double()), batch, k, dtype)
    return value if written else round_hi_lo(hi_lo, dtype), hi_lo, labels, parts


def _exceeds_float32_precision(hi_lo: Tensor) -> bool:
    """Whether float32 rounding of a score may change the maximiser."""
    # fast path: most scores are below the threshold of COARSE
    if not numbers.value_flags(hi_lo) & numbers.COARSE:
        return False
    return bool(hi_lo[..., 0].abs().amax() > MAX_FLOAT32_SCORE)


def samples(leaves: Leaves, batch: CircuitBatch, seeds: Tensor) -> Tensor:
    """Labels ``[B, n, N]`` of independent samples, from seeds ``[B, n]``."""
    B, n = seeds.shape
    table = PointerTable(*leaves.map(lambda x: x.double()))
    labels = torch.empty((B, n, batch.topology.labels), dtype=torch.int64, device="cpu")
    drawn = labels.numpy(), seeds.contiguous().numpy()

    hi_lo, out_of_range = np.empty((B, 2)), np.empty(B)

    def run_chunk(first: int, last: int) -> None:
        scratch = scratch_memory(batch.edges, 3, FLOAT64)
        for rows in vector_groups(first, last, 8):
            row_args = *rows, batch.edges_address, batch.rows_address
            inside_outside_cpu.inside_only(
                *row_args, table.address_and_size, scratch, hi_lo, out_of_range
            )
            samples_cpu.sample_outputs(*row_args, drawn[1], scratch, drawn[0])

    work = batch.work(8, SUM_STEPS) + TRACE_STEPS * n * B * batch.topology.max_leaves
    run_rows(run_chunk, B, work, group_size=8)
    return labels


def distinct_samples(
    leaves: Leaves, batch: CircuitBatch, n: int, seeds: Tensor
) -> tuple[Tensor, Tensor]:
    """Labels ``[B, n, N]`` sampled without replacement, and validity ``[B, n]``.

    From seeds ``[B]``. Rows with fewer outputs are padded with -1 and False.
    """
    B = len(seeds)
    table = PointerTable(*leaves.map(lambda x: x.double()))
    labels = torch.empty((B, n, batch.topology.labels), dtype=torch.int64, device="cpu")
    exist = torch.empty((B, n), dtype=torch.bool, device="cpu")
    drawn = seeds.contiguous().numpy(), labels.numpy(), exist.numpy()
    hi_lo, out_of_range = np.empty((B, 2)), np.empty(B)

    def run_chunk(first: int, last: int) -> None:
        scratch = scratch_memory(batch.edges, 3, FLOAT64)
        for rows in vector_groups(first, last, 8):
            row_args = *rows, batch.edges_address, batch.rows_address
            inside_outside_cpu.inside_only(
                *row_args, table.address_and_size, scratch, hi_lo, out_of_range
            )
            distinct_cpu.sample_without_replacement(
                *row_args, drawn[0], scratch, *drawn[1:]
            )

    work = (
        batch.work(8, SUM_STEPS) + 3 * TRACE_STEPS * n * B * batch.topology.max_leaves
    )
    run_rows(run_chunk, B, work, group_size=8)
    return labels, exist


def max_marginals(leaves: Leaves, batch: CircuitBatch) -> list[Tensor]:
    """Highest scores of outputs that use the leaves, ``[B, ...]`` in float64."""
    float64_leaves, B = leaves.map(lambda x: x.detach().double()), batch.size
    results = _empty_outputs(
        float64_leaves, B, [True] * len((*leaves.per_row, *leaves.shared))
    )
    table = PointerTable(*float64_leaves, results)

    def run_chunk(first: int, last: int) -> None:
        scratch = scratch_memory(batch.edges, 2, FLOAT64)
        rows = first, last, batch.edges_address, batch.rows_address
        max_marginals_cpu.max_marginals(*rows, table.address_and_size, scratch)

    run_rows(run_chunk, B, batch.work(8, 3 * MAX_STEPS), group_size=8)
    return results


def log_partition_and_jvps(
    leaves: Leaves, batch: CircuitBatch, directions: Leaves, needs_grad: Sequence[bool]
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Log-partition ``[B]``, its jvp ``[B]``, and the jvp of marginals ``[B, ...]``.

    In float64. ``directions`` of shared leaves have the shapes of the leaves, or
    ``[B, ...]``.
    """
    B = len(batch.roots)
    float64_leaves = leaves.map(lambda x: x.double())
    tangents = _empty_outputs(float64_leaves, B, needs_grad)
    table, direction_table = (
        PointerTable(*float64_leaves, tangents),
        PointerTable(*directions.map(lambda x: x.double())),
    )
    hi_lo, means, out_of_range = np.empty((B, 2)), np.empty(B), np.empty(B)
    with_marginals = any(needs_grad)

    def run_chunk(first: int, last: int) -> None:
        scratch = scratch_memory(batch.edges, 5, FLOAT64)
        for rows in vector_groups(first, last, 8):
            row_args = (
                *rows,
                batch.edges_address,
                batch.rows_address,
                table.address_and_size,
            )
            inside_outside_cpu.inside_only(*row_args, scratch, hi_lo, out_of_range)
            tangent_cpu.inside_outside_jvp(
                *row_args,
                direction_table.address_and_size,
                scratch,
                with_marginals,
                means,
            )

    run_rows(run_chunk, B, batch.work(8, 3 * SUM_STEPS), group_size=8)
    return torch.from_numpy(hi_lo[:, 0]), torch.from_numpy(means), tangents


def vector_groups(first: int, last: int, lanes: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows that fit into the lanes of one vector."""
    for begin in range(first, last, lanes):
        yield begin, min(begin + lanes, last)


def score(leaves: Leaves, used: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Sums ``[B, K]`` of the leaves ``used`` ``[B, K, U]``, padded with -1.

    Also as double-doubles ``[B, K, 2]``.
    """
    table = PointerTable(*leaves)
    hi_lo = torch.empty((*used.shape[:2], 2), dtype=torch.float64, device="cpu")
    vector = VECTORS[leaves.per_row[0].dtype]
    scores_cpu.score_outputs(
        table.address_and_size, used.contiguous().numpy(), vector, hi_lo.numpy()
    )
    return round_hi_lo(hi_lo, dtype), hi_lo


def count_parts(
    weights: Tensor, used: Tensor, leaves: Leaves, needs_grad: Sequence[bool]
) -> list[Tensor | None]:
    """Sum the weights ``[B, K]`` over leaves ``used``; None unless ``needs_grad``."""
    leaf_arrays, n = (*leaves.per_row, *leaves.shared), len(leaves.per_row)
    dtypes = [weights.dtype] * n + [torch.float64] * (len(leaf_arrays) - n)
    # zeros_like would copy the strides of the leaves; the kernel writes contiguously
    out = [
        torch.zeros(x.shape, dtype=kind, device="cpu") if is_needed else None
        for x, kind, is_needed in zip(leaf_arrays, dtypes, needs_grad, strict=True)
    ]
    weights_and_leaves = arrays.to_numpy(weights), used.contiguous().numpy()
    table = PointerTable(*leaves, out)
    scores_cpu.add_weights_to_leaves(*weights_and_leaves, table.address_and_size)
    return [None if x is None else x.to(weights.dtype) for x in out]


class ResolvedOutputs(NamedTuple):
    """Outputs as labels ``[B, K, N]`` and as leaves ``[B, K, U]``, padded with -1.

    ``missing`` is the index ``b K + k`` of the first invalid output, or -1.
    ``augmented`` are the first potentials plus costs.
    """

    labels: Tensor
    used: Tensor
    missing: int
    augmented: Tensor | None = None


def resolve_outputs(
    labels: Tensor,
    reads: tuple[Tensor, Tensor],
    batch: CircuitBatch,
    leaves_are_labels: bool,
    main: Tensor | None = None,
    scale: float = 1.0,
) -> ResolvedOutputs:
    """Find the leaves that set labels ``[B, K, N]``.

    Parameters
    ----------
    labels, batch
        Labels of outputs, and the rows of the circuit.
    reads
        Leaves and labels that outputs of each row may use.
    leaves_are_labels
        Whether outputs use no further leaves. If so, their validity is checked.
    main
        First leaves of the circuit, ``[B, ...]``, to augment by ``scale`` times the
        Hamming cost of labels ``[B, 1, N]``.
    """
    labels, (read, real) = labels.contiguous(), reads
    leaf_of = batch.topology.leaf_of_label
    new, shape = EMPTY[torch.int64].new_empty, labels.shape
    valid_labels, used = new(shape), new(shape)
    like, augmented, W = EMPTY[torch.float64], None, 0
    if main is not None:
        main = main.contiguous()
        like, W = EMPTY[main.dtype], main.shape[1:].numel()
        augmented = like.new_empty(main.shape)
    arrays = labels, real, leaf_of, valid_labels, used, read, main, augmented
    out_args = tuple([0 if x is None else x.data_ptr() for x in arrays])
    sizes = shape[1], shape[2], leaf_of.shape[1], W, real.shape[0]
    rows = batch.edges_address, batch.rows_address
    leaves_are_labels = leaves_are_labels and valid_labels.numel() > 0
    vector = VECTORS[like.dtype]
    first = scores_cpu.leaves_from_labels(
        *rows, sizes, out_args, leaves_are_labels, vector, float(scale)
    )
    return ResolvedOutputs(valid_labels, used, first, augmented)


def first_invalid_output(batch: CircuitBatch, used: Tensor) -> int:
    """Index ``b K + k`` of the first leaves ``[B, K, U]`` of no output, or -1."""
    table = batch.edges_address, batch.rows_address, used.contiguous().numpy()
    result: int = scores_cpu.first_infeasible_output(*table)
    return result


def first_infeasible_row(leaves: Leaves, batch: CircuitBatch) -> int:
    """Index of the first row whose outputs are all forbidden, or -1."""
    leaf_table, vector = PointerTable(*leaves), VECTORS[leaves.per_row[0].dtype]
    roots, table = batch.rows.roots, leaf_table.address_and_size
    result: int = validation.first_infeasible_row(
        batch.edges_address, roots, table, vector
    )
    return result


# Each thread caches its scratch, since page faults of fresh memory cost more than the
# work. Larger scratch is freed after the call.
MAX_SCRATCH_BYTES = 2**28
_THREAD_SCRATCH = threading.local()


def scratch_memory(
    edges: CircuitArrays, arrays: int, dtype: np.dtype[Any]
) -> NDArray[Any]:
    """Scratch ``[arrays, size]``, aligned to 64 bytes, with a vector for each item."""
    batch = edges.num_items, arrays, dtype
    cache: dict[str, Any] = _THREAD_SCRATCH.__dict__
    scratch: NDArray[Any]
    if cache.get("batch") == batch:
        scratch = cache["scratch"]
        return scratch
    lanes = 64 // dtype.itemsize
    # leaves are transposed in square blocks of vectors, which may exceed the last item
    size = (edges.num_items + lanes) * lanes
    needed = arrays * size * dtype.itemsize + 64
    raw = cache.get("raw")
    if raw is None or raw.nbytes < needed:
        raw = np.zeros(needed, np.uint8)
    skip = -raw.ctypes.data % 64
    scratch = raw[skip : skip + needed - 64].view(dtype).reshape(arrays, size)
    if needed <= MAX_SCRATCH_BYTES:
        cache.update(batch=batch, scratch=scratch, raw=raw)
    return scratch
