"""How good predictions are."""

from collections.abc import Sequence

__all__ = ["span_f1", "spans"]

Span = tuple[str, int, int]


def spans(tags: Sequence[str]) -> set[Span]:
    """Labelled spans of one sentence, by the rules of the CoNLL evaluation script.

    Parameters
    ----------
    tags
        Labels such as ``"O"``, ``"B-PER"``, ``"I-PER"``; ``E-`` and ``S-`` too. A span
        of a type begins at B, S, or wherever the type changes or the label before was
        O, E or S: IOB1, BIO and BIOES all read alike, and so do ill-formed sequences.

    Returns
    -------
    set
        ``(type, first, last)``, positions counted from 0, last included.

    Examples
    --------
    >>> sorted(spans(["B-PER", "I-PER", "O", "I-LOC"]))
    [('LOC', 3, 3), ('PER', 0, 1)]
    """
    found = set()
    kind, first, before = "", 0, "O"
    for position, tag in enumerate([*tags, "O"]):
        prefix, _, here = tag.partition("-")
        ends = before in "ES" or prefix in ("O", "B", "S") or here != kind
        if kind and ends:
            found.add((kind, first, position - 1))
        if prefix != "O" and (ends or not kind):
            kind, first = here, position
        elif prefix == "O":
            kind = ""
        before = prefix
    return found


def span_f1(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> tuple[float, float, float]:
    """Precision, recall and F1 of exact labelled spans, micro-averaged, as fractions.

    Parameters
    ----------
    gold, predicted
        One sequence of labels per sentence, of equal lengths.

    Raises
    ------
    ValueError
        If the sentences do not match in number or length.

    Examples
    --------
    >>> span_f1([["B-PER", "O", "B-LOC"]], [["B-PER", "O", "O"]])
    (1.0, 0.5, 0.6666666666666666)
    """
    if len(gold) != len(predicted):
        raise ValueError(
            f"predicted: expected {len(gold)} sentences as in gold, "
            f"got {len(predicted)}"
        )
    hits = proposed = wanted = 0
    for row, (truth, guess) in enumerate(zip(gold, predicted, strict=True)):
        if len(truth) != len(guess):
            raise ValueError(
                f"predicted: expected {len(truth)} labels as in gold at sentence "
                f"{row}, got {len(guess)}"
            )
        right, proposal = spans(truth), spans(guess)
        hits += len(right & proposal)
        proposed += len(proposal)
        wanted += len(right)
    precision = hits / proposed if proposed else 0.0
    recall = hits / wanted if wanted else 0.0
    both = precision + recall
    return precision, recall, 2 * precision * recall / both if both else 0.0
