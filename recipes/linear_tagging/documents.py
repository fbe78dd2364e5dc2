"""Whole documents of ``conll_linear.py``: a name has one type wherever it stands.

Two chains share the tags of capitalised words that a document repeats. One follows the
text; the other follows each word from one occurrence to the next, and pays for tags of
different types.
"""

from collections import defaultdict
from itertools import chain, pairwise

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from linear_tagging.data import Split, Task
from smoothsp.oracles import Chain, FactorGraph

# Penalties, chosen on the last 15 % of eng.train: two types; a type and no entity.
OTHER_TYPE, NO_ENTITY = 1.0, 0.5
DOCUMENTS = 16  # in a batch


def decode(task: Task, w: np.ndarray, dev: Split) -> tuple[list[int], float]:
    """Labels of all tokens held out, and the share of documents with a proof."""
    weights, moves, start, end = task.other.split(w)
    scores = task.features @ weights
    ends = np.cumsum([len(tags) for tags in dev.tags])
    scores[ends - 1] += end
    scores[ends[:-1]] += start
    scores[0] += start
    steps = np.repeat(moves[None], len(scores), 0)
    steps[ends[:-1]] = 0
    words = [token[0] for tokens in dev.tokens for token in tokens]
    borders = [n for n, (a, b) in enumerate(pairwise(dev.documents)) if a != b]
    stops = [0, *ends[borders], len(words)]
    places = [slice(*x) for x in pairwise(stops)]
    labels, proven = [], 0
    for first in range(0, len(places), DOCUMENTS):
        some = places[first : first + DOCUMENTS]
        found, exact = _best(
            [torch.from_numpy(scores[x]) for x in some],
            [torch.from_numpy(steps[x][1:]) for x in some],
            [_repeated(words[x]) for x in some],
            _penalties(task.labels),
        )
        labels += found
        proven += exact
    return labels, proven / len(places)


def _best(
    scores: list[torch.Tensor],
    steps: list[torch.Tensor],
    repeated: list[list[list[int]]],
    penalties: torch.Tensor,
) -> tuple[list[int], int]:
    """Labels of a batch of documents, and how many have a proof."""
    S = len(penalties)
    places = [torch.tensor([*chain(*groups)], dtype=torch.int64) for groups in repeated]
    lengths = torch.tensor([len(x) for x in scores])
    repeats = torch.tensor([len(x) for x in places])
    text = Chain(
        pad_sequence(scores, batch_first=True),
        pad_sequence(steps, batch_first=True),
        lengths=lengths,
    )
    if not repeats.any():
        return _labels(text.decode()[1]), len(scores)
    between = torch.zeros(len(scores), int(repeats.max()) - 1, S, S).double()
    for row, groups in enumerate(repeated):
        at = 0
        for group in groups:
            between[row, at : at + len(group) - 1] = -penalties
            at += len(group)
    nothing = torch.zeros(len(scores), int(repeats.max()), S).double()
    occurrences = Chain(nothing, between, lengths=repeats)
    inside = pad_sequence(places, batch_first=True, padding_value=-1)
    order = torch.arange(inside.shape[1]).where(inside >= 0, -1)
    cells = [
        torch.stack(torch.broadcast_tensors(x[..., None], torch.arange(S)), -1)
        .masked_fill((x < 0)[..., None, None], -1)
        .flatten(1, 2)
        for x in (inside, order)
    ]
    chains = {"text": text, "occurrences": occurrences}
    graph = FactorGraph(chains, [("text", cells[0], "occurrences", cells[1])])
    _, y, exact, _ = graph.approximate()
    return _labels(y["text"]), int(exact.sum())


def _labels(y: torch.Tensor) -> list[int]:
    """Labels of all documents, without padding."""
    return y[y >= 0].tolist()


def _repeated(words: list[str]) -> list[list[int]]:
    """Places of each capitalised word that is there more than once."""
    places = defaultdict(list)
    for at, word in enumerate(words):
        if word[0].isupper():
            places[word].append(at)
    return [found for found in places.values() if len(found) > 1]


def _penalties(labels: list[str]) -> torch.Tensor:
    """What two tags of one word pay, ``(labels, labels)``."""
    types = np.array([label.partition("-")[2] for label in labels])
    none = types == ""
    other = types[:, None] != types
    paid = np.where(none[:, None] | none, NO_ENTITY, OTHER_TYPE)
    return torch.from_numpy(np.where(other, paid, 0.0))
