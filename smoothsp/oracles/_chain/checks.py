"""Validation of the potentials, lengths and masks of a chain."""

from typing import Any

import numpy as np
from torch import Tensor

from smoothsp._kernels.chain.cpu import validation
from smoothsp.oracles._chain import cuda
from smoothsp.oracles._chain.buffers import ChainBuffers, Potentials, shared_zeros
from smoothsp.oracles._chain.engine import ChainEngine
from smoothsp.oracles._inference import checks, score_values
from smoothsp.oracles._inference.positions import Positions
from smoothsp.oracles._inference.tracing import (
    are_dense_cpu,
    is_dense_cpu,
    is_eager,
    is_eager_tensor,
)

LOW = sum(validation.LOW_BITS)


def build_chain(
    emissions: object,
    transitions: object,
    start: object | None,
    end: object | None,
    lengths: object | None,
    mask: object | None,
) -> ChainEngine:
    """Return the engine of potentials with valid dtypes and shapes.

    Absent start and end scores are zero. Without lengths and mask all positions are
    real. Values are not checked.
    """
    valid_potentials = None
    # the fast path covers nearly all calls; the slow one converts and raises errors
    if is_eager() and not checks.is_jit_tracing():
        valid_potentials = _as_dense_potentials(emissions, transitions, start, end)
    potentials = valid_potentials or _as_valid_potentials(
        emissions, transitions, start, end
    )
    if lengths is None and mask is None:
        B, T, _ = potentials[0].shape
        positions = Positions(B, T, potentials[0].device)
    else:
        positions = _make_positions(potentials[0], lengths, mask)
    return ChainEngine(potentials, positions, valid_potentials is not None)


def _as_dense_potentials(
    emissions: Any, transitions: Any, start: Any, end: Any
) -> Potentials | None:
    """Return valid dense CPU potentials; None for any others, valid or not."""
    if not are_dense_cpu(emissions, transitions):
        return None
    dtype = emissions.dtype
    if dtype not in checks.FLOATS or emissions.dim() != 3:
        return None
    B, T, S = emissions.shape
    if S < 1 or transitions.dtype != dtype:
        return None
    if transitions.shape not in ((S, S), (B, max(T - 1, 0), S, S)):
        return None
    if start is None and end is None:
        zeros = shared_zeros(S, dtype)
        return emissions, transitions, zeros, zeros
    if start is None:
        start = shared_zeros(S, dtype)
    elif not (is_dense_cpu(start) and start.dtype == dtype and start.shape == (S,)):
        return None
    if end is None:
        end = shared_zeros(S, dtype)
    elif not (is_dense_cpu(end) and end.dtype == dtype and end.shape == (S,)):
        return None
    return emissions, transitions, start, end


def _as_valid_potentials(
    emissions: object, transitions: object, start: object | None, end: object | None
) -> Potentials:
    """Convert and check each of the potentials; raise an error that names it."""
    emissions = checks.as_potentials("emissions", emissions)
    if emissions.dim() != 3 or emissions.shape[2] < 1:
        raise ValueError(
            "emissions: expected (batch, time, state) with at least one state, got "
            f"{tuple(emissions.shape)}"
        )
    B, T, S = emissions.shape
    transitions = checks.as_potentials("transitions", transitions)
    checks.require_same_dtype("transitions", transitions, "emissions", emissions)
    if transitions.dim() == 4:
        edges = (B, max(T - 1, 0), S, S)
        words = "(batch, time - 1, state, state)"
        checks.require_shape("transitions", transitions, edges, words)
    else:
        checks.require_shape("transitions", transitions, (S, S), "(state, state)")
    ends = []
    for name, value in (("start", start), ("end", end)):
        if value is None:
            ends.append(emissions.new_zeros(S))
            continue
        tensor = checks.as_potentials(name, value)
        checks.require_same_dtype(name, tensor, "emissions", emissions)
        checks.require_shape(name, tensor, (S,), "(state,)")
        ends.append(tensor)
    return emissions, transitions, ends[0], ends[1]


