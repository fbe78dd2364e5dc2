"""Answers to questions about a circuit, computed on the CUDA device of its leaves.

The functions are those of ``cpu``, with its arguments and answers. Log-partition,
marginals and maximum are Triton kernels, one launch each way. Triton is imported at the
first question. Each kernel is tried on a small circuit before its first use. In a
process where one gave a wrong answer ``cpu`` replaces them, on copies on the CPU,
as it does for second derivatives, and for rows whose scores are too large for
exponents.
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
    leaves: Leaves, query: CircuitBatch, wanted: Sequence[bool], dtype: torch.dtype
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Log-partition ``[B]``, the same as two numbers, and the marginals ``[B, ...]``.

    Waits for the device to read one flag: are scores too large for exponents? Such rows
    are done again on the CPU. While a CUDA graph is captured it is not read; the answer
    for such rows then means nothing.
    """
    near = leaves.per_row[0]
    if _kernels_pass(near, "sums"):
        return _log_partition_and_marginals(leaves, query, wanted, dtype)
    found: tuple[Tensor, Tensor, list[Tensor]] = run_on_cpu(
        near, cpu.log_partition_and_marginals, leaves, query, wanted, dtype
    )
    return found


def _kernels_pass(near: Tensor, question: str) -> bool:
    """Return whether kernels may answer; sums and maximum are tried together."""
    kind = near.dtype

    def trials() -> list[KernelCheck]:
        return [
            KernelCheck(f"circuits' sums, {kind}", 2, partial(_check_sums, kind)),
            KernelCheck(f"circuits' maximum, {kind}", 1, partial(_check_best, kind)),
        ]

    return kernels_pass(near, f"circuits' {question}, {kind}", trials)


def _log_partition_and_marginals(
    leaves: Leaves, query: CircuitBatch, wanted: Sequence[bool], dtype: torch.dtype
) -> tuple[Tensor, Tensor, list[Tensor]]:
    from smoothsp._kernels.circuits.cuda import inside_outside as kernels
    from smoothsp._kernels.circuits.cuda import scaled_floats

    own, shared = _concatenate(leaves)
    B, outwards = len(own), any(wanted)
    value = own.new_empty(B, dtype=torch.float64)
    far = own.new_empty(B, dtype=torch.bool)
    chances = own.new_empty((B, own.shape[1] + len(shared)) if outwards else (0, 0))
    rows = device_schedule(query.topology, own.device), query.lanes(own.device)
    kernels.inside_outside(own, shared, *rows, outwards, value, far, chances)
    if not is_capturing(own) and bool(far.any()):
        most = scaled_floats.MAX_EXPONENT.value
        again = cpu.rows_out_of_range(leaves, query, far.cpu().numpy(), most)
        if len(again):
            _recompute_rows(leaves, query, again, value, chances)
    none = own.new_empty(0)
    found = cpu.split_leaves(chances, leaves) if outwards else [none] * len(wanted)
    marginals = [x if some else none for x, some in zip(found, wanted, strict=True)]
    return value.to(dtype), as_hi_lo(value), marginals


def _recompute_rows(
    leaves: Leaves, query: CircuitBatch, rows: Tensor, value: Tensor, chances: Tensor
) -> None:
    """Fill rows, given on the CPU, of values and marginals."""
    here = rows.to(value.device)
    given = cpu.select_rows(leaves, here).map(lambda x: x.double()), query.select(rows)
    wanted = [chances.numel() > 0] * len(leaves.arrays)
    again, _, parts = run_on_cpu(
        value, cpu.log_partition_and_marginals, *given, wanted, value.dtype
    )
    value[here] = again
    if chances.numel():
        found = torch.cat([x.flatten(1) for x in parts], 1)
        chances[here] = found.to(chances.dtype)


