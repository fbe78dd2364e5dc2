"""Single runs of ``ocr_words.py``: a variant of BCFW."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from runs.interrupts import raise_if_interrupted
from smoothsp.linear import Certificate
from smoothsp.linear.problems import ChainProblem
from smoothsp.linear.solvers import BCFW

Show = Callable[[str], Any]
Result = dict[str, Any]


@dataclass(frozen=True)
class Variant:
    """One of the eight combinations."""

    sampling: str
    steps: str
    cache: bool

    def __str__(self) -> str:
        name = "BCPFW" if self.steps == "pairwise" else "BCFW"
        name += " + gap sampling" if self.sampling == "gap" else ""
        return name + (" + cache" if self.cache else "")

    @property
    def options(self) -> dict[str, Any]:
        return {"sampling": self.sampling, "steps": self.steps, "cache": self.cache}


VARIANTS = tuple(
    Variant(sampling, steps, cache)
    for sampling in ("uniform", "gap")
    for steps in ("fw", "pairwise")
    for cache in (False, True)
)


def variant_key(setting: str, lam: float, variant: Variant, seed: int) -> str:
    return f"{setting} lambda={lam:.15g} {variant} seed={seed}"


def train(
    variant: Variant,
    train: ChainProblem,
    test: ChainProblem,
    lam: float,
    seed: int,
    limits: dict[str, Any],
    show: Show,
) -> Result:
    """From nothing to the gap, or to the end of a budget."""

    def callback(record: Certificate) -> None:
        show(f"gap {record.gap:.2e}")

    solver = BCFW(lam=lam, seed=seed, callback=callback, **limits, **variant.options)
    solution = raise_if_interrupted(solver.solve(train))
    n = len(train)
    return {
        "history": [
            {"passes": r.passes, "calls": r.oracle_calls / n, "seconds": r.seconds}
            | {"primal": r.primal, "dual": r.dual, "gap": r.gap}
            for r in solution.history
        ],
        "passes": solution.passes,
        "oracle_passes": solution.oracle_calls / n,
        "seconds": solution.seconds,
        "gap": solution.gap,
        "primal": solution.primal,
        "converged": solution.converged,
        **errors(test, solution.w),
    }


def errors(test: ChainProblem, w: np.ndarray) -> Result:
    """Shares of wrong letters and of words with one, in percent."""
    wrong = test.decode(w) != test.labels
    words = np.add.reduceat(wrong, test.offsets[:-1]) > 0
    return {
        "letter_error": 100 * float(wrong.mean()),
        "word_error": 100 * float(words.mean()),
    }
