"""The compiled loops, called: contiguous CPU tensors in and out, and no gradients.

Around a small batch each function of PyTorch or numpy costs several times what it takes
in a loop of its own, since its code is cold: so there are few, and the same ones.
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
from smoothsp._kernels.circuits.cpu.scaled_floats import max_exponent
from smoothsp._kernels.circuits.layout.circuit_arrays import CircuitArrays
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp._kernels.vectors.double_double import LN2
from smoothsp._kernels.vectors.whole_arrays import add_rows, scale_rows
from smoothsp.oracles._circuits.circuit_batch import CircuitBatch, Leaves
from smoothsp.oracles._inference import score_values as numbers
from smoothsp.oracles._inference import to_numpy as arrays
from smoothsp.oracles._inference.to_numpy import PointerTable

# Steps of the innermost loop that a product of a vector of rows costs, in sums and in
# maxima; and what a leaf of an output costs to find.
SUM_STEPS, MAX_STEPS, TRACE_STEPS = 12, 2, 30
# Lanes of a vector.
LANES = {torch.float32: 16, torch.float64: 8}
VECTORS = {
    dtype: torch.zeros(n, dtype=dtype, device="cpu").numpy()
    for dtype, n in LANES.items()
}

# What new tensors are made like: cheaper than torch.empty with a dtype and a device.
EMPTY = {
    dtype: torch.empty(0, dtype=dtype, device="cpu")
    for dtype in (torch.float32, torch.float64, torch.int64, torch.int32)
}
FLOAT64 = np.dtype(np.float64)
# Scores of outputs whose roundings in float32 are as large as differences may matter.
COARSE = 2.0**12


def log_partition_and_marginals(
    leaves: Leaves, query: CircuitBatch, wanted: Sequence[bool], dtype: torch.dtype
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Log-partition ``[B]``, and the marginals ``[B, ...]`` that are wanted.

    The log-partition as one number of a dtype, and as two of float64, ``[B, 2]``. In
    float32 as far as its exponents reach, else in float64.
    """
    own, B = leaves.per_row[0].dtype, query.size
    marginals = _outputs(leaves, B, wanted)
    given, number = PointerTable(*leaves, marginals), VECTORS[own].dtype
    new = EMPTY[torch.float64].new_empty
    exact, far = new(B, 2), new(B)
    value = EMPTY[own].new_empty(B if own == dtype else 0)
    places = exact.data_ptr(), far.data_ptr(), value.data_ptr() if own == dtype else 0
    outwards = any(wanted)
    many: list[int] = []

    def piece(first: int, last: int) -> None:
        scratch = scratch_memory(query.edges, 3, number)
        rows = first, last, query.edges_address, query.rows_address
        many.append(
            inside_outside_cpu.inside_outside(
                *rows, given.at, scratch, outwards, places
            )
        )

    lanes = LANES[own]
    run_rows(piece, B, query.work(lanes, SUM_STEPS), group_size=lanes)
    if own == torch.float32 and any(many):
        rows = rows_out_of_range(leaves, query, far.numpy(), max_exponent(lanes))
        if len(rows):
            wide = select_rows(leaves, rows).map(lambda x: x.double())
            again = log_partition_and_marginals(
                wide, query.select(rows), wanted, torch.float64
            )
            exact[rows] = again[1]
            if own == dtype:
                value[rows] = again[0].to(dtype)
            for x, y in zip(marginals, again[2], strict=True):
                if x.numel():
                    x[rows] = y.to(x.dtype)
    return value if own == dtype else round_hi_lo(exact, dtype), exact, marginals


def round_hi_lo(exact: Tensor, dtype: torch.dtype) -> Tensor:
    """Two numbers each, ``[..., 2]``, as one of a dtype, in memory of its own."""
    return exact[..., 0].to(dtype, copy=True)


