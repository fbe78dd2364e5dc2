"""Scores of dependency trees, constituency trees and nested entities."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from smoothsp.data.examples import Span
from smoothsp.data.trees import TOP, entities, levels, split_unary_chains

__all__ = ["attachment_scores", "bracket_scores", "entity_scores"]

PUNCTUATION = frozenset([",", ":", "``", "''", "."])


def attachment_scores(gold: Sequence[Any], found: Sequence[Any]) -> dict[str, float]:
    """Return LAS and UAS, shares of all words, by the rules of CoNLL 2018.

    A word counts for UAS if its head is right, and for LAS if the label is right, too.
    Subtypes, which follow a colon, are not compared. Punctuation counts.

    Parameters
    ----------
    gold, found
        Trees with ``words``, ``heads`` and ``labels``.
    """
    words = heads = both = 0
    for number, (true, guess) in enumerate(zip(gold, found, strict=True), start=1):
        if true.words != guess.words:
            raise ValueError(f"found: expected the words of sentence {number}")
        rows = zip(true.heads, guess.heads, true.labels, guess.labels, strict=True)
        for head, other, label, name in rows:
            words += 1
            heads += head == other
            both += head == other and label.split(":")[0] == name.split(":")[0]
    return {"las": both / words, "uas": heads / words}


def bracket_scores(gold: Sequence[Any], found: Sequence[Any]) -> dict[str, float]:
    """Return labelled F1, precision, recall, and the share of sentences without error.

    They are those of EVALB with the parameters of Collins. Constituents are a multiset
    of labels and places, and a chain of unary rules is one constituent for each label.
    The root and tags are left out, punctuation takes up no place, and PRT equals ADVP.

    Parameters
    ----------
    gold, found
        Trees with ``spans``; ``gold`` with ``tags``, too.
    """
    right, true, guessed, exact = 0, 0, 0, 0
    for one, other in zip(gold, found, strict=True):
        a, b = (_counted(spans, one.tags) for spans in (one.spans, other.spans))
        right += (a & b).total()
        true, guessed = true + a.total(), guessed + b.total()
        exact += a == b
    return _scores(right, true, guessed) | {"exact": exact / len(gold)}


def entity_scores(gold: Sequence[Any], found: Sequence[Any]) -> dict[str, float]:
    """Return F1 of all entities, precision, recall, F1 of outer and of inner ones.

    An entity is found if words and type are right. ``outer`` is the F1 of level 1,
    ``inner`` that of all other levels, ``exact`` the share of sentences without error.

    Parameters
    ----------
    gold, found
        Trees with ``spans``.
    """
    true: Counter[str] = Counter()
    guessed: Counter[str] = Counter()
    right: Counter[str] = Counter()
    exact = 0
    for one, other in zip(gold, found, strict=True):
        a, b = Counter(levels(one)), Counter(levels(other))
        exact += a == b
        for count, some in ((true, a), (guessed, b), (right, a & b)):
            for (level, _), times in some.items():
                count["outer" if level == 1 else "inner"] += times
        # without their levels
        bare = Counter(entities(one)) & Counter(entities(other))
        right["all"] += bare.total()
    scores = _scores(right["all"], true.total(), guessed.total())
    for name in ("outer", "inner"):
        scores[name] = _scores(right[name], true[name], guessed[name])["f1"]
    return scores | {"exact": exact / len(gold)}


def _scores(right: int, true: int, guessed: int) -> dict[str, float]:
    return {
        "f1": 2 * right / max(1, true + guessed),
        "precision": right / max(1, guessed),
        "recall": right / max(1, true),
    }


def _counted(spans: Iterable[Span], tags: Sequence[str]) -> Counter[Span]:
    place = [0]
    for tag in tags:
        place.append(place[-1] + (tag not in PUNCTUATION))
    found: Counter[Span] = Counter()
    for label, first, last in split_unary_chains(spans):
        begin, end = place[first], place[last + 1]
        if label != TOP and begin < end:
            found["ADVP" if label == "PRT" else label, begin, end] += 1
    return found
