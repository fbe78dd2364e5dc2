"""LIBLINEAR's dual solvers, called as its own Python module calls them.

Reading the matrix into LIBLINEAR's nodes is not timed.
"""

from importlib.util import find_spec
from typing import Any

import numpy as np

from training import svm_objectives
from training.races import Answer, Racer

PACKAGE, NAME = "liblinear-official", "LIBLINEAR"
BINARY, CRAMMER_SINGER = 3, 4


def installed() -> bool:
    return find_spec("liblinear") is not None


def racer(X: Any, y: np.ndarray, solver: int, epsilon: float, C: float) -> Racer:
    """``train -s solver -e epsilon -c C``, without a bias."""
    from liblinear.liblinearutil import parameter, problem, train

    nodes = problem(y, X)
    options = parameter(f"-s {solver} -c {C} -e {epsilon} -q")

    def read(model: Any) -> Answer:
        W = weights(model, X.shape[1])
        if solver == BINARY:
            return Answer(svm_objectives.binary(W[0] - W[-1], X, y, C))
        return Answer(svm_objectives.crammer_singer(W, X, y, C))

    return Racer(f"{NAME} -e {epsilon:g}", lambda: train(nodes, options), read)


def weights(model: Any, features: int) -> np.ndarray:
    """``(classes, features)`` in the order of the labels; of two, the difference."""
    labels = np.array(model.get_labels(), dtype=int)
    several = model.get_nr_class() if model.param.solver_type == CRAMMER_SINGER else 1
    flat = np.ctypeslib.as_array(model.w, shape=(features * several,))
    W = flat.reshape(features, several).T
    if several == 1:
        # positive for the label that comes first
        half = W[0] / 2 if labels[0] == 1 else -W[0] / 2
        return np.stack([half, -half])
    return W[np.argsort(labels)].copy()
