"""Objectives of the three SVMs in plain numpy, their optima by a general solver."""

import cvxpy as cp
import numpy as np

from smoothsp.linear import CrammerSingerSVC, HingeSVC, WestonWatkinsSVC

MODELS = (WestonWatkinsSVC, CrammerSingerSVC, HingeSVC)
MULTICLASS = MODELS[:2]


def blobs(n, d, k, seed=0, dtype=np.float64):
    """Overlapping classes, each with one sample at least."""
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(k), rng.integers(k, size=n - k)])
    X = rng.normal(size=(k, d))[y] + rng.normal(size=(n, d))
    return X.astype(dtype), y


def data_for(model, seed=0, dtype=np.float64):
    return blobs(40, 4, 2 if model is HingeSVC else 5, seed, dtype)


def violations(scores, y, costs=None):
    """``cost(y, j) - (z_y - z_j)``, 0 at y."""
    n, k = scores.shape
    costs = 1 - np.eye(k) if costs is None else costs
    return costs[y] - (scores[np.arange(n), y][:, None] - scores)


def losses(model, scores, y, costs=None):
    """Loss of each sample, before it is multiplied by C."""
    if model is HingeSVC:
        return np.maximum(0, 1 - np.where(y == 1, 1, -1) * scores.ravel())
    found = violations(scores, y, costs)
    if model is CrammerSingerSVC:
        return found.max(1)
    return np.maximum(0, found).sum(1)


def primal(model, W, X, y, C, costs=None):
    """Objective of weights ``(outputs, features)``; C is a number or one a sample."""
    W, X = np.asarray(W, np.float64), np.asarray(X, np.float64)
    loss = losses(model, X @ W.T, y, costs)
    return (W**2).sum() / 2 + float(np.sum(C * loss))


def optimum(model, X, y, C, costs=None):
    """The minimum of ``primal``, by a general solver."""
    n, d = X.shape
    k = int(y.max()) + 1
    C = np.broadcast_to(np.asarray(C, float), n)
    W = cp.Variable((1 if model is HingeSVC else k, d))
    if model is HingeSVC:
        loss = cp.pos(1 - cp.multiply(np.where(y == 1, 1, -1), (X @ W.T)[:, 0]))
    else:
        costs = 1 - np.eye(k) if costs is None else costs
        scores = X @ W.T
        own = cp.sum(cp.multiply(np.eye(k)[y], scores), axis=1, keepdims=True)
        margins = costs[y] - own @ np.ones((1, k)) + scores
        if model is CrammerSingerSVC:
            loss = cp.max(margins, axis=1)
        else:
            # the own class costs max(0, 0)
            loss = cp.sum(cp.pos(margins), axis=1)
    goal = cp.Minimize(cp.sum_squares(W) / 2 + C @ loss)
    return cp.Problem(goal).solve(solver=cp.CLARABEL)


def all_rows(model):
    """Weights of all classes: of two, the estimators keep the difference.

    At every step those of the first are those of the second, negated.
    """
    W = model.coef_
    if not isinstance(model, HingeSVC) and len(model.classes_) == 2:
        return np.concatenate([-W, W]) / 2
    return W
