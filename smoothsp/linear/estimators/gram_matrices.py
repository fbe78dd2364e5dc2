"""Gram matrices that are given, and the width of the rbf kernel."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from smoothsp.linear.inputs import checks


def checked(X: NDArray[Any]) -> NDArray[Any]:
    """X, if it can be the Gram matrix of the samples."""
    if X.shape[0] != X.shape[1]:
        raise ValueError(
            "X: expected a Gram matrix (samples, samples) for "
            f'kernel="precomputed", got {X.shape}'
        )
    if not np.allclose(X, X.T) or (X.diagonal() < 0).any():
        raise ValueError(
            "X: expected a symmetric Gram matrix with a diagonal of at least 0"
        )
    return X


def rbf_gamma(gamma: object, X: Any) -> float:
    """The width as a number; scikit-learn's rules for ``"scale"`` and ``"auto"``."""
    if not isinstance(gamma, str):
        return checks.positive("gamma", gamma)
    checks.choice("gamma", gamma, ("scale", "auto"))
    if gamma == "auto":
        return 1 / int(X.shape[1])
    squares = X.multiply(X) if sparse.issparse(X) else np.square(X)
    variance = float(squares.mean() - X.mean() ** 2)
    return 1 / (int(X.shape[1]) * variance) if variance > 0 else 1.0
