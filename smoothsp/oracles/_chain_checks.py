"""Checks of the potentials of a chain."""

import numpy as np
from torch import Tensor

from smoothsp._kernels import chain_check_cpu
from smoothsp.oracles import _chain_cuda, _checks
from smoothsp.oracles._chain_arrays import kernel_arrays
from smoothsp.oracles._chain_calls import is_sound
from smoothsp.oracles._chain_memory import Parts, Potentials
from smoothsp.oracles._positions import Positions
from smoothsp.oracles._question import is_plain


def chain_potentials(
    emissions: object, transitions: object, start: object | None, end: object | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The four of them, of fitting types and shapes; absent ends are zero."""
    emissions = _checks.potentials("emissions", emissions)
    if emissions.dim() != 3 or emissions.shape[2] < 1:
        raise ValueError(
            "emissions: expected (batch, time, state) with at least one state, got "
            f"{tuple(emissions.shape)}"
        )
    B, T, S = emissions.shape
    transitions = _checks.potentials("transitions", transitions)
    _checks.like("transitions", transitions, "emissions", emissions)
    if transitions.dim() == 4:
        edges = (B, max(T - 1, 0), S, S)
        words = "(batch, time - 1, state, state)"
        _checks.shape("transitions", transitions, edges, words)
    else:
        _checks.shape("transitions", transitions, (S, S), "(state, state)")
    ends = []
    for name, value in (("start", start), ("end", end)):
        if value is None:
            ends.append(emissions.new_zeros(S))
            continue
        found = _checks.potentials(name, value)
        _checks.like(name, found, "emissions", emissions)
        _checks.shape(name, found, (S,), "(state,)")
        ends.append(found)
    return emissions, transitions, ends[0], ends[1]


def chain_positions(
    emissions: Tensor, lengths: object | None, mask: object | None
) -> Positions:
    """The real positions that lengths or a mask tell; all without either."""
    B, T, _ = emissions.shape
    device = emissions.device
    if lengths is not None and mask is not None:
        raise ValueError(
            "lengths, mask: expected at most one of the two, got both; a mask says all "
            "that lengths say"
        )
    if mask is not None:
        words = "(batch, time)"
        return Positions.of_mask(_checks.bool_mask("mask", mask, (B, T), words, device))
    if lengths is not None:
        lengths = _checks.row_lengths(lengths, B, T, device)
    return Positions(B, T, device, lengths=lengths)


def chain_values(chain: Parts, name: str = "emissions") -> None:
    """No NaN and no +inf where a chain is read, and an output for every row.

    ``name`` is what to blame for a fault in the emissions. Costs one read of the
    potentials. Skipped while ``torch.compile`` traces.
    """
    if is_sound(chain):
        return
    potentials, positions = chain
    tensors = (*potentials, positions.steps, positions.lengths)
    if is_plain(potentials[0]):
        fault = np.empty(5, np.int64)
        chain_check_cpu.find_fault(*kernel_arrays(*tensors), fault)
        found = fault.tolist()
    elif is_plain(potentials[0], "cuda"):
        found = _chain_cuda.find_fault(*tensors) or [chain_check_cpu.FINE]
    else:
        return
    if found[0] != chain_check_cpu.FINE:
        raise ValueError(_message(found, potentials, name))


def _message(fault: list[int], potentials: Potentials, name: str) -> str:
    """What is wrong, in words."""
    emissions, transitions, start, end = potentials
    code, row, step, i, j = fault
    if code == chain_check_cpu.INFEASIBLE:
        return (
            f"emissions, transitions: row {row} has no feasible output: every path is "
            f"forbidden (-inf) by step {step}; allow at least one"
        )
    if code == chain_check_cpu.EMISSION:
        where = f"row {row}, step {step}, state {j}"
        value = emissions[row, step, j]
    elif code == chain_check_cpu.TRANSITION:
        name = "transitions"
        where = f"from state {i} to state {j}"
        value = transitions[(i, j) if row < 0 else (row, step, i, j)]
        if row >= 0:
            where = f"row {row}, step {step}, {where}"
    elif code == chain_check_cpu.START:
        name, where, value = "start", f"state {j}", start[j]
    else:
        name, where, value = "end", f"state {i}", end[i]
    return (
        f"{name}: expected no NaN and no +inf, got {value.item()} at {where}; "
        "potentials must be finite, or -inf to forbid"
    )
