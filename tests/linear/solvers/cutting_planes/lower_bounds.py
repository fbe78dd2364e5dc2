"""Problems on which cutting planes are as slow as their theory says."""

import numpy as np
from scipy.linalg import hadamard

from smoothsp.linear.problems import CallbackProblem


class MaxOfColumns:
    """``max_i <a_i, w>`` over columns of A; ``floor`` adds 0 to them, taken last."""

    def __init__(self, A, floor=False):
        self.A, self.floor = A, floor
        self.num_weights = len(A)
        self.asked = set()

    def __len__(self):
        return 1

    def risk(self, w):
        scores = self.A.T @ w
        best = scores.max()
        if self.floor and best < -1e-12:
            return 0.0, np.zeros(len(w))
        # in favour of a column that was not asked for
        ties = [int(i) for i in np.flatnonzero(scores >= best - 1e-12)]
        i = min(ties, key=lambda i: (i in self.asked, i))
        self.asked.add(i)
        return float(scores[i]), self.A[:, i].copy()


def orthonormal(d):
    return hadamard(d) / np.sqrt(d)


def printed(d):
    """The matrix that the paper prints: columns in pairs of opposite ones."""
    half = hadamard(d // 2)
    return np.block([[half, -half], [-half, half]]) / np.sqrt(d)


def one_example(A, seed):
    """One example and ``d + 1`` labels of 0/1 loss; ties are broken at random."""
    random = np.random.default_rng(seed)
    d = A.shape[1]

    def worst(i, w):
        values = np.append(1 + A.T @ w, 0.0)
        best = int(random.choice(np.flatnonzero(values >= values.max() - 1e-12)))
        if best == d:
            return np.zeros(len(A)), 0.0, d
        return -A[:, best], 1.0, best

    return CallbackProblem(1, len(A), worst)
