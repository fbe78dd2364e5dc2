"""Detection of divergence: a loss that is not finite, or ten times the first one."""

import math
from collections.abc import Iterable
from contextlib import AbstractContextManager

from torch import Tensor

from smoothsp.optim._divergence import explain_divergence

__all__ = ["GROWTH", "diagnosed", "require_sound"]

GROWTH = 10.0
"""Upper limit of (mean loss of an epoch) / (mean loss of the first epoch)."""


def diagnosed(
    weights: Iterable[Tensor], rate: float, remedy: str = "Lower the rate"
) -> AbstractContextManager[None]:
    """Context manager: report errors that diverged weights cause as divergence.

    Structures raise for NaN and for very large scores before a loss is computed.

    Parameters
    ----------
    weights
        Weights of the network that computes the loss inside the context.
    rate, remedy
        Step size, and advice, for the message.

    Raises
    ------
    ValueError
        Instead of the original error, if a weight is NaN or at least 10,000.
    """

    def error(expected: str, got: str) -> ValueError:
        return ValueError(
            f"weights: expected numbers {expected}, got {got} with steps of size"
            f" {rate:.3g}: the training diverged. {remedy}"
        )

    return explain_divergence(weights, error)


def require_sound(
    loss: float, rate: float, first: float | None = None, remedy: str = "Lower the rate"
) -> float:
    """Return the loss of a step or an epoch, unless training has diverged.

    Parameters
    ----------
    loss
        Loss of the step, or mean loss of the epoch.
    rate
        Step size, for the message.
    first
        Mean loss of the first epoch; ``loss`` may be at most ten times as large. None:
        any finite loss is accepted.
    remedy
        Advice, for the message.

    Raises
    ------
    ValueError
        If the loss is not finite, or exceeds this limit.
    """
    if not math.isfinite(loss):
        expected = "a finite number"
    elif first is not None and loss > GROWTH * first > 0:
        expected = f"at most {GROWTH:g} times the {first:.4g} of the first epoch"
    else:
        return loss
    raise ValueError(
        f"loss: expected {expected}, got {loss:.4g} with steps of size {rate:.3g}: the"
        f" training diverged. {remedy}"
    )
