"""Training on sentences of which some words have no tag, or one of several."""

from itertools import groupby

import torch
from torch import Tensor, nn

from corpora.column_files import Sentence
from corpora.partial_tags import is_known
from smoothsp import LinearChain
from smoothsp.metrics import spans
from smoothsp.models.segments import SegmentHead


def numbered(
    labels: list[str], sentences: list[Sentence]
) -> tuple[list[list[int]], Tensor | None]:
    """Tags as numbers, and bool ``(number, label)``: which labels each may be.

    None if all words have one label; then numbers are those of the labels.
    """
    number = {label: n for n, label in enumerate(labels)}
    for sentence in sentences:
        for tag in sentence.tags:
            number.setdefault(tag, len(number))
    tags = [[number[tag] for tag in sentence.tags] for sentence in sentences]
    if all(map(is_known, number)):
        return tags, None
    allowed = [
        [not tag or label in tag.split("\t") for label in labels] for tag in number
    ]
    return tags, torch.tensor(allowed)


def loss_of(
    head: LinearChain | SegmentHead,
    emissions: Tensor,
    labels: Tensor,
    mask: Tensor,
    criterion: nn.Module,
) -> Tensor:
    """Loss of the labels that words may have, bool ``(batch, time, label)``."""
    allowed = head.allowed(labels) if isinstance(head, SegmentHead) else labels
    value: Tensor = criterion(head.structure(emissions, mask), allowed)
    return value


def longest_segment(sentences: list[Sentence]) -> int:
    """Words of the longest span; where tags are unknown, of what may have to be one."""
    longest = 1
    for sentence in sentences:
        if all(map(is_known, sentence.tags)):
            sizes = [last + 1 - first for _, first, last in spans(sentence.tags)]
        else:
            # an unknown neighbour on each side may have to belong to it
            runs = groupby(sentence.tags, lambda tag: tag == "O")
            sizes = [2 + _between(list(run)) for outside, run in runs if not outside]
        longest = max(longest, *sizes, 1)
    return longest


def _between(tags: list[str]) -> int:
    """How many words from the first to the last of which something is known."""
    known = [n for n, tag in enumerate(tags) if tag]
    return known[-1] + 1 - known[0] if known else 0
