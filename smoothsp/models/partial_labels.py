"""Partially tagged sentences: allowed labels of each word, and their loss."""

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

# BIOES prefix of a word, by whether it begins and whether it ends a span.
BIOES_PREFIX = {(1, 1): "S", (1, 0): "B", (0, 0): "I", (0, 1): "E"}
TO_BIOES_PREFIX = str.maketrans("MLUW", "IESS")


def allowed_labels(tags: Sequence[str | None], scheme: str) -> list[str]:
    """Return the allowed BIOES labels of each word, separated by tabs; "" for any.

    Unknown tags are None. Next to an unknown tag, a known tag may not determine whether
    it begins or ends a span; then several prefixes are allowed. For IOB1, they include
    some that do not fit, since the meaning of ``I-`` depends on the neighbour's type.
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
        tags = [t and t[0].translate(TO_BIOES_PREFIX) + t[1:] for t in tags]
    ends = [
        _is_span_boundary(tag, after, scheme)
        for tag, after in zip(tags, [*tags[1:], "O"], strict=True)
    ]
    begins = [
        _is_span_boundary(before, tag, scheme)
        for before, tag in zip(["O", *tags[:-1]], tags, strict=True)
    ]
    allowed = []
    for tag, begin, end in zip(tags, begins, ends, strict=True):
        if tag is None or tag == "O":
            allowed.append(tag or "")
            continue
        prefixes = [
            BIOES_PREFIX[b, e]
            for b in _possible_values(begin)
            for e in _possible_values(end)
        ]
        allowed.append("\t".join(f"{prefix}-{tag[2:]}" for prefix in prefixes))
    return allowed


def _possible_values(value: bool | None) -> list[int]:
    return [0, 1] if value is None else [int(value)]


def _is_span_boundary(
    tag: str | None, next_tag: str | None, scheme: str
) -> bool | None:
    """Return whether a span border lies between two neighbours; None if unknown."""
    if "O" in (tag, next_tag):
        return True
    if tag is not None and next_tag is not None:
        return tag[0] in "ES" or next_tag[0] in "BS" or tag[2:] != next_tag[2:]
    # The prefix of the known tag may decide, since tags are well formed.
    if tag is not None:
        return tag[0] in "ES" or (False if scheme == "BIOES" else None)
    if next_tag is not None:
        return next_tag[0] in "BS" or (None if scheme == "IOB1" else False)
    return None


def is_single_label(tag: str) -> bool:
    """Return whether the allowed labels are exactly one label."""
    return bool(tag) and "\t" not in tag


def encode_labels(
    labels: Sequence[str], sentences: Sequence[Sequence[str]]
) -> tuple[list[list[int]], Tensor | None]:
    """Encode allowed-label strings as indices, with a mask bool ``(index, label)``.

    The mask has the labels that each index allows. It is None if all words have exactly
    one label; then indices are label indices.
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
    """Return the loss of allowed labels, bool ``(batch, time, label)``."""
    allowed = head.allowed(labels) if isinstance(head, SegmentHead) else labels
    value: Tensor = criterion(head.structure(emissions, mask), allowed)
    return value


def longest_segment(sentences: Sequence[Sequence[str]]) -> int:
    """Return the number of words of the longest span.

    In partially tagged sentences, return an upper bound of the loss of the known tags.
    """
    longest = 1
    for sentence in sentences:
        if all(map(is_single_label, sentence)):
            sizes = [last + 1 - first for _, first, last in spans(sentence)]
        else:
            # An unknown neighbour on each side may have to belong to the span.
            runs = groupby(sentence, lambda tag: tag == "O")
            sizes = [
                2 + _restricted_extent(list(run))
                for outside, run in runs
                if not outside
            ]
        longest = max(longest, *sizes, 1)
    return longest


def _restricted_extent(tags: Sequence[str]) -> int:
    """Count words from the first to the last one with a restriction."""
    positions = [n for n, tag in enumerate(tags) if tag]
    return positions[-1] + 1 - positions[0] if positions else 0
