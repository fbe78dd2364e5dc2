"""Scorers of sequence estimators, for the argument ``scoring`` of scikit-learn.

scikit-learn takes strings for its own scorers alone. Pass the functions of this module
themselves: ``GridSearchCV(ChainCRF(), {"C": [1, 10]}, scoring=scorers.span_f1)``.
"""

from itertools import chain
from typing import Any

import numpy as np

from smoothsp import metrics
from smoothsp.linear.estimators import sequences
from smoothsp.schemes import Alias, Scheme

__all__ = ["sequence_accuracy", "span_f1", "token_accuracy"]


def token_accuracy(estimator: Any, X: Any, y: Any) -> float:
    """Fraction of tags that are predicted correctly."""
    gold, predicted = _gold_and_predicted_tags(estimator, X, y)
    pairs = list(zip(chain(*gold), chain(*predicted), strict=True))
    return sum(bool(a == b) for a, b in pairs) / max(len(pairs), 1)


def sequence_accuracy(estimator: Any, X: Any, y: Any) -> float:
    """Fraction of sequences whose tags are all predicted correctly."""
    gold, predicted = _gold_and_predicted_tags(estimator, X, y)
    return sum(
        gold_tags == predicted_tags
        for gold_tags, predicted_tags in zip(gold, predicted, strict=True)
    ) / max(len(gold), 1)


def span_f1(
    estimator: Any,
    X: Any,
    y: Any,
    scheme: Scheme | Alias | None = None,
    strict: bool = False,
) -> float:
    """F1 of exact labelled spans, in [0, 1].

    Parameters
    ----------
    estimator
        A fitted estimator whose ``predict`` returns a sequence of tags for each
        sentence, or a pipeline that ends in one.
    X, y
        Sentences and their tags, as ``predict`` and ``fit`` take them.
    scheme, strict
        As in ``metrics.span_f1``. Set them with ``functools.partial(span_f1,
        scheme="BIO", strict=True)``.

    Examples
    --------
    >>> from sklearn.model_selection import cross_val_score
    >>> from smoothsp.linear import ChainCRF, scorers
    >>> X = [[["Ada"], ["met"]], [["met"], ["Bob"], ["Ada"]]] * 2
    >>> y = [["B-PER", "O"], ["O", "B-PER", "B-PER"]] * 2
    >>> cross_val_score(ChainCRF(C=10), X, y, scoring=scorers.span_f1, cv=2)
    array([1., 1.])
    """
    gold, predicted = _gold_and_predicted_tags(estimator, X, y)
    return metrics.span_f1(gold, predicted, scheme=scheme, strict=strict)[2]


def _gold_and_predicted_tags(
    estimator: Any, X: Any, y: Any
) -> tuple[list[list[Any]], list[list[Any]]]:
    """Gold and predicted tags of each sentence, of equal lengths."""
    predicted = [np.asarray(tags).tolist() for tags in estimator.predict(X)]
    sequences.flatten_tags(y, np.array([len(tags) for tags in predicted]))
    return [np.asarray(tags).tolist() for tags in y], predicted
