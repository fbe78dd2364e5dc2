"""The questions that are timed, and what it is to have a method that answers one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from inference.problems import Problem

NLL = "NLL, forward + backward"
HINGE = "hinge, forward + backward"
DECODE = "decode"
TOP = {k: f"top-{k} decode" for k in (2, 5, 10)}
MARGINALS = "marginals"
QUESTIONS = (NLL, HINGE, DECODE, *TOP.values(), MARGINALS)

# NLL, hinge: the mean over rows and its gradients in the four potentials. decode:
# labels [B, T]. top-k: labels [B, K, T], best first. marginals: [B, T, S].
Answer = tuple[Tensor, ...]


@dataclass(frozen=True)
class Method:
    """A call that is timed, and how its answer is read, which is not.

    The answer is judged as one to ``question`` about ``problem``.
    """

    question: str
    problem: Problem
    call: Callable[[], Any]
    read: Callable[[Any], Answer]
    compiles: bool = False  # at its first call
    tolerance: float | None = None  # of its scores, if coarser than the dtype's
    threads: int | None = None  # of PyTorch and smoothsp; as the process has, if None

    def call_and_read(self) -> Answer:
        return self.read(self.call())


@dataclass(frozen=True)
class Refusal:
    """Why a method that could answer is not called."""

    reason: str


def with_gradients(
    loss: Callable[[], Tensor], potentials: tuple[Tensor, ...]
) -> Callable[[], Answer]:
    """The loss and its gradients in the potentials, from one call."""

    def call() -> Answer:
        value = loss()
        return value, *torch.autograd.grad(value, potentials)

    return call


def alone(answer: Tensor) -> Answer:
    return (answer,)
