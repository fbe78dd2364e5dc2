"""Objectives of the SVMs, from nothing but weights."""

from typing import Any

import numpy as np


def binary(w: np.ndarray, X: Any, y: np.ndarray, C: float) -> float:
    """``1/2 |w|^2 + C sum_i max(0, 1 - y_i w'x_i)`` for labels 1 and -1."""
    w = w.astype(np.float64)
    return float(w @ w / 2 + C * np.maximum(0, 1 - y * (X @ w)).sum())


def crammer_singer(W: np.ndarray, X: Any, y: np.ndarray, C: float) -> float:
    """``1/2 |W|^2 + C sum_i max_j (1[j != y] - (w_y - w_j)'x_i)``; W [class, d]."""
    W = W.astype(np.float64)
    margins = X @ W.T
    rows = np.arange(len(y))
    margins += 1 - margins[rows, y][:, None]
    margins[rows, y] = 0
    return float((W**2).sum() / 2 + C * margins.max(1).sum())