def scale_in_place(weights: Tensor, parts: Tensor) -> Tensor:
    """The parts ``[B, ...]``, contiguous, each row now times its weight."""
    if weights.dtype != parts.dtype:
        weights = weights.to(parts.dtype)
    B, vector = len(parts), VECTORS[parts.dtype]
    given = weights.data_ptr(), weights.stride(0), parts.data_ptr(), vector
    size = parts.numel()
    run_rows(scale_rows, B, size // 2, size // max(B, 1), *given)
    return parts


def add_weighted(weights: Tensor, parts: Tensor) -> Tensor:
    """The parts ``[B, ...]``, contiguous, each row times its weight, added up."""
    if weights.dtype != parts.dtype:
        weights = weights.to(parts.dtype)
    B, *shape = parts.shape
    log_partition_and_marginals = EMPTY[parts.dtype].new_empty(shape)
    given = (
        weights.data_ptr(),
        weights.stride(0),
        parts.data_ptr(),
        log_partition_and_marginals.data_ptr(),
    )
    add_rows(B, log_partition_and_marginals.numel(), *given, VECTORS[parts.dtype])
    return log_partition_and_marginals


def _outputs(leaves: Leaves, B: int, wanted: Sequence[bool]) -> list[Tensor]:
    """Arrays ``[B, ...]`` for what is wanted of the leaves, and empty ones."""
    new, n = EMPTY[leaves.per_row[0].dtype].new_empty, len(leaves.per_row)
    every = enumerate((*leaves.per_row, *leaves.shared))
    return [
        (new(x.shape) if i < n else new(B, *x.shape)) if wanted[i] else new(0)
        for i, x in every
    ]


def select_rows(leaves: Leaves, rows: Tensor) -> Leaves:
    """The leaves of some rows."""
    return Leaves(tuple(x[rows] for x in leaves.per_row), leaves.shared)


def rows_out_of_range(
    leaves: Leaves, query: CircuitBatch, far: Any, most: float
) -> Tensor:
    """Rows of ``far[B]`` that read entries above the exponents ``most``."""
    rows = torch.from_numpy(np.flatnonzero(far))
    read = rows.new_empty((len(rows), query.topology.leaves), dtype=torch.bool)
    validation.reachable_leaves(
        query.edges_address, query.roots[rows].numpy(), read.numpy()
    )
    scores = select_rows(leaves, rows).concatenate().detach().cpu()
    size = torch.where(scores.abs() < torch.inf, scores, 0).masked_fill(~read, 0)
    reach = size.abs().amax(1).double() * query.topology.max_leaves / LN2
    return rows[reach > most]


def split_leaves(numbers: Tensor, leaves: Leaves) -> list[Tensor]:
    """``[B, P + Q]`` numbers of leaves as arrays ``[B, ...]``."""
    shapes = [x.shape[1:] for x in leaves.per_row] + [x.shape for x in leaves.shared]
    parts = torch.split(numbers, [shape.numel() for shape in shapes], 1)
    B = len(numbers)
    return [x.reshape(B, *shape) for x, shape in zip(parts, shapes, strict=True)]


def best(
    leaves: Leaves,
    query: CircuitBatch,
    k: int | None,
    dtype: torch.dtype,
    precise: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Values ``[B, K]``, labels ``[B, K, N]`` and parts ``[B, K, U]`` of the best.

    Without k ``[B]``, ``[B, N]`` and ``[B, U]``. The k best are found in float64: so
    they are sorted, rounded or not. The values as numbers of a dtype and, second, as
    two of float64, ``[B, K, 2]``.
    ``precise``: in float64, too, where float32 might take another output for the best,
    by more than a difference of scores may be wrong.
    """
    B, K, own = query.size, k or 1, leaves.per_row[0].dtype
    N, U = query.topology.labels, query.topology.max_leaves
    shape = (B,) if k is None else (B, K)
    exact = EMPTY[torch.float64].new_empty(*shape, 2)
    labels = EMPTY[torch.int64].new_empty(*shape, N)
    parts = EMPTY[torch.int32].new_empty(*shape, U)
    # of k the kernel writes values in float32 alone
    written = own == dtype and (k is None or own == torch.float32)
    value = EMPTY[own].new_empty(shape if written else 0)
    value_at = value.data_ptr() if written else 0
    places = exact.data_ptr(), value_at, labels.data_ptr(), parts.data_ptr()
    if k is None:
        sizes: tuple[int, ...] = N, U
        kernel, arrays = max_product_cpu.best_outputs, 1
    else:
        leaves, own = leaves.map(lambda x: x.double()), torch.float64
        kernel, arrays, sizes = k_best_cpu.k_best, 2, (K, N, U)
    given, lanes, number = PointerTable(*leaves), LANES[own], VECTORS[own].dtype

    def piece(first: int, last: int) -> None:
        scratch = scratch_memory(query.edges, arrays, number)
        rows = first, last, query.edges_address, query.rows_address
        kernel(*rows, given.at, scratch, sizes, places)

    work = query.work(lanes, MAX_STEPS) + TRACE_STEPS * B * K * U
    run_rows(piece, B, work, group_size=lanes)
    if precise and own == torch.float32 and _is_coarse(exact):
        return best(leaves.map(lambda x: x.double()), query, k, dtype)
    return value if written else round_hi_lo(exact, dtype), exact, labels, parts


def _is_coarse(exact: Tensor) -> bool:
    """Whether roundings in float32 of some score may matter."""
    # nearly all are smaller than what ``look`` calls coarse
    if not numbers.value_flags(exact) & numbers.COARSE:
        return False
    return bool(exact[..., 0].abs().amax() > COARSE)


def samples(leaves: Leaves, query: CircuitBatch, seeds: Tensor) -> Tensor:
    """Labels ``[B, n, N]`` of independent draws, from seeds ``[B, n]``."""
    B, n = seeds.shape
    given = PointerTable(*leaves.map(lambda x: x.double()))
    labels = torch.empty((B, n, query.topology.labels), dtype=torch.int64, device="cpu")
    drawn = labels.numpy(), seeds.contiguous().numpy()

    exact, far = np.empty((B, 2)), np.empty(B)

    def piece(first: int, last: int) -> None:
        scratch = scratch_memory(query.edges, 3, FLOAT64)
        for rows in vector_groups(first, last, 8):
            what = *rows, query.edges_address, query.rows_address
            inside_outside_cpu.inside_only(*what, given.at, scratch, exact, far)
            samples_cpu.sample_outputs(*what, drawn[1], scratch, drawn[0])

    work = query.work(8, SUM_STEPS) + TRACE_STEPS * n * B * query.topology.max_leaves
    run_rows(piece, B, work, group_size=8)
    return labels


def distinct_samples(
    leaves: Leaves, query: CircuitBatch, n: int, seeds: Tensor
) -> tuple[Tensor, Tensor]:
    """Labels ``[B, n, N]`` of draws without replacement, from seeds ``[B]``.

    And which of them there are: -1 and False where a row has fewer outputs.
    """
    B = len(seeds)
    given = PointerTable(*leaves.map(lambda x: x.double()))
    labels = torch.empty((B, n, query.topology.labels), dtype=torch.int64, device="cpu")
    exist = torch.empty((B, n), dtype=torch.bool, device="cpu")
    drawn = seeds.contiguous().numpy(), labels.numpy(), exist.numpy()
    exact, far = np.empty((B, 2)), np.empty(B)

    def piece(first: int, last: int) -> None:
        scratch = scratch_memory(query.edges, 3, FLOAT64)
        for rows in vector_groups(first, last, 8):
            what = *rows, query.edges_address, query.rows_address
            inside_outside_cpu.inside_only(*what, given.at, scratch, exact, far)
            distinct_cpu.sample_without_replacement(
                *what, drawn[0], scratch, *drawn[1:]
            )

    work = (
        query.work(8, SUM_STEPS) + 3 * TRACE_STEPS * n * B * query.topology.max_leaves
    )
    run_rows(piece, B, work, group_size=8)
    return labels, exist


def max_marginals(leaves: Leaves, query: CircuitBatch) -> list[Tensor]:
    """Highest scores of outputs that use the leaves, ``[B, ...]`` in float64."""
    wide, B = leaves.map(lambda x: x.detach().double()), query.size
    found = _outputs(wide, B, [True] * len((*leaves.per_row, *leaves.shared)))
    given = PointerTable(*wide, found)

    def piece(first: int, last: int) -> None:
        scratch = scratch_memory(query.edges, 2, FLOAT64)
        rows = first, last, query.edges_address, query.rows_address
        max_marginals_cpu.max_marginals(*rows, given.at, scratch)

    run_rows(piece, B, query.work(8, 3 * MAX_STEPS), group_size=8)
    return found


def jvp(
    leaves: Leaves, query: CircuitBatch, along: Leaves, wanted: Sequence[bool]
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Log-partition, mean of ``along`` ``[B]``, and how marginals ``[B, ...]`` move.

    In float64; ``along`` are directions, those of shared leaves as they are or
    ``[B, ...]``.
    """
    B = len(query.roots)
    wide = leaves.map(lambda x: x.double())
    moved = _outputs(wide, B, wanted)
    given, ways = (
        PointerTable(*wide, moved),
        PointerTable(*along.map(lambda x: x.double())),
    )
    exact, means, far = np.empty((B, 2)), np.empty(B), np.empty(B)
    outwards = any(wanted)

    def piece(first: int, last: int) -> None:
        scratch = scratch_memory(query.edges, 5, FLOAT64)
        for rows in vector_groups(first, last, 8):
            what = *rows, query.edges_address, query.rows_address, given.at
            inside_outside_cpu.inside_only(*what, scratch, exact, far)
            tangent_cpu.inside_outside_jvp(*what, ways.at, scratch, outwards, means)

    run_rows(piece, B, query.work(8, 3 * SUM_STEPS), group_size=8)
    return torch.from_numpy(exact[:, 0]), torch.from_numpy(means), moved


def vector_groups(first: int, last: int, lanes: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows that fit into the lanes of one vector."""
    for begin in range(first, last, lanes):
        yield begin, min(begin + lanes, last)


def score(leaves: Leaves, used: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Sums ``[B, K]`` of the leaves ``used`` ``[B, K, U]``, -1 none.

    As numbers of a dtype, and as two of float64, ``[B, K, 2]``.
    """
    given = PointerTable(*leaves)
    exact = torch.empty((*used.shape[:2], 2), dtype=torch.float64, device="cpu")
    vector = VECTORS[leaves.per_row[0].dtype]
    scores_cpu.score_outputs(given.at, used.contiguous().numpy(), vector, exact.numpy())
    return round_hi_lo(exact, dtype), exact


def count_parts(
    weights: Tensor, used: Tensor, leaves: Leaves, wanted: Sequence[bool]
) -> list[Tensor | None]:
    """Weights ``[B, K]`` added up over the leaves ``used``, where that is wanted."""
    every, n = (*leaves.per_row, *leaves.shared), len(leaves.per_row)
    kinds = [weights.dtype] * n + [torch.float64] * (len(every) - n)
    # not like the leaves, which may have any strides
    out = [
        torch.zeros(x.shape, dtype=kind, device="cpu") if some else None
        for x, kind, some in zip(every, kinds, wanted, strict=True)
    ]
    given = arrays.to_numpy(weights), used.contiguous().numpy()
    table = PointerTable(*leaves, out)
    scores_cpu.add_weights_to_leaves(*given, table.at)
    return [None if x is None else x.to(weights.dtype) for x in out]


class ResolvedOutputs(NamedTuple):
    """Outputs as labels ``[B, K, N]``, -1 where a row has none, and as leaves.

    Then ``b K + k`` of the first that does not exist, -1 if all do, and the first
    potentials with costs.
    """

    labels: Tensor
    used: Tensor
    missing: int
    augmented: Tensor | None = None


def resolve_outputs(
    labels: Tensor,
    reads: tuple[Tensor, Tensor],
    query: CircuitBatch,
    whole: bool,
    main: Tensor | None = None,
    scale: float = 1.0,
) -> ResolvedOutputs:
    """Look for the leaves that set such labels ``[B, K, N]``.

    Parameters
    ----------
    reads
        Leaves and labels that rows read.
    whole
        Whether these leaves are all that an output uses: then it is seen whether
        outputs exist.
    main
        Leaves ``[B, ...]``, the first of the circuit, to which the Hamming cost of
        labels ``[B, 1, N]`` is added, times the scale.
    """
    labels, (read, real) = labels.contiguous(), reads
    leaf_of = query.topology.leaf_of_label
    new, shape = EMPTY[torch.int64].new_empty, labels.shape
    kept, used = new(shape), new(shape)
    like, augmented, W = EMPTY[torch.float64], None, 0
    if main is not None:
        main = main.contiguous()
        like, W = EMPTY[main.dtype], main.shape[1:].numel()
        augmented = like.new_empty(main.shape)
    arrays = labels, real, leaf_of, kept, used, read, main, augmented
    places = tuple([0 if x is None else x.data_ptr() for x in arrays])
    sizes = shape[1], shape[2], leaf_of.shape[1], W, real.shape[0]
    rows = query.edges_address, query.rows_address
    whole = whole and kept.numel() > 0
    vector = VECTORS[like.dtype]
    first = scores_cpu.leaves_from_labels(
        *rows, sizes, places, whole, vector, float(scale)
    )
    return ResolvedOutputs(kept, used, first, augmented)


def first_invalid_output(query: CircuitBatch, used: Tensor) -> int:
    """``b K + k`` of the first leaves ``[B, K, U]`` that make no output, or -1."""
    given = query.edges_address, query.rows_address, used.contiguous().numpy()
    found: int = scores_cpu.first_infeasible_output(*given)
    return found


def first_infeasible_row(leaves: Leaves, query: CircuitBatch) -> int:
    """The first row whose outputs are all forbidden; -1 if there is none."""
    given, vector = PointerTable(*leaves), VECTORS[leaves.per_row[0].dtype]
    roots, table = query.rows.roots, given.at
    found: int = validation.first_infeasible_row(
        query.edges_address, roots, table, vector
    )
    return found


# Each thread keeps its scratch: fresh memory costs more than the work. What is larger
# than this is given back after the call.
MOST_BYTES = 2**28
_kept = threading.local()


def scratch_memory(
    edges: CircuitArrays, arrays: int, dtype: np.dtype[Any]
) -> NDArray[Any]:
    """``[arrays, size]``, aligned to 64 bytes: a vector an item, and some more."""
    query = edges.num_items, arrays, dtype
    kept: dict[str, Any] = _kept.__dict__
    found: NDArray[Any]
    if kept.get("query") == query:
        found = kept["found"]
        return found
    lanes = 64 // dtype.itemsize
    # rows come and go in squares of vectors
    size = (edges.num_items + lanes) * lanes
    needed = arrays * size * dtype.itemsize + 64
    raw = kept.get("raw")
    if raw is None or raw.nbytes < needed:
        raw = np.zeros(needed, np.uint8)
    skip = -raw.ctypes.data % 64
    found = raw[skip : skip + needed - 64].view(dtype).reshape(arrays, size)
    if needed <= MOST_BYTES:
        kept.update(batch=query, found=found, raw=raw)
    return found