def _make_positions(
    emissions: Tensor, lengths: object | None, mask: object | None
) -> Positions:
    """Return the real positions from lengths or a mask."""
    B, T, _ = emissions.shape
    device = emissions.device
    if lengths is not None and mask is not None:
        raise ValueError(
            "lengths, mask: expected at most one of the two, got both; a mask says all "
            "that lengths say"
        )
    if mask is not None:
        words = "(batch, time)"
        return Positions.from_mask(
            checks.as_bool_mask("mask", mask, (B, T), words, device)
        )
    lengths = checks.as_lengths(lengths, B, T, device)
    return Positions(B, T, device, lengths=lengths)


def validate_values(chain: ChainEngine, name: str = "") -> ChainEngine:
    """Return the chain with valid values; scores at or below -2^40 become -inf.

    Valid chains cost one read of the potentials. Errors name the argument ``name``, by
    default the invalid potential. Values are not checked while traced, nor while a CUDA
    graph is captured.
    """
    if chain.kernel_ready:
        if validation.all_below_limit(chain.addresses, chain.shared_transitions):
            return chain
        flags, infeasible_at = _value_flags(chain)
    elif is_eager_tensor(chain.potentials[0], "cuda"):
        flags = cuda.value_flags(*chain.op_args)
        if flags & validation.INFEASIBLE:
            cpu_inputs = (x.detach().cpu() for x in chain.op_args)
            flags, infeasible_at = _value_flags(ChainBuffers.from_op_args(*cpu_inputs))
    else:
        return chain
    if flags & validation.HAS_INVALID:
        _raise_invalid_value(chain, name)
    if flags & validation.INFEASIBLE:
        row, step = infeasible_at.tolist()
        argument = name or "emissions, transitions"
        raise ValueError(
            f"{argument}: row {row} has no feasible output: every path is "
            f"forbidden (-inf) by step {step}; allow at least one"
        )
    if not flags & LOW:
        return chain
    emissions, transitions, start, end = chain.potentials
    in_emissions, in_transitions, in_start, in_end = validation.LOW_BITS
    # one by one: a loop over them takes as long as the copy of a small batch
    if flags & in_emissions:
        emissions = score_values.mask_low_scores(emissions)
    if flags & in_transitions:
        transitions = score_values.mask_low_scores(transitions)
    if flags & in_start:
        start = score_values.mask_low_scores(start)
    if flags & in_end:
        end = score_values.mask_low_scores(end)
    masked = emissions, transitions, start, end
    return ChainEngine(masked, chain.positions, chain.kernel_ready)


def _value_flags(chain: ChainBuffers) -> tuple[int, Any]:
    """Bits of ``validation.check_potentials``, and row and step of infeasibility."""
    infeasible_at = np.empty(2, np.int64)
    return validation.check_potentials(
        chain.addresses, chain.shared_transitions, infeasible_at
    ), infeasible_at


def _raise_invalid_value(chain: ChainBuffers, name: str) -> None:
    """Raise an error for the first invalid number at a real position.

    Emissions and transitions of masked positions are never read and may be NaN.
    """
    emissions, transitions, start, end = chain.potentials
    real = chain.positions.mask
    is_invalid = {"emissions": score_values.is_invalid(emissions) & real[..., None]}
    if transitions.dim() == 2:
        is_invalid["transitions"] = score_values.is_invalid(transitions)
    else:
        is_read = real[:, 1:] & (real.cumsum(1)[:, :-1] > 0)
        is_invalid["transitions"] = (
            score_values.is_invalid(transitions) & is_read[..., None, None]
        )
    is_invalid |= {
        "start": score_values.is_invalid(start),
        "end": score_values.is_invalid(end),
    }
    descriptions = {
        "emissions": "row {}, step {}, state {}",
        "transitions": "from state {} to state {}",
        "start": "state {}",
        "end": "state {}",
    }
    if transitions.dim() == 4:
        descriptions["transitions"] = "row {}, step {}, " + descriptions["transitions"]
    for (argument, wrong), x in zip(is_invalid.items(), chain.potentials, strict=True):
        if bool(wrong.any()):
            index = tuple(wrong.nonzero()[0].tolist())
            where = descriptions[argument].format(*index)
            raise ValueError(
                score_values.invalid_value_message(
                    name or argument, x[index].item(), where
                )
            )
