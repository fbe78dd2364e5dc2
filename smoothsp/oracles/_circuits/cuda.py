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
from smoothsp.oracles._circuits.circuit_batch import Leaves, Query
from smoothsp.oracles._circuits.schedule import placed
from smoothsp.oracles._circuits.topology import topology
from smoothsp.oracles._inference.double_double import as_two
from smoothsp.oracles._inference.kernel_checks import (
    Trial,
    hold,
    is_capturing,
    on_cpu,
    sound,
)


def sums(
    leaves: Leaves, query: Query, wanted: Sequence[bool], dtype: torch.dtype
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Log-partition ``[B]``, the same as two numbers, and the marginals ``[B, ...]``.

    Waits for the device to read one flag: are scores too large for exponents? Such rows
    are done again on the CPU. While a CUDA graph is captured it is not read; the answer
    for such rows then means nothing.
    """
    near = leaves.own[0]
    if _sound(near, "sums"):
        return _sums(leaves, query, wanted, dtype)
    found: tuple[Tensor, Tensor, list[Tensor]] = on_cpu(
        near, cpu.sums, leaves, query, wanted, dtype
    )
    return found


def _sound(near: Tensor, question: str) -> bool:
    """Return whether kernels may answer; sums and maximum are tried together."""
    kind = near.dtype

    def trials() -> list[Trial]:
        return [
            Trial(f"circuits' sums, {kind}", 2, partial(_try, kind)),
            Trial(f"circuits' maximum, {kind}", 1, partial(_try_choice, kind)),
        ]

    return sound(near, f"circuits' {question}, {kind}", trials)


def _sums(
    leaves: Leaves, query: Query, wanted: Sequence[bool], dtype: torch.dtype
) -> tuple[Tensor, Tensor, list[Tensor]]:
    from smoothsp._kernels.circuits.cuda import inside_outside as kernels
    from smoothsp._kernels.circuits.cuda import scaled_floats

    own, shared = _joined(leaves)
    B, outwards = len(own), any(wanted)
    value = own.new_empty(B, dtype=torch.float64)
    far = own.new_empty(B, dtype=torch.bool)
    chances = own.new_empty((B, own.shape[1] + len(shared)) if outwards else (0, 0))
    rows = placed(query.topology, own.device), query.lanes(own.device)
    kernels.inside_outside(own, shared, *rows, outwards, value, far, chances)
    if not is_capturing(own) and bool(far.any()):
        most = scaled_floats.MAX_EXPONENT.value
        again = cpu.truly_far(leaves, query, far.cpu().numpy(), most)
        if len(again):
            _do_on_cpu(leaves, query, again, value, chances)
    none = own.new_empty(0)
    found = cpu.split(chances, leaves) if outwards else [none] * len(wanted)
    marginals = [x if some else none for x, some in zip(found, wanted, strict=True)]
    return value.to(dtype), as_two(value), marginals


def _do_on_cpu(
    leaves: Leaves, query: Query, rows: Tensor, value: Tensor, chances: Tensor
) -> None:
    """Fill rows, given on the CPU, of values and marginals."""
    here = rows.to(value.device)
    given = cpu.pick(leaves, here).map(lambda x: x.double()), query.select(rows)
    wanted = [chances.numel() > 0] * len(leaves.every)
    again, _, parts = on_cpu(value, cpu.sums, *given, wanted, value.dtype)
    value[here] = again
    if chances.numel():
        found = torch.cat([x.flatten(1) for x in parts], 1)
        chances[here] = found.to(chances.dtype)


def choose(
    leaves: Leaves,
    query: Query,
    k: None,
    dtype: torch.dtype,
    precise: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Values ``[B]``, labels ``[B, N]`` and parts ``[B, U]`` of the best.

    The values also, second, as two numbers; ``precise``: found in float64.
    """
    if precise:
        leaves = leaves.map(lambda x: x.double())
    near = leaves.own[0]
    if _sound(near, "maximum"):
        return _choose(leaves, query, dtype)
    found: tuple[Tensor, Tensor, Tensor, Tensor] = on_cpu(
        near, cpu.choose, leaves, query, k, dtype
    )
    return found


def _choose(
    leaves: Leaves, query: Query, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    from smoothsp._kernels.circuits.cuda import max_product as kernels

    own, shared = _joined(leaves)
    B, topology = len(own), query.topology
    value = own.new_empty(B, dtype=torch.float64)
    labels = own.new_full((B, topology.labels), -1, dtype=torch.int64)
    parts = own.new_full((B, topology.most), -1, dtype=torch.int32)
    rows = placed(topology, own.device), query.lanes(own.device)
    kernels.best_outputs(own, shared, *rows, value, labels, parts)
    return value.to(dtype), as_two(value), labels, parts


def tangent(
    leaves: Leaves, query: Query, along: Leaves, wanted: Sequence[bool]
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Log-partition, mean of ``along`` ``[B]``, and how marginals ``[B, ...]`` move.

    In float64, computed on the CPU; ``along`` are directions, those of shared leaves as
    they are or ``[B, ...]``.
    """
    found: tuple[Tensor, Tensor, list[Tensor]] = on_cpu(
        leaves.own[0], cpu.tangent, leaves, query, along, wanted
    )
    return found


def total(leaves: Leaves, used: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Sums ``[B, K]`` of the leaves ``used`` ``[B, K, U]``, -1 none; as two numbers."""
    flat = used.flatten(1).long()
    picked = leaves.joined().detach().gather(1, flat.clamp(min=0))
    picked = picked.masked_fill(flat < 0, 0).reshape(used.shape)
    value = picked.sum(2, dtype=torch.float64)
    return value.to(dtype), as_two(value)


def _joined(leaves: Leaves) -> tuple[Tensor, Tensor]:
    """Scores ``[B, P]`` of the rows, and ``[Q]`` of all rows, contiguous."""
    own = [x.detach().flatten(1) for x in leaves.own]
    common = [x.detach().flatten() for x in leaves.shared]
    shared = torch.cat(common) if common else own[0].new_empty(0)
    return (own[0] if len(own) == 1 else torch.cat(own, 1)).contiguous(), shared


def _chains(T: int, S: int) -> tuple[Circuit, Items]:
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


def _example(dtype: torch.dtype) -> tuple[Leaves, Query]:
    """Return rows for two programs, on the CPU; one shared leaf is forbidden."""
    T, S, B = 3, 2, 9
    found = topology(_chains, T, S)
    generator = torch.Generator("cpu").manual_seed(0)
    own = torch.randn(B, T, S, generator=generator, dtype=dtype, device="cpu")
    moves = torch.randn(S, S, generator=generator, dtype=dtype, device="cpu")
    moves[0, 1] = -torch.inf
    rows = torch.arange(B, device="cpu") % T
    return Leaves((own,), (moves,)), Query(found, found.roots[rows])


def _try(dtype: torch.dtype, device: torch.device) -> None:
    """Raise if sums of a small circuit are not those of the CPU."""
    leaves, query = _example(dtype)
    given = query, [True, True], torch.float64
    value, _, marginals = cpu.sums(leaves.map(lambda x: x.double()), *given)
    found = _sums(leaves.map(lambda x: x.to(device)), *given)
    hold((found[0], *found[2]), (value, *(x.to(dtype) for x in marginals)), dtype)


def _try_choice(dtype: torch.dtype, device: torch.device) -> None:
    """Raise if the best outputs of a small circuit are not those of the CPU."""
    leaves, query = _example(dtype)
    value, _, labels, parts = cpu.choose(leaves, query, None, dtype)
    found = _choose(leaves.map(lambda x: x.to(device)), query, dtype)
    used, expected = (x.sort().values for x in (found[3], parts))
    hold((found[0], found[2], used), (value, labels, expected), dtype)
