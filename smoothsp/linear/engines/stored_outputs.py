"""Stored outputs and directions, of the solver in plain numpy."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp._kernels.linear.working_sets import TIE
from smoothsp.linear.inputs.vectors import (
    DenseVectorStore,
    Vector,
    is_equal,
    squared_norm,
)
from smoothsp.linear.problems import Corner


@dataclass(eq=False)
class StoredOutput:
    """A stored output: its corner, its weight, and its loss less ``<w, psi>``."""

    corner: Corner
    alpha: float = 0.0
    augmented_score: float = 0.0

    def is_same_output(self, corner: Corner) -> bool:
        """Whether it is the same output; without a key, whether nothing tells."""
        stored = self.corner
        if stored.key is not None and corner.key is not None:
            return bool(stored.key == corner.key)
        return stored.loss == corner.loss and is_equal(stored.psi, corner.psi)


@dataclass
class Step:
    """A direction: what it adds to w_i and to ell_i, its slope, how far it may go."""

    kind: str
    w: Vector
    ell: float
    gap: float
    max_step: float

    def size(self, lam: float) -> float:
        """``num / (lambda ||w_d||^2)`` within 0 and ``largest``."""
        curvature = lam * squared_norm(self.w)
        if curvature <= 0:
            return self.max_step if self.gap > 0 else 0.0
        return min(max(self.gap / curvature, 0.0), self.max_step)

    def gain(self, lam: float) -> float:
        """``gamma num - gamma^2 den / 2``."""
        gamma = self.size(lam)
        return gamma * self.gap - gamma**2 * lam * squared_norm(self.w) / 2


def argmin_score(outputs: list[StoredOutput]) -> StoredOutput:
    """The first with the smallest h but for rounding."""
    best = outputs[0]
    for output in outputs[1:]:
        if output.augmented_score < best.augmented_score - TIE:
            best = output
    return best


def argmax_score(outputs: list[StoredOutput]) -> StoredOutput:
    """The first with the largest h but for rounding."""
    best = outputs[0]
    for output in outputs[1:]:
        if output.augmented_score > best.augmented_score + TIE:
            best = output
    return best


def gold_output(zero: Vector) -> StoredOutput:
    """The gold output with all the weight, its psi ``zero``."""
    return StoredOutput(Corner(zero, 0.0, None), alpha=1.0)


def save_outputs(
    output_cache: list[list[StoredOutput]], rows: DenseVectorStore
) -> dict[str, NDArray[Any]]:
    """Arrays of all slots; keys are no arrays, psi and loss stand for them."""
    outputs = [output for outputs in output_cache for output in outputs]
    return {
        "store_sizes": np.array([len(outputs) for outputs in output_cache]),
        **rows.save("store_psi", [output.corner.psi for output in outputs]),
        "store_loss": np.array([output.corner.loss for output in outputs]),
        "store_alpha": np.array([output.alpha for output in outputs]),
    }


def load_outputs(
    state: dict[str, NDArray[Any]], rows: DenseVectorStore
) -> list[list[StoredOutput]]:
    """The slots that were saved."""
    fields = zip(
        rows.load("store_psi", state),
        state["store_loss"],
        state["store_alpha"],
        strict=True,
    )
    outputs = [
        StoredOutput(Corner(psi, float(loss), None), float(alpha))
        for psi, loss, alpha in fields
    ]
    ends = np.cumsum(state["store_sizes"])
    return [
        outputs[end - size : end]
        for end, size in zip(ends, state["store_sizes"], strict=True)
    ]
