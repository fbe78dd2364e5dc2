"""Few dense features of several classes, drawn: integers, as sensors give them."""

from functools import cache

import numpy as np
from scipy import sparse

# Shapes of a class, how often each occurs, and the noise around a shape.
SHAPES, SHARES, NOISE = 3, (0.6, 0.3, 0.1), 14.0


@cache
def drawn_measurements(
    samples: int, features: int, classes: int, skewed: bool = False, seed: int = 0
) -> tuple[sparse.csr_matrix, np.ndarray]:
    """``(X, y)``: integers from 0 to 100 over 100; skewed: three of four in class 0."""
    rng = np.random.default_rng(seed)
    share = np.ones(classes) / classes
    if skewed:
        share = 0.25 ** np.arange(1, classes + 1)
        share /= share.sum()
    y = rng.choice(classes, size=samples, p=share)
    # every class is there
    y[:classes] = np.arange(classes)
    middle = rng.uniform(0, 100, size=(classes, 1, features))
    shapes = middle + rng.normal(0, 18, size=(classes, SHAPES, features))
    mix = 0.35 * rng.normal(size=(features, features)) + np.eye(features)
    noise = rng.normal(0, NOISE, size=(samples, features)) @ mix
    X = shapes[y, rng.choice(SHAPES, size=samples, p=SHARES)] + noise
    return sparse.csr_matrix(np.clip(np.round(X), 0, 100) / 100), y
