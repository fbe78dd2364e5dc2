"""Inference in circuits on the CUDA device of the leaves.

The functions have the arguments and results of those of ``cpu``. Log-partition,
marginals and maximum are Triton kernels, one launch per direction. Triton is imported
by the first call. Each kernel is checked on a small circuit before its first use. After
a failed check ``cpu`` replaces them, on CPU copies. It also computes second
derivatives, and rows whose scores exceed the exponent range.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from smoothsp.oracles._circuits import cpu
from smoothsp.oracles._circuits.circuit import Circuit, Items
from smoothsp.oracles._circuits.circuit_batch import CircuitBatch, Leaves
from smoothsp.oracles._circuits.schedule import device_schedule
from smoothsp.oracles._circuits.topology import topology
from smoothsp.oracles._inference.double_double import as_hi_lo
from smoothsp.oracles._inference.kernel_checks import (
    KernelCheck,
    assert_matches_cpu,
    is_capturing,
    kernels_pass,
    run_on_cpu,
)


def log_partition_and_marginals(
    leaves: Leaves, batch: CircuitBatch, needs_grad: Sequence[bool], dtype: torch.dtype
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Log-partition ``[B]``, its double-double form, and the marginals ``[B, ...]``.

    Synchronises to read one flag: whether scores exceed the exponent range. Such rows
    are computed again on the CPU. Their results are undefined while a CUDA graph is
    captured, when the flag is not read.
    """
    leaf = leaves.per_row[0]
    if _kernels_pass(leaf, "sums"):
        return _log_partition_and_marginals(leaves, batch, needs_grad, dtype)
    result: tuple[Tensor, Tensor, list[Tensor]] = run_on_cpu(
        leaf, cpu.log_partition_and_marginals, leaves, batch, needs_grad, dtype
    )
    return result


def _kernels_pass(leaf: Tensor, name: str) -> bool:
    """Return whether kernels are usable; sums and maximum are checked together."""
    kind = leaf.dtype

    def list_checks() -> list[KernelCheck]:
        return [
            KernelCheck(f"circuits' sums, {kind}", 2, partial(_check_sums, kind)),
            KernelCheck(f"circuits' maximum, {kind}", 1, partial(_check_best, kind)),
        ]

    return kernels_pass(leaf, f"circuits' {name}, {kind}", list_checks)


def _log_partition_and_marginals(
    leaves: Leaves, batch: CircuitBatch, needs_grad: Sequence[bool], dtype: torch.dtype
) -> tuple[Tensor, Tensor, list[Tensor]]:
    from smoothsp._kernels.circuits.cuda import inside_outside as kernels
    from smoothsp._kernels.circuits.cuda import scaled_floats

    row_leaves, shared = _concatenate(leaves)
    B, with_marginals = len(row_leaves), any(needs_grad)
    value = row_leaves.new_empty(B, dtype=torch.float64)
    out_of_range = row_leaves.new_empty(B, dtype=torch.bool)
    flat_marginals = row_leaves.new_empty(
        (B, row_leaves.shape[1] + len(shared)) if with_marginals else (0, 0)
    )
    rows = (
        device_schedule(batch.topology, row_leaves.device),
        batch.lanes(row_leaves.device),
    )
    kernels.inside_outside(
        row_leaves, shared, *rows, with_marginals, value, out_of_range, flat_marginals
    )
    if not is_capturing(row_leaves) and bool(out_of_range.any()):
        max_exponent = scaled_floats.MAX_EXPONENT.value
        bad_rows = cpu.rows_out_of_range(
            leaves, batch, out_of_range.cpu().numpy(), max_exponent
        )
        if len(bad_rows):
            _recompute_rows(leaves, batch, bad_rows, value, flat_marginals)
    none = row_leaves.new_empty(0)
    split = (
        cpu.split_leaves(flat_marginals, leaves)
        if with_marginals
        else [none] * len(needs_grad)
    )
    marginals = [
        x if is_needed else none for x, is_needed in zip(split, needs_grad, strict=True)
    ]
    return value.to(dtype), as_hi_lo(value), marginals


def _recompute_rows(
    leaves: Leaves, batch: CircuitBatch, rows: Tensor, value: Tensor, marginals: Tensor
) -> None:
    """Recompute rows of values and marginals on the CPU in float64."""
    device_rows = rows.to(value.device)
    args = (
        cpu.select_rows(leaves, device_rows).map(lambda x: x.double()),
        batch.select(rows),
    )
    needs_grad = [marginals.numel() > 0] * len(leaves.arrays)
    values, _, parts = run_on_cpu(
        value, cpu.log_partition_and_marginals, *args, needs_grad, value.dtype
    )
    value[device_rows] = values
    if marginals.numel():
        flat = torch.cat([x.flatten(1) for x in parts], 1)
        marginals[device_rows] = flat.to(marginals.dtype)


