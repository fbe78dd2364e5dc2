"""Texts of several classes, drawn: sparse rows of unit length."""

from functools import cache
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.preprocessing import normalize

# Words that a class has of its own, how often a word is one of them, wrong labels.
OWN_WORDS, OWN_SHARE, WRONG = 200, 0.35, 0.05


@cache
def drawn_texts(
    samples: int, features: int, classes: int, words: int = 60, seed: int = 0
) -> tuple[Any, np.ndarray]:
    """``(X, y)``: logarithms of counts, by Zipf's law in a class and among all."""
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=samples)
    shape = samples, words
    common = rng.permutation(features)[zipf(rng, features, shape)]
    own_words = rng.integers(features, size=(classes, OWN_WORDS))
    own = own_words[y[:, None], zipf(rng, OWN_WORDS, shape)]
    columns = np.where(rng.random(shape) < OWN_SHARE, own, common)
    rows = np.repeat(np.arange(samples), words)
    ones = np.ones(samples * words)
    X = sparse.csr_matrix((ones, (rows, columns.ravel())), (samples, features))
    X.sum_duplicates()
    X.data = 1 + np.log(X.data)
    wrong = rng.random(samples) < WRONG
    y = np.where(wrong, rng.integers(classes, size=samples), y)
    # every class is there
    y[:classes] = np.arange(classes)
    return normalize(X), y


def zipf(rng: np.random.Generator, size: int, shape: tuple[int, ...]) -> np.ndarray:
    weights = 1 / np.arange(1, size + 1)
    return rng.choice(size, size=shape, p=weights / weights.sum())
