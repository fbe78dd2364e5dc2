"""Lipschitz constants of gradients: bounds and estimates."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def largest_eigenvalue(
    apply: Callable[[Floats], Floats],
    size: int,
    *,
    tol: float = 1e-3,
    max_products: int = 100,
    seed: int = 0,
) -> float:
    """Estimate the largest eigenvalue of a positive semidefinite operator from below.

    Parameters
    ----------
    apply
        Product of the operator with a vector.
    size
        Length of the vector.
    tol
        Relative change at which to stop.
    max_products
        Maximum number of products.
    seed
        Seed of the first vector.

    Notes
    -----
    Power iteration. The estimate may be a few percent too small: multiply it by 1.05,
    or start an adaptive search there.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.diag([3.0, 1.0])
    >>> round(largest_eigenvalue(lambda v: X.T @ (X @ v), 2), 2)
    9.0
    """
    v = np.random.default_rng(seed).standard_normal(size)
    v /= max(float(np.linalg.norm(v)), 1e-300)
    eigenvalue = 0.0
    for _ in range(max_products):
        v = apply(v)
        norm = float(np.linalg.norm(v))
        if not norm > 0:
            return 0.0
        v = v / norm
        if abs(norm - eigenvalue) <= tol * norm:
            return norm
        eigenvalue = norm
    return eigenvalue


def estimate_curvature(f: Any, x: Floats) -> float:
    """Estimate L from below by the curvature along the gradient."""
    _, gradient, _ = f.value_and_gradient(x)
    norm = float(np.linalg.norm(gradient))
    if not norm > 0:
        return 1.0
    # Finite difference of gradients: a step of 1e-4 relative to w balances rounding.
    step = 1e-4 * (1 + float(np.linalg.norm(x))) / norm
    _, gradient_at_step, _ = f.value_and_gradient(x - step * gradient)
    return max(
        float(np.linalg.norm(gradient_at_step - gradient)) / (step * norm), 1e-12
    )
