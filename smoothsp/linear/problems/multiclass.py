"""Multiclass classification with sparse features as a linear problem."""

from typing import Any

import numpy as np

from smoothsp.linear.problems import _rows
from smoothsp.linear.problems.chain import ChainProblem


class MulticlassProblem(ChainProblem):
    r"""Classification as a linear structured SVM: sequences of length one.

    .. math:: P(w) = \tfrac{\lambda}{2} \|W\|^2
        + \tfrac{1}{n} \sum_i \omega_i \max_j
        \left[ \Delta(y_i, j) + (W_j - W_{y_i}) x_i \right]

    Parameters
    ----------
    features
        ``(n, features)``, dense or a scipy sparse matrix.
    labels
        ``(n,)``: integers from 0 to ``num_labels - 1``.
    num_labels
        Number of classes, at least 2; by default the largest label plus one.
    cost
        ``(num_labels, num_labels)``, from the gold class to the predicted one; by
        default 1 for a wrong class.
    cost_scale
        ``(n,)``, positive: factor of the cost of a sample, by default 1.
    loss_scale
        ``(n,)``, at least 0: omega, the factor of the loss of a sample; by default 1.

    Raises
    ------
    ValueError
        For inconsistent shapes, values or indices; the message names the place.
    TypeError
        If features are not a matrix of numbers, or labels not integers.

    Notes
    -----
    Weights are W of ``(features, num_labels)`` row by row.

    Examples
    --------
    >>> import numpy as np
    >>> problem = MulticlassProblem(np.eye(3), [0, 1, 2])
    >>> len(problem), problem.num_weights
    (3, 9)
    """

    transitions = False

    def __init__(
        self,
        features: Any,
        labels: Any,
        *,
        num_labels: int | None = None,
        cost: Any = None,
        cost_scale: Any = None,
        loss_scale: Any = None,
    ) -> None:
        rows = _rows.as_rows("features", features)
        n = len(rows.indptr) - 1
        offsets = _rows.as_offsets(np.arange(n + 1), None, n)
        labels, count = _rows.as_labels(labels, n, num_labels)
        self._set_arrays(
            rows,
            labels,
            offsets,
            _rows.as_cost_matrix(cost, count),
            _rows.as_cost_scales(cost_scale, n),
            False,
            _rows.as_loss_scale(loss_scale, n),
        )
