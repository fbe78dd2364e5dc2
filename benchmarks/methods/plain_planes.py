"""Cutting planes as a page of numpy writes them: the bar for ours, and SVM-perf's loss.

All cuts are kept, and the quadratic programme over them is solved by pairwise steps to
a thousandth of the gap, from where the last one ended.

Source: Teo, Vishwanathan, Smola and Le, "Bundle Methods for Regularized Risk
Minimization", algorithm 2; Joachims, "A Support Vector Method for Multivariate
Performance Measures", algorithm 3.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

Risk = Callable[[np.ndarray], tuple[float, np.ndarray]]


def hinge(X: Any, y: np.ndarray) -> Risk:
    """The mean hinge of two classes."""

    def risk(w: np.ndarray) -> tuple[float, np.ndarray]:
        short = 1 - y * (X @ w)
        active = short > 0
        return short[active].sum() / len(y), X.T @ (-y * active) / len(y)

    return risk


def roc_area(X: Any, y: np.ndarray) -> Risk:
    """The mean hinge of pairs, by one sort of all scores."""
    positive = y > 0
    pairs = positive.sum() * (~positive).sum()

    def risk(w: np.ndarray) -> tuple[float, np.ndarray]:
        scores = X @ w
        order = np.argsort(scores - positive)
        up = positive[order]
        counts = np.empty(len(y))
        # negatives above a positive less 1, and positives below a negative
        counts[order] = np.where(up, np.cumsum(~up[::-1])[::-1], -np.cumsum(up))
        share = -counts / pairs
        value = counts[positive].sum() / pairs + share @ scores
        return float(value), X.T @ share

    return risk


def solve(
    risk: Risk, size: int, lam: float, seconds: float, gap: float
) -> list[tuple[float, float]]:
    """Seconds and the best objective after each round."""
    start, best, w = time.perf_counter(), np.inf, np.zeros(size)
    slopes, offsets, a = np.zeros((0, size)), np.zeros(0), np.zeros(0)
    Q = np.zeros((0, 0))
    met, low = [], -np.inf
    while time.perf_counter() - start < seconds:
        value, slope = risk(w)
        best = min(best, lam / 2 * w @ w + value)
        met.append((time.perf_counter() - start, best))
        if best - low <= gap * best:
            break
        slopes = np.vstack([slopes, slope])
        offsets = np.append(offsets, value - w @ slope)
        row = slopes @ slope / lam
        Q = np.block([[Q, row[:-1, None]], [row[None]]])
        a = np.append(a, 0.0 if len(a) else 1.0)
        room = best - low if np.isfinite(low) else best
        a = pairwise(Q, offsets, a, 1e-3 * room)
        w = -(a @ slopes) / lam
        low = max(low, a @ offsets - lam / 2 * w @ w)
    return met


def pairwise(Q: np.ndarray, b: np.ndarray, a: np.ndarray, enough: float) -> np.ndarray:
    """``max b'a - a'Qa / 2`` over the simplex."""
    rise = b - Q @ a
    for _ in range(100 * len(b)):
        into = rise.argmax()
        out = np.where(a > 0, rise, np.inf).argmin()
        if rise[into] - rise[out] <= enough:
            break
        bend = Q[into, into] + Q[out, out] - 2 * Q[into, out]
        step = min(a[out], (rise[into] - rise[out]) / max(bend, 1e-300))
        a[into] += step
        a[out] -= step
        rise -= step * (Q[:, into] - Q[:, out])
    return a