def best(
    leaves: Leaves,
    query: CircuitBatch,
    k: None,
    dtype: torch.dtype,
    precise: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Values ``[B]``, labels ``[B, N]`` and parts ``[B, U]`` of the best.

    The values also, second, as two numbers; ``precise``: found in float64.
    """
    if precise:
        leaves = leaves.map(lambda x: x.double())
    near = leaves.per_row[0]
    if _kernels_pass(near, "maximum"):
        return _best(leaves, query, dtype)
    found: tuple[Tensor, Tensor, Tensor, Tensor] = run_on_cpu(
        near, cpu.best, leaves, query, k, dtype
    )
    return found


def _best(
    leaves: Leaves, query: CircuitBatch, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    from smoothsp._kernels.circuits.cuda import max_product as kernels

    own, shared = _concatenate(leaves)
    B, topology = len(own), query.topology
    value = own.new_empty(B, dtype=torch.float64)
    labels = own.new_full((B, topology.labels), -1, dtype=torch.int64)
    parts = own.new_full((B, topology.max_leaves), -1, dtype=torch.int32)
    rows = device_schedule(topology, own.device), query.lanes(own.device)
    kernels.best_outputs(own, shared, *rows, value, labels, parts)
    return value.to(dtype), as_hi_lo(value), labels, parts


def jvp(
    leaves: Leaves, query: CircuitBatch, along: Leaves, wanted: Sequence[bool]
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Log-partition, mean of ``along`` ``[B]``, and how marginals ``[B, ...]`` move.

    In float64, computed on the CPU; ``along`` are directions, those of shared leaves as
    they are or ``[B, ...]``.
    """
    found: tuple[Tensor, Tensor, list[Tensor]] = run_on_cpu(
        leaves.per_row[0], cpu.jvp, leaves, query, along, wanted
    )
    return found


def score(leaves: Leaves, used: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Sums ``[B, K]`` of the leaves ``used`` ``[B, K, U]``, -1 none; as two numbers."""
    flat = used.flatten(1).long()
    picked = leaves.concatenate().detach().gather(1, flat.clamp(min=0))
    picked = picked.masked_fill(flat < 0, 0).reshape(used.shape)
    value = picked.sum(2, dtype=torch.float64)
    return value.to(dtype), as_hi_lo(value)


def _concatenate(leaves: Leaves) -> tuple[Tensor, Tensor]:
    """Scores ``[B, P]`` of the rows, and ``[Q]`` of all rows, contiguous."""
    own = [x.detach().flatten(1) for x in leaves.per_row]
    common = [x.detach().flatten() for x in leaves.shared]
    shared = torch.cat(common) if common else own[0].new_empty(0)
    return (own[0] if len(own) == 1 else torch.cat(own, 1)).contiguous(), shared


def _chain_circuit(T: int, S: int) -> tuple[Circuit, Items]:
    """Chains of all lengths up to T, of S states."""
    circuit = Circuit()
    score, moves = circuit.leaves(T, S), circuit.shared(S, S)
    reached, into = circuit.chart(T, S), circuit.chart(T, S)
    roots = circuit.chart(T)
    reached[0] = score[0]
    for t in range(T):
        if t:
            circuit.define(into[t], (reached[t - 1][None], moves.T))
            circuit.multiply(reached[t], into[t], score[t])
        circuit.define(roots[t], (reached[t],))
    circuit.label(score, np.arange(T)[:, None], np.arange(S))
    return circuit, roots


def _example_inputs(dtype: torch.dtype) -> tuple[Leaves, CircuitBatch]:
    """Return rows for two programs, on the CPU; one shared leaf is forbidden."""
    T, S, B = 3, 2, 9
    found = topology(_chain_circuit, T, S)
    generator = torch.Generator("cpu").manual_seed(0)
    own = torch.randn(B, T, S, generator=generator, dtype=dtype, device="cpu")
    moves = torch.randn(S, S, generator=generator, dtype=dtype, device="cpu")
    moves[0, 1] = -torch.inf
    rows = torch.arange(B, device="cpu") % T
    return Leaves((own,), (moves,)), CircuitBatch(found, found.roots[rows])


def _check_sums(dtype: torch.dtype, device: torch.device) -> None:
    """Raise if sums of a small circuit are not those of the CPU."""
    leaves, query = _example_inputs(dtype)
    given = query, [True, True], torch.float64
    value, _, marginals = cpu.log_partition_and_marginals(
        leaves.map(lambda x: x.double()), *given
    )
    found = _log_partition_and_marginals(leaves.map(lambda x: x.to(device)), *given)
    assert_matches_cpu(
        (found[0], *found[2]), (value, *(x.to(dtype) for x in marginals)), dtype
    )


def _check_best(dtype: torch.dtype, device: torch.device) -> None:
    """Raise if the best outputs of a small circuit are not those of the CPU."""
    leaves, query = _example_inputs(dtype)
    value, _, labels, parts = cpu.best(leaves, query, None, dtype)
    found = _best(leaves.map(lambda x: x.to(device)), query, dtype)
    used, expected = (x.sort().values for x in (found[3], parts))
    assert_matches_cpu((found[0], found[2], used), (value, labels, expected), dtype)
