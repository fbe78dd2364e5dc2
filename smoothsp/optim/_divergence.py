"""Errors of losses that are caused by diverged weights."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

DIVERGED_MAGNITUDE = 1e4
"""Weights of this size and more have diverged where a loss cannot be computed."""


@contextmanager
def explain_divergence(
    weights: Iterable[Tensor], error: Callable[[str, str], Exception]
) -> Iterator[None]:
    """Replace a ValueError by ``error(expected, found)`` if the weights have diverged.

    Structures raise ValueError for NaN or too large scores. Weights have diverged if
    one is NaN or at least ``DIVERGED_MAGNITUDE``.
    """
    try:
        yield
    except ValueError as cause:
        sizes = [w.detach().abs().max().double().cpu() for w in weights if w.numel()]
        largest = float(torch.stack(sizes).max()) if sizes else 0.0
        if largest < DIVERGED_MAGNITUDE:
            raise
        raise error(f"below {DIVERGED_MAGNITUDE:g}", f"{largest:.3g}") from cause
