"""Sentences of which some words have no tag: their labels, and the loss of these."""

from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor, nn

from smoothsp.layers import LinearChain
from smoothsp.metrics import spans
from smoothsp.models.segments import SegmentHead
from smoothsp.schemes import PLAIN

__all__ = [
    "allowed_labels",
    "encode_labels",
    "is_single_label",
    "longest_segment",
    "partial_label_loss",
]

# By whether the word begins a span, and whether it ends it.
PREFIX = {(1, 1): "S", (1, 0): "B", (0, 0): "I", (0, 1): "E"}
IN_BIOES = str.maketrans("MLUW", "IESS")


def allowed_labels(tags: Sequence[str | None], scheme: str) -> list[str]:
    """The BIOES labels that each word may have, parted by tabs; "" for any.

    The tag of a word is None where it is not known.

    Where neighbours are not known, a tag may not tell whether it begins or ends a span.
    Just what fits is left; in IOB1 a little more, for what ``I-`` means depends on the
    neighbour's label.
    """
    if scheme == PLAIN:
        return ["" if t is None else t if t == "O" else f"S-{t}" for t in tags]
    if scheme.startswith("IOE"):
        raise ValueError(
            f"tags: expected no tags of {scheme} beside unknown ones. Convert them to "
            "BIO"
        )
    if scheme not in ("IOB1", "BIO"):
        scheme = "BIOES"
        tags = [t and t[0].translate(IN_BIOES) + t[1:] for t in tags]
    ends = [
        _apart(tag, after, scheme)
        for tag, after in zip(tags, [*tags[1:], "O"], strict=True)
    ]
    begins = [
        _apart(before, tag, scheme)
        for before, tag in zip(["O", *tags[:-1]], tags, strict=True)
    ]
    found = []
    for tag, begin, end in zip(tags, begins, ends, strict=True):
        if tag is None or tag == "O":
            found.append(tag or "")
            continue
        prefixes = [PREFIX[b, e] for b in _cases(begin) for e in _cases(end)]
        found.append("\t".join(f"{prefix}-{tag[2:]}" for prefix in prefixes))
    return found


def _cases(known: bool | None) -> list[int]:
    return [0, 1] if known is None else [int(known)]


def _apart(tag: str | None, after: str | None, scheme: str) -> bool | None:
    """Whether two neighbours belong to no common span; None where it is not known."""
    if "O" in (tag, after):
        return True
    if tag is not None and after is not None:
        return tag[0] in "ES" or after[0] in "BS" or tag[2:] != after[2:]
    # the prefix of the one that is known may tell it, if tags are well formed
    if tag is not None:
        return tag[0] in "ES" or (False if scheme == "BIOES" else None)
    if after is not None:
        return after[0] in "BS" or (None if scheme == "IOB1" else False)
    return None


def is_single_label(tag: str) -> bool:
    """Whether it is one label, and not several or any."""
    return bool(tag) and "\t" not in tag


def encode_labels(
    labels: Sequence[str], sentences: Sequence[Sequence[str]]
) -> tuple[list[list[int]], Tensor | None]:
    """Return tags as numbers, and bool ``(number, label)``: which labels each may be.

    None if all words have one label; then numbers are those of the labels.
    """
    number = {label: n for n, label in enumerate(labels)}
    for sentence in sentences:
        for tag in sentence:
            number.setdefault(tag, len(number))
    tags = [[number[tag] for tag in sentence] for sentence in sentences]
    if all(map(is_single_label, number)):
        return tags, None
    allowed = [
        [not tag or label in tag.split("\t") for label in labels] for tag in number
    ]
    return tags, torch.tensor(allowed)


def partial_label_loss(
    head: LinearChain | SegmentHead,
    emissions: Tensor,
    labels: Tensor,
    mask: Tensor,
    criterion: nn.Module,
) -> Tensor:
    """Return the loss of what words may be, labels bool ``(batch, time, label)``."""
    allowed = head.allowed(labels) if isinstance(head, SegmentHead) else labels
    value: Tensor = criterion(head.structure(emissions, mask), allowed)
    return value


def longest_segment(sentences: Sequence[Sequence[str]]) -> int:
    """Count the words of the longest span.

    Where tags are unknown, of what may have to be one.
    """
    longest = 1
    for sentence in sentences:
        if all(map(is_single_label, sentence)):
            sizes = [last + 1 - first for _, first, last in spans(sentence)]
        else:
            # an unknown neighbour on each side may have to belong to it
            runs = groupby(sentence, lambda tag: tag == "O")
            sizes = [2 + _between(list(run)) for outside, run in runs if not outside]
        longest = max(longest, *sizes, 1)
    return longest


def _between(tags: Sequence[str]) -> int:
    """Count words from the first to the last of which something is known."""
    known = [n for n, tag in enumerate(tags) if tag]
    return known[-1] + 1 - known[0] if known else 0
