"""How a maximum is smoothed."""

from dataclasses import dataclass
from typing import Literal


class _PositiveMu:
    """``mu`` is checked whenever it is set: a schedule sets it between steps."""

    def __setattr__(self, name: str, value: object) -> None:
        if name == "mu":
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"mu: expected a number, got {type(value).__name__}")
            if not 0 < value < float("inf"):
                raise ValueError(f"mu: expected a positive number, got {value}")
        super().__setattr__(name, value)


@dataclass
class Entropy(_PositiveMu):
    r"""Entropy smoothing: ``mu log sum exp(score / mu)`` instead of the maximum.

    Lies above the maximum by at most ``mu log m`` for m outputs. The gradient weighs
    all outputs by ``softmax(score / mu)``.

    Parameters
    ----------
    mu
        Strength, in units of the score, > 0. May be changed between steps.

    Notes
    -----
    Source: Pillutla et al., "A Smoother Way to Train Structured Prediction Models",
    section 2.3.1.
    """

    mu: float


@dataclass
class L2(_PositiveMu):
    r"""Squared l2 smoothing over the k best outputs: the top-K strategy.

    ``max over the simplex of <u, s> - mu/2 (|u|^2 - 1)`` with s the k highest scores.
    Lies above the maximum by at most ``mu/2 (1 - 1/k)``. Its gradient weighs at most k
    outputs, and is that of the smoothing over all outputs where the example is exact.

    Parameters
    ----------
    mu
        Strength, in units of the score, > 0. May be changed between steps.
    k
        Number of outputs, at least 1 (1 is no smoothing); or ``"exact"``: doubled, for
        each example, until nothing is lost.
    max_k
        Where ``"exact"`` gives up: at ties, as at zero potentials, it may take as many
        outputs as there are. What was given up is reported as not exact.

    Notes
    -----
    Source: Pillutla et al., "A Smoother Way to Train Structured Prediction Models",
    eq. (11) and (12).
    """

    mu: float
    k: int | Literal["exact"]
    max_k: int = 1024

    def __post_init__(self) -> None:
        for name, value in (("k", self.k), ("max_k", self.max_k)):
            if name == "k" and value == "exact":
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                expected = 'an int or "exact"' if name == "k" else "an int"
                raise TypeError(f"{name}: expected {expected}, got {value!r}")
            if value < 1:
                raise ValueError(f"{name}: expected at least 1, got {value}")


Smoothing = Entropy | L2 | None
