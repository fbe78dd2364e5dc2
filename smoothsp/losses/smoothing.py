"""Smoothings of the maximum."""

from dataclasses import dataclass
from typing import Literal


class _PositiveMu:
    """Base class that checks ``mu`` on each assignment, e.g. by a schedule."""

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

    It exceeds the maximum by at most ``mu log m`` for m outputs. The gradient weights
    all outputs by ``softmax(score / mu)``.

    Parameters
    ----------
    mu
        Smoothing strength, > 0, in units of the score. You may change it between steps.

    Notes
    -----
    Source: Pillutla et al., "A Smoother Way to Train Structured Prediction Models",
    section 2.3.1.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.losses import Entropy, StructuralHinge
    >>> from smoothsp.oracles import Multiclass
    >>> loss = StructuralHinge(Entropy(mu=1.0))
    >>> loss(Multiclass(torch.tensor([[1.0, 0.0]])), torch.tensor([0]))
    tensor(0.6931)
    """

    mu: float


@dataclass
class L2(_PositiveMu):
    r"""Squared l2 smoothing over the k best outputs: the top-K strategy.

    ``max over the simplex of <u, s> - mu/2 (|u|^2 - 1)`` with s the k highest scores.
    It exceeds the maximum by at most ``mu/2 (1 - 1/k)``. The gradient weights at most k
    outputs. For exact examples it equals the gradient of smoothing over all outputs.

    Parameters
    ----------
    mu
        Smoothing strength, > 0, in units of the score. You may change it between steps.
    k
        Number of outputs, at least 1 (1 means no smoothing). ``"exact"`` doubles k for
        each example until its smoothing is exact.
    max_k
        Largest k that ``"exact"`` tries. Ties, as at zero potentials, may need all
        outputs. Examples that reach ``max_k`` are reported as not exact.

    Notes
    -----
    Source: Pillutla et al., "A Smoother Way to Train Structured Prediction Models",
    eq. (11) and (12).

    Examples
    --------
    >>> import torch
    >>> from smoothsp.losses import L2, StructuralHinge
    >>> from smoothsp.oracles import Multiclass
    >>> loss = StructuralHinge(L2(mu=1.0, k=2))
    >>> loss(Multiclass(torch.tensor([[1.0, 0.0]])), torch.tensor([0]))
    tensor(0.2500)
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
