"""Evaluation metrics for tags and boxes."""

import warnings
from collections import Counter
from collections.abc import Sequence
from itertools import chain

import torch
from torch import Tensor

from smoothsp import schemes
from smoothsp.schemes import Alias, Scheme, Span

__all__ = ["average_precision", "corloc", "span_f1", "spans"]


def spans(
    tags: Sequence[str], *, scheme: Scheme | Alias | None = None, strict: bool = False
) -> set[Span]:
    """Return the labelled spans of one sentence.

    Parameters
    ----------
    tags
        ``"O"``, or a prefix with a type as in ``"B-PER"``, or a prefix alone, whose
        type then is ``"_"``.
    scheme
        Tagging scheme of the tags. Only its prefixes are then allowed.

        ======================== =================================================
        ``"BIO"``, ``"IOB2"``    B on the first token of a span, I on the others
        ``"IOB1"``               I; B on a first token that touches its own type
        ``"IOE2"``               E on the last token of a span, I on the others
        ``"IOE1"``               I; E on a last token that touches its own type
        ``"BIOES"``, ``"IOBES"`` B, I, ..., E, and S on a span of one token
        ``"BILOU"``              B, I, ..., L, and U on a span of one token
        ``"BMES"``               B, M, ..., E, and S on a span of one token
        ``"BMEWO"``              B, M, ..., E, and W on a span of one token
        ======================== =================================================

        If None, all of these are read. With ``strict``, None guesses the scheme with a
        warning: of the schemes that have all prefixes, the one with most spans.
    strict
        If False, tags follow the rules of the CoNLL evaluation script, in all schemes
        also for malformed tags. A span begins at B, S, U or W, where the type changes,
        and after O, E, L, S, U or W. If True, only spans that are well formed in the
        scheme count.

    Returns
    -------
    set
        ``(type, first, last)``, positions counted from 0, last included.

    Raises
    ------
    TypeError
        For a string in place of a list, and for tags that are not strings.
    ValueError
        For a prefix that ``scheme`` does not have, and for an unknown scheme.

    Warns
    -----
    UserWarning
        If ``scheme`` is None and no scheme has all the prefixes. A tag with an unknown
        prefix is read as the inside of a span whose type is the whole tag.

    Examples
    --------
    >>> sorted(spans(["B-PER", "I-PER", "O", "I-LOC"]))
    [('LOC', 3, 3), ('PER', 0, 1)]
    >>> spans(["B-PER", "I-PER", "O", "I-LOC"], scheme="BIO", strict=True)
    {('PER', 0, 1)}
    """
    return _read_spans({"tags": [tags]}, scheme, strict)[0][0]


def span_f1(
    gold: Sequence[Sequence[str]],
    predicted: Sequence[Sequence[str]],
    *,
    scheme: Scheme | Alias | None = None,
    strict: bool = False,
) -> tuple[float, float, float]:
    """Precision, recall and F1 of exact labelled spans, micro-averaged, in [0, 1].

    Parameters
    ----------
    gold, predicted
        One sequence of tags per sentence, of equal lengths.
    scheme, strict
        As in ``spans``. If the scheme must be guessed, it is guessed from ``gold``.

    Raises
    ------
    TypeError, ValueError
        As ``spans`` does; also if the sentences do not match in number or length.

    Warns
    -----
    UserWarning
        As ``spans`` does.

    Notes
    -----
    Without ``strict`` the results equal those of conlleval and of seqeval 1.2.2, which
    however does not support L, U and M. With ``strict`` they equal those of seqeval
    with ``mode="strict"``, except for two schemes. In IOB1, seqeval counts the rest of
    a span whose B is not preceded by its type. In IOE1, it misses spans of a single E.

    Examples
    --------
    >>> span_f1([["B-PER", "O", "B-LOC"]], [["B-PER", "O", "O"]])
    (1.0, 0.5, 0.6666666666666666)
    """
    for name, text in (("gold", gold), ("predicted", predicted)):
        if not hasattr(text, "__len__"):
            raise TypeError(
                f"{name}: expected sentences, each a list of tags, got "
                f"{type(text).__name__}"
            )
    if len(gold) != len(predicted):
        raise ValueError(
            f"predicted: expected {len(gold)} sentences as in gold, "
            f"got {len(predicted)}"
        )
    gold_spans, predicted_spans = _read_spans(
        {"gold": gold, "predicted": predicted}, scheme, strict
    )
    for row, (truth, guess) in enumerate(zip(gold, predicted, strict=True)):
        if len(truth) != len(guess):
            raise ValueError(
                f"predicted: expected {len(truth)} labels as in gold at sentence "
                f"{row}, got {len(guess)}"
            )
    hits = sum(len(a & b) for a, b in zip(gold_spans, predicted_spans, strict=True))
    precision = hits / max(1, sum(map(len, predicted_spans)))
    recall = hits / max(1, sum(map(len, gold_spans)))
    total = precision + recall
    return precision, recall, 2 * precision * recall / total if total else 0.0


