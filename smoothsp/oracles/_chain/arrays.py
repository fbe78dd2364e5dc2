"""A chain as kernels take it.

Every op takes ``(emissions, transitions, start, end, steps, lengths)``: ``[B, T, S]``,
``[S, S]`` or ``[B, T - 1, S, S]``, ``[S]``, ``[S]``, ``[B, T]``, ``[B]``.
``steps[b, :lengths[b]]`` are the real positions of row b in order.
"""

from typing import Any

from torch import Tensor

from smoothsp._kernels.chain.cpu import faults

# Fewer rows than this leave too many lanes of a vector idle.
ROWS_FOR_LANES = 4


def kernel_arrays(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    steps: Tensor,
    lengths: Tensor,
) -> tuple[Any, ...]:
    """The arguments as a kernel takes them, ``shared`` last."""
    shared = transitions.dim() == 2
    moves = array(transitions)
    return (
        array(emissions),
        moves[None, None] if shared else moves,
        array(start),
        array(end),
        array(steps),
        array(lengths),
        shared,
    )


def prove_positions(
    emissions: Tensor,
    transitions: Tensor,
    start: Tensor,
    end: Tensor,
    steps: Tensor,
    lengths: Tensor,
    *rest: Any,
) -> None:
    """Refuse positions outside of the time axis."""
    prove_within(steps, lengths, emissions.shape[1])


def prove_within(steps: Tensor, lengths: Tensor, T: int) -> None:
    """Refuse positions outside of T steps."""
    row = faults.find_bad_positions(array(steps), array(lengths), T)
    if row >= 0:
        raise ValueError(
            f"lengths: expected values from 0 to {T}, the time axis of emissions, got "
            f"{int(lengths[row])} at row {row}"
        )


def array(tensor: Tensor) -> Any:
    """The tensor as a contiguous array, of its own memory where it is contiguous."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    return tensor.numpy() if tensor.is_contiguous() else tensor.contiguous().numpy()


def as_edges(transitions: Tensor) -> Tensor:
    """Transitions with an axis for rows and one for steps."""
    return transitions[None, None] if transitions.dim() == 2 else transitions


def inner_steps(emissions: Tensor) -> int:
    """Steps of the innermost loop of one pass over a batch: B T S^2."""
    return emissions.numel() * emissions.shape[2]
