"""Detection of divergence: a loss that is not finite or ten times its start."""

import math
from collections.abc import Iterable
from contextlib import AbstractContextManager

from torch import Tensor

from smoothsp.optim._divergence import explain_divergence

__all__ = ["GROWTH", "diagnosed", "require_sound"]

GROWTH = 10.0
"""How many times the mean loss of the first epoch a later one may be."""


def diagnosed(
    weights: Iterable[Tensor], rate: float, remedy: str = "Lower the rate"
) -> AbstractContextManager[None]:
    """Replace an error that comes from weights which have diverged.

    Structures refuse scores that are not numbers, or too large, before there is a loss.

    Parameters
    ----------
    weights
        Of the network that computes the loss inside of the context.
    rate, remedy
        Step size, and what to try, for the message.

    Raises
    ------
    ValueError
        In place of another one, if a weight is NaN or at least 10,000.
    """

    def error(expected: str, found: str) -> ValueError:
        return ValueError(
            f"weights: expected numbers {expected}, got {found} with steps of size"
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
        Of the step, or mean of the epoch.
    rate
        Step size, for the message.
    first
        Mean loss of the first epoch, of which ``loss`` may be ten times as much; None
        if any number will do.
    remedy
        What to try, for the message.

    Raises
    ------
    ValueError
        If the loss is not finite, or has grown more.
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
