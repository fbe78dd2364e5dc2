"""Stored outputs of examples, and step directions, of BCFW in numpy."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothsp._kernels.linear.working_sets import TIE_TOLERANCE
from smoothsp.linear.inputs.vectors import (
    DenseVectorStore,
    Vector,
    is_equal,
    squared_norm,
)
from smoothsp.linear.problems import Corner


@dataclass(eq=False)
class StoredOutput:
    """Stored output: features and cost, weight alpha, and cost - <w, psi>."""

    corner: Corner
    alpha: float = 0.0
    augmented_score: float = 0.0

    def is_same_output(self, corner: Corner) -> bool:
        """Whether both have equal keys, or without keys equal features and costs."""
        stored = self.corner
        if stored.key is not None and corner.key is not None:
            return bool(stored.key == corner.key)
        return stored.loss == corner.loss and is_equal(stored.psi, corner.psi)


@dataclass
class Step:
    """Step direction: changes of w_i and ell_i, block gap, and largest step size."""

    kind: str
    w: Vector
    ell: float
    gap: float
    max_step: float

    def size(self, lam: float) -> float:
        """Exact line search: ``gap / (lambda |w_d|^2)``, clipped to [0, max_step]."""
        curvature = lam * squared_norm(self.w)
        if curvature <= 0:
            return self.max_step if self.gap > 0 else 0.0
        return min(max(self.gap / curvature, 0.0), self.max_step)

    def gain(self, lam: float) -> float:
        """Increase of the dual, ``gamma gap - gamma^2 lambda |w_d|^2 / 2``."""
        gamma = self.size(lam)
        return gamma * self.gap - gamma**2 * lam * squared_norm(self.w) / 2


def argmin_score(outputs: list[StoredOutput]) -> StoredOutput:
    """First output with the smallest augmented score, up to rounding."""
    best = outputs[0]
    for output in outputs[1:]:
        if output.augmented_score < best.augmented_score - TIE_TOLERANCE:
            best = output
    return best


def argmax_score(outputs: list[StoredOutput]) -> StoredOutput:
    """First output with the largest augmented score, up to rounding."""
    best = outputs[0]
    for output in outputs[1:]:
        if output.augmented_score > best.augmented_score + TIE_TOLERANCE:
            best = output
    return best


def gold_output(zero: Vector) -> StoredOutput:
    """Gold output with weight 1; its features relative to gold are ``zero``."""
    return StoredOutput(Corner(zero, 0.0, None), alpha=1.0)


def save_outputs(
    output_cache: list[list[StoredOutput]], rows: DenseVectorStore
) -> dict[str, NDArray[Any]]:
    """Arrays of all stored outputs, without keys: psi and loss identify outputs."""
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
    """Stored outputs of each example from the arrays of ``save_outputs``."""
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
