"""A plain active set in NumPy: the peer of sparse mixtures of chains."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def viterbi(emissions: Floats, transitions: Floats) -> Ints:
    """Best labels of one chain."""
    T, S = emissions.shape
    alpha, back = emissions[0], np.empty((T, S), np.int64)
    for t in range(1, T):
        scores = alpha[:, None] + transitions
        back[t] = scores.argmax(0)
        alpha = scores.max(0) + emissions[t]
    y = np.empty(T, np.int64)
    y[-1] = alpha.argmax()
    for t in range(T - 1, 0, -1):
        y[t - 1] = back[t, y[t]]
    return y


def sparse_maximum(
    emissions: Floats, transitions: Floats, strength: float, rounding: float
) -> float:
    """The regularised maximum of one chain.

    Source: Niculae et al., "SparseMAP: Differentiable Sparse Structured Inference"
    (2018), algorithm 1, with equations solved anew each time.
    """
    T, S = emissions.shape
    time = np.arange(T)

    def asked(mixture: Floats) -> tuple[Floats, float]:
        y = viterbi(emissions - strength * mixture, transitions)
        parts = np.zeros((T, S))
        parts[time, y] = 1
        score = emissions[time, y].sum() + transitions[y[:-1], y[1:]].sum()
        return parts.ravel(), score / strength

    parts, score = asked(np.zeros((T, S)))
    A, s, p = parts[None], np.array([score]), np.ones(1)
    while True:
        mixture = p @ A
        value = p @ s - mixture @ mixture
        parts, score = asked(mixture.reshape(T, S))
        gap = score - parts @ mixture - value
        known = (parts == A).all(1).any()
        if known or gap <= rounding * (1 + abs(s).max()):
            return float(strength * (value + mixture @ mixture / 2))
        A, s, p = np.vstack([A, parts]), np.append(s, score), np.append(p, 0.0)
        while True:
            k = len(p)
            system = np.ones((k + 1, k + 1))
            system[:k, :k], system[k, k] = A @ A.T, 0
            found = np.linalg.lstsq(system, np.append(s, 1.0), rcond=None)[0][:k]
            if (found > 0).all():
                p = found
                break
            low = found <= 0
            steps = np.where(low, p / np.where(low, p - found, 1.0), np.inf)
            # who is new, and would lose at once what it does not have
            out = int(steps.argmin())
            p = np.maximum(p + min(steps[out], 1.0) * (found - p), 0)
            A, s, p = (np.delete(x, out, 0) for x in (A, s, p))