def best(
    leaves: Leaves,
    batch: CircuitBatch,
    k: None,
    dtype: torch.dtype,
    recheck_in_float64: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Maxima ``[B]``, as double-doubles, labels ``[B, N]`` and parts ``[B, U]``.

    With ``recheck_in_float64`` the maximum is computed in float64.
    """
    if recheck_in_float64:
        leaves = leaves.map(lambda x: x.double())
    leaf = leaves.per_row[0]
    if _kernels_pass(leaf, "maximum"):
        return _best(leaves, batch, dtype)
    result: tuple[Tensor, Tensor, Tensor, Tensor] = run_on_cpu(
        leaf, cpu.best, leaves, batch, k, dtype
    )
    return result


def _best(
    leaves: Leaves, batch: CircuitBatch, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    from smoothsp._kernels.circuits.cuda import max_product as kernels

    row_leaves, shared = _concatenate(leaves)
    B, topology = len(row_leaves), batch.topology
    value = row_leaves.new_empty(B, dtype=torch.float64)
    labels = row_leaves.new_full((B, topology.labels), -1, dtype=torch.int64)
    parts = row_leaves.new_full((B, topology.max_leaves), -1, dtype=torch.int32)
    rows = device_schedule(topology, row_leaves.device), batch.lanes(row_leaves.device)
    kernels.best_outputs(row_leaves, shared, *rows, value, labels, parts)
    return value.to(dtype), as_hi_lo(value), labels, parts


def log_partition_and_jvps(
    leaves: Leaves, batch: CircuitBatch, directions: Leaves, needs_grad: Sequence[bool]
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Log-partition ``[B]``, its jvp ``[B]``, and the jvp of marginals ``[B, ...]``.

    In float64, computed on the CPU. ``directions`` of shared leaves have the shapes of
    the leaves, or ``[B, ...]``.
    """
    result: tuple[Tensor, Tensor, list[Tensor]] = run_on_cpu(
        leaves.per_row[0],
        cpu.log_partition_and_jvps,
        leaves,
        batch,
        directions,
        needs_grad,
    )
    return result


def score(leaves: Leaves, used: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Sums ``[B, K]`` of leaves ``used`` ``[B, K, U]``, also as double-doubles."""
    flat = used.flatten(1).long()
    picked = leaves.concatenate().detach().gather(1, flat.clamp(min=0))
    picked = picked.masked_fill(flat < 0, 0).reshape(used.shape)
    value = picked.sum(2, dtype=torch.float64)
    return value.to(dtype), as_hi_lo(value)


def _concatenate(leaves: Leaves) -> tuple[Tensor, Tensor]:
    """Leaf scores ``[B, P]`` of rows and shared ones ``[Q]``, contiguous."""
    row_leaves = [x.detach().flatten(1) for x in leaves.per_row]
    common = [x.detach().flatten() for x in leaves.shared]
    shared = torch.cat(common) if common else row_leaves[0].new_empty(0)
    return (
        row_leaves[0] if len(row_leaves) == 1 else torch.cat(row_leaves, 1)
    ).contiguous(), shared


def _chain_circuit(T: int, S: int) -> tuple[Circuit, Items]:
    """Build chains of all lengths up to T, with S states."""
    circuit = Circuit()
    score, transitions = circuit.leaves(T, S), circuit.shared(S, S)
    reached, into = circuit.chart(T, S), circuit.chart(T, S)
    roots = circuit.chart(T)
    reached[0] = score[0]
    for t in range(T):
        if t:
            circuit.define(into[t], (reached[t - 1][None], transitions.T))
            circuit.multiply(reached[t], into[t], score[t])
        circuit.define(roots[t], (reached[t],))
    circuit.label(score, np.arange(T)[:, None], np.arange(S))
    return circuit, roots


def _example_inputs(dtype: torch.dtype) -> tuple[Leaves, CircuitBatch]:
    """Return CPU rows that fill two blocks of a kernel, with one forbidden leaf."""
    T, S, B = 3, 2, 9
    chain_topology = topology(_chain_circuit, T, S)
    generator = torch.Generator("cpu").manual_seed(0)
    row_leaves = torch.randn(B, T, S, generator=generator, dtype=dtype, device="cpu")
    transitions = torch.randn(S, S, generator=generator, dtype=dtype, device="cpu")
    transitions[0, 1] = -torch.inf
    rows = torch.arange(B, device="cpu") % T
    return Leaves((row_leaves,), (transitions,)), CircuitBatch(
        chain_topology, chain_topology.roots[rows]
    )


def _check_sums(dtype: torch.dtype, device: torch.device) -> None:
    """Raise if sums of a small circuit differ from those of the CPU."""
    leaves, batch = _example_inputs(dtype)
    args = batch, [True, True], torch.float64
    value, _, marginals = cpu.log_partition_and_marginals(
        leaves.map(lambda x: x.double()), *args
    )
    actual = _log_partition_and_marginals(leaves.map(lambda x: x.to(device)), *args)
    assert_matches_cpu(
        (actual[0], *actual[2]), (value, *(x.to(dtype) for x in marginals)), dtype
    )


def _check_best(dtype: torch.dtype, device: torch.device) -> None:
    """Raise if the best outputs of a small circuit differ from those of the CPU."""
    leaves, batch = _example_inputs(dtype)
    value, _, labels, parts = cpu.best(leaves, batch, None, dtype)
    actual = _best(leaves.map(lambda x: x.to(device)), batch, dtype)
    # the order of an output's parts is not specified
    used, expected = (x.sort().values for x in (actual[3], parts))
    assert_matches_cpu((actual[0], actual[2], used), (value, labels, expected), dtype)
