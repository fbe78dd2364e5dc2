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
BATCH = 16  # in a batch


def decode(task: Task, w: np.ndarray, dev: Split) -> tuple[list[int], float]:
    """Labels of all tokens held out, and the share of documents with a proof."""
    weights, transitions, start, end = task.dev.split(w)
    scores = task.features @ weights
    sentence_ends = np.cumsum([len(tags) for tags in dev.tags])
    scores[sentence_ends - 1] += end
    scores[sentence_ends[:-1]] += start
    scores[0] += start
    steps = np.repeat(transitions[None], len(scores), 0)
    steps[sentence_ends[:-1]] = 0
    words = [token[0] for tokens in dev.tokens for token in tokens]
    borders = [n for n, (a, b) in enumerate(pairwise(dev.documents)) if a != b]
    stops = [0, *sentence_ends[borders], len(words)]
    documents = [slice(*x) for x in pairwise(stops)]
    labels, num_exact = [], 0
    for first in range(0, len(documents), BATCH):
        batch = documents[first : first + BATCH]
        batch_labels, batch_exact = _decode_batch(
            [torch.from_numpy(scores[x]) for x in batch],
            [torch.from_numpy(steps[x][1:]) for x in batch],
            [_repeated_positions(words[x]) for x in batch],
            _type_penalties(task.labels),
        )
        labels += batch_labels
        num_exact += batch_exact
    return labels, num_exact / len(documents)


def _decode_batch(
    scores: list[torch.Tensor],
    steps: list[torch.Tensor],
    repeated: list[list[list[int]]],
    penalties: torch.Tensor,
) -> tuple[list[int], int]:
    """Labels of a batch of documents, and how many have a proof."""
    S = len(penalties)
    positions = [
        torch.tensor([*chain(*groups)], dtype=torch.int64) for groups in repeated
    ]
    lengths = torch.tensor([len(x) for x in scores])
    repeats = torch.tensor([len(x) for x in positions])
    text = Chain(
        pad_sequence(scores, batch_first=True),
        pad_sequence(steps, batch_first=True),
        lengths=lengths,
    )
    if not repeats.any():
        return _real_labels(text.decode()[1]), len(scores)
    between = torch.zeros(len(scores), int(repeats.max()) - 1, S, S).double()
    for row, groups in enumerate(repeated):
        offset = 0
        for group in groups:
            between[row, offset : offset + len(group) - 1] = -penalties
            offset += len(group)
    nothing = torch.zeros(len(scores), int(repeats.max()), S).double()
    occurrences = Chain(nothing, between, lengths=repeats)
    text_positions = pad_sequence(positions, batch_first=True, padding_value=-1)
    order = torch.arange(text_positions.shape[1]).where(text_positions >= 0, -1)
    cells = [
        torch.stack(torch.broadcast_tensors(x[..., None], torch.arange(S)), -1)
        .masked_fill((x < 0)[..., None, None], -1)
        .flatten(1, 2)
        for x in (text_positions, order)
    ]
    chains = {"text": text, "occurrences": occurrences}
    graph = FactorGraph(chains, [("text", cells[0], "occurrences", cells[1])])
    _, y, exact, _ = graph.approximate()
    return _real_labels(y["text"]), int(exact.sum())


def _real_labels(y: torch.Tensor) -> list[int]:
    """Labels of all documents, without padding."""
    return y[y >= 0].tolist()


def _repeated_positions(words: list[str]) -> list[list[int]]:
    """Places of each capitalised word that is there more than once."""
    positions = defaultdict(list)
    for position, word in enumerate(words):
        if word[0].isupper():
            positions[word].append(position)
    return [group for group in positions.values() if len(group) > 1]


def _type_penalties(labels: list[str]) -> torch.Tensor:
    """What two tags of one word pay, ``(labels, labels)``."""
    types = np.array([label.partition("-")[2] for label in labels])
    is_outside = types == ""
    differs = types[:, None] != types
    penalty = np.where(is_outside[:, None] | is_outside, NO_ENTITY, OTHER_TYPE)
    return torch.from_numpy(np.where(differs, penalty, 0.0))
