"""A chain as kernels take it.

Every op takes ``(emissions, transitions, start, end, steps, lengths)``: ``[B, T, S]``,
``[S, S]`` or ``[B, T - 1, S, S]``, ``[S]``, ``[S]``, ``[B, T]``, ``[B]``.
``steps[b, :lengths[b]]`` are the real positions of row b in order.
"""

from typing import Any

from torch import Tensor

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


def array(tensor: Tensor) -> Any:
    """The tensor as a contiguous array, of its own memory where it is contiguous."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    return tensor.numpy() if tensor.is_contiguous() else tensor.contiguous().numpy()


def as_edges(transitions: Tensor) -> Tensor:
    """Transitions with an axis for rows and one for steps."""
    return transitions[None, None] if transitions.dim() == 2 else transitions


def inner_steps(emissions: Tensor) -> int:
    """Steps of the innermost loop of one pass over a batch: B T S^2."""
    return emissions.numel() * emissions.shape[2]