def _read_spans(
    texts: dict[str, Sequence[Sequence[str]]], scheme_name: str | None, strict: bool
) -> list[list[set[Span]]]:
    """Return the spans of each sentence of each text.

    With ``strict`` and no scheme, the scheme is guessed from the first text.
    """
    counts: Counter[str] = Counter()
    for argument, text in texts.items():
        _require_tag_lists(argument, text)
        counts.update(chain.from_iterable(text))
    parts = {tag: schemes.split_tag(tag) for tag in counts}
    scheme = None if scheme_name is None else schemes.resolve_scheme(scheme_name)
    allowed = {
        "O",
        *(schemes.CANONICAL_PREFIX if scheme is None else schemes.PREFIXES[scheme]),
    }
    unknown = [tag for tag, (prefix, _) in parts.items() if prefix not in allowed]
    if unknown and scheme is not None:
        raise ValueError(
            f"{_first_position(texts, unknown[0])}: expected"
            f" {schemes.allowed_tags_text(scheme)} for {scheme}, got {unknown[0]!r}"
        )
    compatible = schemes.compatible_schemes(prefix for prefix, _ in parts.values())
    if scheme is None and not compatible:
        warnings.warn(
            _unknown_prefix_message(unknown, counts), UserWarning, stacklevel=3
        )
    parts |= {tag: ("I", tag) for tag in unknown}
    if strict and scheme is None:
        first = next(iter(texts.values()))
        scheme = max(
            compatible or schemes.SPAN_PREFIXES,
            key=lambda other: sum(map(len, _parse_sentences(first, parts, other))),
        )
        warnings.warn(
            f"scheme: None with strict=True: guessed {scheme} from the tags",
            UserWarning,
            stacklevel=3,
        )
    return [
        _parse_sentences(x, parts, scheme if strict else None) for x in texts.values()
    ]


def _parse_sentences(
    text: Sequence[Sequence[str]],
    parts: dict[str, tuple[str, str]],
    scheme: Scheme | None,
) -> list[set[Span]]:
    """Return the spans of each sentence; with a scheme, only well-formed ones."""
    roles = {
        t: (schemes.CANONICAL_PREFIX.get(p, p), kind) for t, (p, kind) in parts.items()
    }
    span_sets = []
    for tags in text:
        spans_of_row = schemes.parse_spans([roles[tag] for tag in tags])
        if scheme is not None:
            prefixes = [parts[tag][0] for tag in tags]
            spans_of_row = schemes.well_formed_spans(prefixes, spans_of_row, scheme)
        span_sets.append(set(spans_of_row))
    return span_sets


def _require_tag_lists(argument: str, text: Sequence[Sequence[str]]) -> None:
    """Raise TypeError unless a text is sentences of tags, each a string."""
    for row, tags in enumerate(text):
        if isinstance(tags, str):
            if argument == "tags":
                raise TypeError(f"tags: expected a list of tags, got {tags!r}")
            raise TypeError(
                f"{argument}: expected sentences, each a list of tags, got {tags!r} as"
                f" sentence {row}. For a single sentence give [tags]"
            )
        if not hasattr(tags, "__iter__"):
            location = "" if argument == "tags" else f" as sentence {row}"
            raise TypeError(
                f"{argument}: expected a list of tags, got"
                f" {type(tags).__name__}{location}"
            )
        for position, tag in enumerate(tags):
            if not isinstance(tag, str):
                location = "" if argument == "tags" else f"sentence {row}, "
                raise TypeError(
                    f"{argument}: expected tags as strings, got {tag!r} at {location}"
                    f"position {position}"
                )


def _first_position(texts: dict[str, Sequence[Sequence[str]]], target: str) -> str:
    """Return argument, sentence and position of the first occurrence of a tag."""
    return next(
        f"{argument}, {'' if argument == 'tags' else f'sentence {row}, '}"
        f"position {position}"
        for argument, text in texts.items()
        for row, tags in enumerate(text)
        for position, tag in enumerate(tags)
        if tag == target
    )


def _unknown_prefix_message(unknown: Sequence[str], counts: Counter[str]) -> str:
    """Return the warning for tags that no single scheme can encode."""
    if unknown:
        shown = ", ".join(f"{tag!r} ({counts[tag]} times)" for tag in unknown[:5])
        more = f" and {len(unknown) - 5} others" if len(unknown) > 5 else ""
        got = f"{shown}{more}, each read as the inside of a span of its own type"
    else:
        prefixes = sorted({schemes.split_tag(tag)[0] for tag in counts})
        got = f"the prefixes {', '.join(prefixes)}"
    scheme_names = ", ".join(schemes.SPAN_PREFIXES)
    return f"tags: expected O and the prefixes of one of {scheme_names}, got {got}"


