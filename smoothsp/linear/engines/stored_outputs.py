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
    h: float = 0.0

    def holds(self, corner: Corner) -> bool:
        """Whether it is the same output; without a key, whether nothing tells."""
        mine = self.corner
        if mine.key is not None and corner.key is not None:
            return bool(mine.key == corner.key)
        return mine.loss == corner.loss and is_equal(mine.psi, corner.psi)


@dataclass
class Step:
    """A direction: what it adds to w_i and to ell_i, its slope, how far it may go."""

    kind: str
    w: Vector
    ell: float
    num: float
    largest: float

    def size(self, lam: float) -> float:
        """``num / (lambda ||w_d||^2)`` within 0 and ``largest``."""
        den = lam * squared_norm(self.w)
        if den <= 0:
            return self.largest if self.num > 0 else 0.0
        return min(max(self.num / den, 0.0), self.largest)

    def gain(self, lam: float) -> float:
        """``gamma num - gamma^2 den / 2``."""
        gamma = self.size(lam)
        return gamma * self.num - gamma**2 * lam * squared_norm(self.w) / 2


def argmin_score(slots: list[StoredOutput]) -> StoredOutput:
    """The first with the smallest h but for rounding."""
    found = slots[0]
    for slot in slots[1:]:
        if slot.h < found.h - TIE:
            found = slot
    return found


def argmax_score(slots: list[StoredOutput]) -> StoredOutput:
    """The first with the largest h but for rounding."""
    found = slots[0]
    for slot in slots[1:]:
        if slot.h > found.h + TIE:
            found = slot
    return found


def gold_output(zero: Vector) -> StoredOutput:
    """The gold output with all the weight, its psi ``zero``."""
    return StoredOutput(Corner(zero, 0.0, None), alpha=1.0)


def save_outputs(
    store: list[list[StoredOutput]], rows: DenseVectorStore
) -> dict[str, NDArray[Any]]:
    """Arrays of all slots; keys are no arrays, psi and loss stand for them."""
    slots = [slot for slots in store for slot in slots]
    return {
        "store_sizes": np.array([len(slots) for slots in store]),
        **rows.save("store_psi", [slot.corner.psi for slot in slots]),
        "store_loss": np.array([slot.corner.loss for slot in slots]),
        "store_alpha": np.array([slot.alpha for slot in slots]),
    }


def load_outputs(
    state: dict[str, NDArray[Any]], rows: DenseVectorStore
) -> list[list[StoredOutput]]:
    """The slots that were saved."""
    known = zip(
        rows.load("store_psi", state),
        state["store_loss"],
        state["store_alpha"],
        strict=True,
    )
    slots = [
        StoredOutput(Corner(psi, float(loss), None), float(alpha))
        for psi, loss, alpha in known
    ]
    ends = np.cumsum(state["store_sizes"])
    return [
        slots[end - size : end]
        for end, size in zip(ends, state["store_sizes"], strict=True)
    ]
