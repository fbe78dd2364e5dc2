"""Checks of the potentials of a chain."""

from typing import Any

import numpy as np
from torch import Tensor

from smoothsp._kernels.chain.cpu import faults, whole_calls
from smoothsp.oracles._chain import on_device
from smoothsp.oracles._chain.record import Potentials, Record, absent
from smoothsp.oracles._questions import checks
from smoothsp.oracles._questions.positions import Positions
from smoothsp.oracles._questions.registration import (
    are_ordinary,
    is_ordinary,
    is_plain,
    nothing_traces,
)


def chain_record(
    emissions: object,
    transitions: object,
    start: object | None,
    end: object | None,
    lengths: object | None,
    mask: object | None,
) -> Record:
    """Potentials of fitting types and shapes, and the real positions of a chain.

    Absent ends are zero; all positions are real without lengths and mask.
    """
    found = _fitting(emissions, transitions, start, end) if nothing_traces() else None
    potentials = found or _looked_at(emissions, transitions, start, end)
    if lengths is None and mask is None:
        B, T, _ = potentials[0].shape
        positions = Positions(B, T, potentials[0].device)
    else:
        positions = _told(potentials[0], lengths, mask)
    return Record(potentials, positions, found is not None)


def _fitting(
    emissions: Any, transitions: Any, start: Any, end: Any
) -> Potentials | None:
    """The potentials if they are ordinary tensors and fit; None if not, or unusual."""
    if not are_ordinary(emissions, transitions):
        return None
    dtype = emissions.dtype
    if dtype not in checks.FLOATS or emissions.dim() != 3:
        return None
    S = emissions.shape[2]
    if S < 1 or transitions.dtype != dtype or transitions.shape != (S, S):
        return None
    if start is None and end is None:
        zeros = absent(S, dtype)
        return emissions, transitions, zeros, zeros
    if start is None:
        start = absent(S, dtype)
    elif not (is_ordinary(start) and start.dtype == dtype and start.shape == (S,)):
        return None
    if end is None:
        end = absent(S, dtype)
    elif not (is_ordinary(end) and end.dtype == dtype and end.shape == (S,)):
        return None
    return emissions, transitions, start, end


def _looked_at(
    emissions: object, transitions: object, start: object | None, end: object | None
) -> Potentials:
    """The potentials, each checked, with a message for what is wrong."""
    emissions = checks.potentials("emissions", emissions)
    if emissions.dim() != 3 or emissions.shape[2] < 1:
        raise ValueError(
            "emissions: expected (batch, time, state) with at least one state, got "
            f"{tuple(emissions.shape)}"
        )
    B, T, S = emissions.shape
    transitions = checks.potentials("transitions", transitions)
    checks.like("transitions", transitions, "emissions", emissions)
    if transitions.dim() == 4:
        edges = (B, max(T - 1, 0), S, S)
        words = "(batch, time - 1, state, state)"
        checks.shape("transitions", transitions, edges, words)
    else:
        checks.shape("transitions", transitions, (S, S), "(state, state)")
    ends = []
    for name, value in (("start", start), ("end", end)):
        if value is None:
            ends.append(emissions.new_zeros(S))
            continue
        found = checks.potentials(name, value)
        checks.like(name, found, "emissions", emissions)
        checks.shape(name, found, (S,), "(state,)")
        ends.append(found)
    return emissions, transitions, ends[0], ends[1]


def _told(emissions: Tensor, lengths: object | None, mask: object | None) -> Positions:
    """The real positions that lengths or a mask tell."""
    B, T, _ = emissions.shape
    device = emissions.device
    if lengths is not None and mask is not None:
        raise ValueError(
            "lengths, mask: expected at most one of the two, got both; a mask says all "
            "that lengths say"
        )
    if mask is not None:
        words = "(batch, time)"
        return Positions.of_mask(checks.bool_mask("mask", mask, (B, T), words, device))
    lengths = checks.row_lengths(lengths, B, T, device)
    return Positions(B, T, device, lengths=lengths)


def chain_values(chain: Record, name: str = "emissions") -> bool:
    """No NaN and no +inf where a chain is read, and an output for every row.

    ``name`` is what to blame for a fault in the emissions. Costs one read of the
    potentials. Skipped where something traces.

    Returns whether a score is so large that ``_chain.large`` has to answer.
    """
    potentials = chain.potentials
    if chain.plain:
        at = chain.addresses
        if chain.shared and (whole_calls.is_ordinary(*at) or whole_calls.is_sound(*at)):
            return False
        fault = np.empty(5, np.int64)
        faults.find_fault(*chain.arrays, fault)
        found = fault.tolist()
    elif is_plain(potentials[0], "cuda"):
        found = on_device.find_fault(*chain.inputs) or [faults.FINE]
    else:
        return False
    if found[0] not in (faults.FINE, faults.LARGE):
        raise ValueError(_message(found, potentials, name))
    return found[0] == faults.LARGE


def _message(fault: list[int], potentials: Potentials, name: str) -> str:
    """What is wrong, in words."""
    emissions, transitions, start, end = potentials
    code, row, step, i, j = fault
    if code == faults.INFEASIBLE:
        blame = "emissions, transitions" if name == "emissions" else name
        return (
            f"{blame}: row {row} has no feasible output: every path is "
            f"forbidden (-inf) by step {step}; allow at least one"
        )
    if code == faults.EMISSION:
        where = f"row {row}, step {step}, state {j}"
        value = emissions[row, step, j]
    elif code == faults.TRANSITION:
        name = "transitions"
        where = f"from state {i} to state {j}"
        value = transitions[(i, j) if row < 0 else (row, step, i, j)]
        if row >= 0:
            where = f"row {row}, step {step}, {where}"
    elif code == faults.START:
        name, where, value = "start", f"state {j}", start[j]
    else:
        name, where, value = "end", f"state {i}", end[i]
    return (
        f"{name}: expected no NaN and no +inf, got {value.item()} at {where}; "
        "potentials must be finite, or -inf to forbid"
    )
