"""Metrics of dependency trees, constituency trees and nested entities."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from smoothsp.data.examples import Span
from smoothsp.data.trees import TOP, entities, levels, split_unary_chains

__all__ = ["attachment_scores", "bracket_scores", "entity_scores"]

PUNCTUATION = frozenset([",", ":", "``", "''", "."])


def attachment_scores(
    gold: Sequence[Any], predicted: Sequence[Any]
) -> dict[str, float]:
    """Return LAS and UAS, fractions of all words, by the rules of CoNLL 2018.

    A word counts for UAS if its head is correct, and for LAS if its label is, too.
    Subtypes after a colon are not compared. Punctuation counts.

    Parameters
    ----------
    gold, found
        Trees with ``words``, ``heads`` and ``labels``.
    """
    num_words = num_heads = num_labelled = 0
    for number, (true, predicted_tree) in enumerate(
        zip(gold, predicted, strict=True), start=1
    ):
        if true.words != predicted_tree.words:
            raise ValueError(f"found: expected the words of sentence {number}")
        rows = zip(
            true.heads,
            predicted_tree.heads,
            true.labels,
            predicted_tree.labels,
            strict=True,
        )
        for head, predicted_head, label, predicted_label in rows:
            num_words += 1
            num_heads += head == predicted_head
            num_labelled += (
                head == predicted_head
                and label.split(":")[0] == predicted_label.split(":")[0]
            )
    return {"las": num_labelled / num_words, "uas": num_heads / num_words}


def bracket_scores(gold: Sequence[Any], predicted: Sequence[Any]) -> dict[str, float]:
    """Return labelled F1, precision, recall, and the fraction of exact sentences.

    As EVALB with the parameters of Collins: constituents are a multiset of labels and
    positions, with one constituent for each label of a unary chain. The root and tags
    are left out, punctuation does not count as a position, and PRT equals ADVP.

    Parameters
    ----------
    gold, found
        Trees with ``spans``; ``gold`` with ``tags``, too.
    """
    right, true, guessed, exact = 0, 0, 0, 0
    for gold_tree, predicted_tree in zip(gold, predicted, strict=True):
        a, b = (
            _count_constituents(spans, gold_tree.tags)
            for spans in (gold_tree.spans, predicted_tree.spans)
        )
        right += (a & b).total()
        true, guessed = true + a.total(), guessed + b.total()
        exact += a == b
    return _f1_precision_recall(right, true, guessed) | {"exact": exact / len(gold)}


def entity_scores(gold: Sequence[Any], predicted: Sequence[Any]) -> dict[str, float]:
    """Return F1, precision and recall of all entities, and F1 by level.

    An entity is correct if words and type are. ``outer`` is the F1 of level 1,
    ``inner`` that of deeper levels, ``exact`` the fraction of sentences without error.

    Parameters
    ----------
    gold, found
        Trees with ``spans``.
    """
    true: Counter[str] = Counter()
    guessed: Counter[str] = Counter()
    right: Counter[str] = Counter()
    exact = 0
    for gold_tree, predicted_tree in zip(gold, predicted, strict=True):
        a, b = Counter(levels(gold_tree)), Counter(levels(predicted_tree))
        exact += a == b
        for count, counts in ((true, a), (guessed, b), (right, a & b)):
            for (level, _), times in counts.items():
                count["outer" if level == 1 else "inner"] += times
        # Overall F1 compares entities without their levels.
        without_levels = Counter(entities(gold_tree)) & Counter(
            entities(predicted_tree)
        )
        right["all"] += without_levels.total()
    scores = _f1_precision_recall(right["all"], true.total(), guessed.total())
    for name in ("outer", "inner"):
        scores[name] = _f1_precision_recall(right[name], true[name], guessed[name])[
            "f1"
        ]
    return scores | {"exact": exact / len(gold)}


def _f1_precision_recall(right: int, true: int, guessed: int) -> dict[str, float]:
    return {
        "f1": 2 * right / max(1, true + guessed),
        "precision": right / max(1, guessed),
        "recall": right / max(1, true),
    }


def _count_constituents(spans: Iterable[Span], tags: Sequence[str]) -> Counter[Span]:
    position = [0]
    for tag in tags:
        position.append(position[-1] + (tag not in PUNCTUATION))
    counts: Counter[Span] = Counter()
    for label, first, last in split_unary_chains(spans):
        begin, end = position[first], position[last + 1]
        if label != TOP and begin < end:
            counts["ADVP" if label == "PRT" else label, begin, end] += 1
    return counts