def corloc(iou: Sequence[float] | Tensor, threshold: float = 0.5) -> float:
    """Correct localisation: fraction of images whose predicted box is correct.

    Parameters
    ----------
    iou
        Intersection over union of the predicted and the true box, of each image.
    threshold
        A box is correct if its overlap exceeds this value.

    Raises
    ------
    ValueError
        If there is no image, or an overlap is not in [0, 1].

    Examples
    --------
    >>> corloc([0.9, 0.5, 0.6, 0.0])
    0.5
    """
    return float(_is_correct(iou, threshold).double().mean())


def average_precision(
    iou: Sequence[float] | Tensor,
    confidence: Sequence[float] | Tensor,
    num_true: int | None = None,
    threshold: float = 0.5,
) -> float:
    """Area under the precision-recall curve of boxes ranked by confidence.

    The precision at a recall is the highest precision at that recall or above, as in
    the PASCAL VOC evaluation since 2010. Boxes of equal confidence enter together.

    Parameters
    ----------
    iou
        Overlap of each predicted box with the true box assigned to it; assign each true
        box at most once.
    confidence
        Confidence of each predicted box.
    num_true
        Number of true boxes; as many as predicted ones if None.
    threshold
        A box is correct if its overlap exceeds this value.

    Raises
    ------
    ValueError
        If lengths differ, or there is no box. Also if ``num_true`` is below the number
        of correct boxes, an overlap is not in [0, 1], or a confidence is NaN.

    Examples
    --------
    >>> average_precision([0.9, 0.1, 0.8], [3.0, 2.0, 1.0])
    0.5555555555555556
    """
    is_correct = _is_correct(iou, threshold)
    confidences = _as_float64("confidence", confidence)
    if confidences.shape != is_correct.shape:
        raise ValueError(
            f"confidence: expected {len(is_correct)} numbers as in iou, got "
            f"{tuple(confidences.shape)}"
        )
    if confidences.isnan().any():
        index = int(confidences.isnan().nonzero()[0])
        raise ValueError(f"confidence: expected numbers, got NaN at {index}")
    total = len(is_correct) if num_true is None else num_true
    if total < is_correct.sum():
        raise ValueError(
            f"num_true: expected at least the {int(is_correct.sum())} correct boxes,"
            f" got {total}"
        )
    if total == 0:
        raise ValueError("num_true: expected at least 1, got 0")
    order = confidences.argsort(descending=True)
    confidences, hits = confidences[order], is_correct[order].cumsum(0).double()
    # boxes of equal confidence share one threshold: keep the last of each group
    is_last = torch.ones_like(confidences, dtype=torch.bool)
    is_last[:-1] = confidences[1:] < confidences[:-1]
    ranks = torch.arange(1, len(confidences) + 1, dtype=torch.float64, device="cpu")
    num_ranked = ranks[is_last]
    precision, recall = hits[is_last] / num_ranked, hits[is_last] / total
    # highest precision at this recall or above
    envelope = precision.flip(0).cummax(0).values.flip(0)
    return float((envelope * recall.diff(prepend=recall.new_zeros(1))).sum())


def _as_float64(name: str, value: object) -> Tensor:
    """Return real numbers as a float64 tensor on the CPU."""
    wrong = isinstance(value, Tensor) and (
        value.is_complex() or value.is_meta or value.layout is not torch.strided
    )
    try:
        if not wrong:
            return torch.as_tensor(value, dtype=torch.float64, device="cpu")
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"{name}: expected numbers, got {type(value).__name__} ({error})"
        ) from error
    raise TypeError(f"{name}: expected real numbers in a dense tensor, got {value}")


def _is_correct(iou: Sequence[float] | Tensor, threshold: float) -> Tensor:
    """Return a mask ``(n,)`` of the overlaps that exceed the threshold."""
    overlaps = _as_float64("iou", iou)
    if overlaps.dim() != 1 or not len(overlaps):
        raise ValueError(
            f"iou: expected one number per image, got shape {tuple(overlaps.shape)}"
        )
    wrong = ~((overlaps >= 0) & (overlaps <= 1))
    if wrong.any():
        index = int(wrong.nonzero()[0])
        raise ValueError(
            f"iou: expected overlaps in [0, 1], got {overlaps[index]:g} at {index}"
        )
    # round the threshold to the dtype of iou: float32 0.3 exceeds 0.3 in float64
    iou_dtype = iou.dtype if isinstance(iou, Tensor) else torch.float64
    dtype = iou_dtype if iou_dtype.is_floating_point else torch.float64
    return overlaps > torch.tensor(threshold, dtype=dtype, device="cpu").double()
