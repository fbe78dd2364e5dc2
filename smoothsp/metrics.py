"""How good predictions are."""

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["average_precision", "corloc", "span_f1", "spans"]

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


def corloc(iou: Sequence[float] | Tensor, threshold: float = 0.5) -> float:
    """Correct localisation: share of images whose predicted box is right.

    Parameters
    ----------
    iou
        Intersection over union of the predicted and the true box, of each image.
    threshold
        A box is right if it overlaps by more than this.

    Raises
    ------
    ValueError
        If there is no image, or an overlap is not in [0, 1].

    Examples
    --------
    >>> corloc([0.9, 0.5, 0.6, 0.0])
    0.5
    """
    return float(_is_right(iou, threshold).double().mean())


def average_precision(
    iou: Sequence[float] | Tensor,
    confidence: Sequence[float] | Tensor,
    num_true: int | None = None,
    threshold: float = 0.5,
) -> float:
    """Area under the precision-recall curve of boxes ranked by confidence.

    The precision at a recall is the best one at that recall or above, as in the PASCAL
    VOC evaluation since 2010. Boxes of equal confidence are taken in together.

    Parameters
    ----------
    iou
        Overlap of each predicted box with the true box it is meant to find; no two
        boxes for the same one.
    confidence
        Of each predicted box.
    num_true
        Number of true boxes; as many as predicted ones if None.
    threshold
        A box is right if it overlaps by more than this.

    Raises
    ------
    ValueError
        If lengths differ, there is no box, ``num_true`` is below the number of right
        boxes, an overlap is not in [0, 1], or a confidence is NaN.

    Examples
    --------
    >>> average_precision([0.9, 0.1, 0.8], [3.0, 2.0, 1.0])
    0.5555555555555556
    """
    right = _is_right(iou, threshold)
    ranks = torch.as_tensor(confidence, dtype=torch.float64).cpu()
    if ranks.shape != right.shape:
        raise ValueError(
            f"confidence: expected {len(right)} numbers as in iou, got "
            f"{tuple(ranks.shape)}"
        )
    if ranks.isnan().any():
        place = int(ranks.isnan().nonzero()[0])
        raise ValueError(f"confidence: expected numbers, got NaN at {place}")
    total = len(right) if num_true is None else num_true
    if total < right.sum():
        raise ValueError(
            f"num_true: expected at least the {int(right.sum())} that were found, got "
            f"{total}"
        )
    if total == 0:
        raise ValueError("num_true: expected at least 1, got 0")
    order = ranks.argsort(descending=True)
    ranks, hits = ranks[order], right[order].cumsum(0).double()
    # only where the confidence changes can a threshold be put
    last = torch.ones_like(ranks, dtype=torch.bool)
    last[:-1] = ranks[1:] < ranks[:-1]
    taken = torch.arange(1, len(ranks) + 1, dtype=torch.float64)[last]
    precision, recall = hits[last] / taken, hits[last] / total
    best = precision.flip(0).cummax(0).values.flip(0)
    return float((best * recall.diff(prepend=recall.new_zeros(1))).sum())


def _is_right(iou: Sequence[float] | Tensor, threshold: float) -> Tensor:
    overlaps = torch.as_tensor(iou, dtype=torch.float64).cpu()
    if overlaps.dim() != 1 or not len(overlaps):
        raise ValueError(
            f"iou: expected one number per image, got shape {tuple(overlaps.shape)}"
        )
    wrong = ~((overlaps >= 0) & (overlaps <= 1))
    if wrong.any():
        place = int(wrong.nonzero()[0])
        raise ValueError(
            f"iou: expected overlaps in [0, 1], got {overlaps[place]:g} at {place}"
        )
    return overlaps > threshold
