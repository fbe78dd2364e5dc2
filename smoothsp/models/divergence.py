"""When to end a training: at a loss that is no number, or ten times what it was."""

import math

__all__ = ["GROWTH", "require_sound"]

GROWTH = 10.0
"""How many times the mean loss of the first epoch a later one may be."""


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
