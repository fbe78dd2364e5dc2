"""Checks of the potentials of a chain."""

import numpy as np
from torch import Tensor

from smoothsp._kernels import chain_check_cpu
from smoothsp.oracles import _checks
from smoothsp.oracles._chain_arrays import kernel_arrays
from smoothsp.oracles._chain_calls import Potentials, is_sound
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
    _checks.same_dtype("transitions", transitions, "emissions", emissions)
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
        _checks.same_dtype(name, found, "emissions", emissions)
        _checks.shape(name, found, (S,), "(state,)")
        ends.append(found)
    return emissions, transitions, ends[0], ends[1]


def chain_values(
    potentials: Potentials, positions: Positions, name: str = "emissions"
) -> None:
    """No NaN and no +inf where a chain is read, and an output for every row.

    ``name`` is what to blame for a fault in the emissions. Costs one read of the
    potentials. Skipped while ``torch.compile`` traces.
    """
    if is_sound(potentials, positions) or not is_plain(potentials[0]):
        return
    emissions, transitions, start, end = potentials
    fault = np.empty(5, np.int64)
    chain = kernel_arrays(*potentials, positions.steps, positions.lengths)
    chain_check_cpu.find_fault(*chain, fault)
    code, row, step, i, j = fault.tolist()
    if code == chain_check_cpu.FINE:
        return
    if code == chain_check_cpu.INFEASIBLE:
        raise ValueError(
            f"emissions, transitions: row {row} has no feasible output: every path is "
            f"forbidden (-inf) by step {step}; allow at least one"
        )
    remedy = "potentials must be finite, or -inf to forbid"
    if code == chain_check_cpu.EMISSION:
        found = emissions[row, step, j].item()
        raise ValueError(
            f"{name}: expected no NaN and no +inf, got {found} at row {row}, "
            f"step {step}, state {j}; {remedy}"
        )
    if code == chain_check_cpu.TRANSITION:
        place = (i, j) if row < 0 else (row, step, i, j)
        found = transitions[place].item()
        where = "" if row < 0 else f"row {row}, step {step}, "
        raise ValueError(
            f"transitions: expected no NaN and no +inf, got {found} at {where}from "
            f"state {i} to state {j}; {remedy}"
        )
    which, state, values = (
        ("start", j, start) if code == chain_check_cpu.START else ("end", i, end)
    )
    raise ValueError(
        f"{which}: expected no NaN and no +inf, got {values[state].item()} at state "
        f"{state}; {remedy}"
    )
