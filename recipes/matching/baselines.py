"""Partners by descriptors alone, without learning; and how good partners are."""

from collections.abc import Sequence

import torch
from torch import Tensor

from matching.points import Pair
from smoothsp.oracles import Matching

# Of the distances to the nearest and to the second: Lowe (2004), section 7.1.
RATIO = 0.8


def nearest(pair: Pair) -> Tensor:
    """The column that looks most like each row."""
    if not len(pair.second):
        return torch.full((len(pair.first),), -1)
    return _distances(pair).argmin(1)


def mutual(pair: Pair) -> Tensor:
    """The same, where the row is also what looks most like the column."""
    columns = nearest(pair)
    if not len(columns) or not len(pair.second):
        return columns
    rows = _distances(pair).argmin(0)
    is_mutual = rows[columns] == torch.arange(len(columns))
    return torch.where(is_mutual, columns, -1)


def ratio_test(pair: Pair) -> Tensor:
    """The mutual ones that look far more alike than the second best does."""
    columns = mutual(pair)
    if len(pair.second) < 2 or not len(columns):
        return columns
    near = _distances(pair).topk(2, 1, largest=False).values
    return torch.where(near[:, 0] < RATIO * near[:, 1], columns, -1)


def assignment(pair: Pair) -> Tensor:
    """The matching of as many as can be with the least sum of distances."""
    if not len(pair.first) or not len(pair.second):
        return torch.full((len(pair.first),), -1)
    return Matching(-_distances(pair)[None]).decode()[1][0]


BASELINES = {
    "nearest neighbour": nearest,
    "nearest, mutual": mutual,
    "nearest, mutual, ratio test": ratio_test,
    "assignment of distances": assignment,
}


def _distances(pair: Pair) -> Tensor:
    similarity = pair.first.descriptors @ pair.second.descriptors.T
    return (2 - 2 * similarity).clamp(min=0).sqrt()


def scores(pairs: Sequence[Pair], predictions: Sequence[Tensor]) -> dict[str, float]:
    """Over all points of the first views.

    ``accuracy`` is the share of points that are given their partner, or none where
    they have none; ``precision`` and ``recall`` are those of partners, ``f1`` of both.
    """
    true = torch.cat([pair.columns for pair in pairs])
    predicted = torch.cat(list(predictions))
    num_correct = int(((predicted == true) & (true >= 0)).sum())
    num_predicted, num_true = int((predicted >= 0).sum()), int((true >= 0).sum())
    return {
        "accuracy": float((predicted == true).double().mean()) if len(true) else 1.0,
        "precision": num_correct / num_predicted if num_predicted else 0.0,
        "recall": num_correct / num_true if num_true else 0.0,
        "f1": 2 * num_correct / (num_predicted + num_true)
        if num_predicted + num_true
        else 0.0,
    }
