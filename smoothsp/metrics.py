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
        and however ill-formed. A span begins at B, S, U or W, where the type changes,
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
    return _read({"tags": [tags]}, scheme, strict)[0][0]


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
    wanted, proposed = _read({"gold": gold, "predicted": predicted}, scheme, strict)
    for row, (truth, guess) in enumerate(zip(gold, predicted, strict=True)):
        if len(truth) != len(guess):
            raise ValueError(
                f"predicted: expected {len(truth)} labels as in gold at sentence "
                f"{row}, got {len(guess)}"
            )
    hits = sum(len(a & b) for a, b in zip(wanted, proposed, strict=True))
    precision = hits / max(1, sum(map(len, proposed)))
    recall = hits / max(1, sum(map(len, wanted)))
    both = precision + recall
    return precision, recall, 2 * precision * recall / both if both else 0.0


def _read(
    texts: dict[str, Sequence[Sequence[str]]], name: str | None, strict: bool
) -> list[list[set[Span]]]:
    """Spans of each sentence of each argument; the scheme is guessed from the first."""
    counts: Counter[str] = Counter()
    for argument, text in texts.items():
        _check_tags(argument, text)
        counts.update(chain.from_iterable(text))
    parts = {tag: schemes.split_tag(tag) for tag in counts}
    scheme = None if name is None else schemes.resolve_scheme(name)
    legal = {
        "O",
        *(schemes.CANONICAL_PREFIX if scheme is None else schemes.PREFIXES[scheme]),
    }
    unknown = [tag for tag, (prefix, _) in parts.items() if prefix not in legal]
    if unknown and scheme is not None:
        raise ValueError(
            f"{_place(texts, unknown[0])}: expected"
            f" {schemes.allowed_tags_text(scheme)} for {scheme}, got {unknown[0]!r}"
        )
    fitting = schemes.compatible_schemes(prefix for prefix, _ in parts.values())
    if scheme is None and not fitting:
        warnings.warn(_of_no_scheme(unknown, counts), UserWarning, stacklevel=3)
    parts |= {tag: ("I", tag) for tag in unknown}
    if strict and scheme is None:
        first = next(iter(texts.values()))
        scheme = max(
            fitting or schemes.SPAN_PREFIXES,
            key=lambda other: sum(map(len, _spans(first, parts, other))),
        )
        warnings.warn(
            f"scheme: expected a name with strict=True, got None: guessed {scheme}",
            UserWarning,
            stacklevel=3,
        )
    return [_spans(x, parts, scheme if strict else None) for x in texts.values()]


def _spans(
    text: Sequence[Sequence[str]],
    parts: dict[str, tuple[str, str]],
    scheme: Scheme | None,
) -> list[set[Span]]:
    """Spans of each sentence; if a scheme is given, those that it writes like this."""
    roles = {
        t: (schemes.CANONICAL_PREFIX.get(p, p), kind) for t, (p, kind) in parts.items()
    }
    found = []
    for tags in text:
        read = schemes.parse_spans([roles[tag] for tag in tags])
        if scheme is not None:
            prefixes = [parts[tag][0] for tag in tags]
            read = schemes.well_formed_spans(prefixes, read, scheme)
        found.append(set(read))
    return found


def _check_tags(argument: str, text: Sequence[Sequence[str]]) -> None:
    for row, tags in enumerate(text):
        if isinstance(tags, str):
            if argument == "tags":
                raise TypeError(f"tags: expected a list of tags, got {tags!r}")
            raise TypeError(
                f"{argument}: expected sentences, each a list of tags, got {tags!r} as"
                f" sentence {row}. For a single sentence give [tags]"
            )
        if not hasattr(tags, "__iter__"):
            place = "" if argument == "tags" else f" as sentence {row}"
            raise TypeError(
                f"{argument}: expected a list of tags, got {type(tags).__name__}{place}"
            )
        for position, tag in enumerate(tags):
            if not isinstance(tag, str):
                place = "" if argument == "tags" else f"sentence {row}, "
                raise TypeError(
                    f"{argument}: expected tags as strings, got {tag!r} at {place}"
                    f"position {position}"
                )


def _place(texts: dict[str, Sequence[Sequence[str]]], wanted: str) -> str:
    """First position of a tag."""
    return next(
        f"{argument}, {'' if argument == 'tags' else f'sentence {row}, '}"
        f"position {position}"
        for argument, text in texts.items()
        for row, tags in enumerate(text)
        for position, tag in enumerate(tags)
        if tag == wanted
    )


def _of_no_scheme(unknown: Sequence[str], counts: Counter[str]) -> str:
    if unknown:
        shown = ", ".join(f"{tag!r} ({counts[tag]} times)" for tag in unknown[:5])
        more = f" and {len(unknown) - 5} others" if len(unknown) > 5 else ""
        got = f"{shown}{more}, each read as the inside of a span of its own type"
    else:
        prefixes = sorted({schemes.split_tag(tag)[0] for tag in counts})
        got = f"the prefixes {', '.join(prefixes)}"
    known = ", ".join(schemes.SPAN_PREFIXES)
    return f"tags: expected O and the prefixes of one of {known}, got {got}"


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
    return float(_is_right(iou, threshold).double().mean())


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
    right = _is_right(iou, threshold)
    ranks = _numbers("confidence", confidence)
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
    places = torch.arange(1, len(ranks) + 1, dtype=torch.float64, device="cpu")
    taken = places[last]
    precision, recall = hits[last] / taken, hits[last] / total
    best = precision.flip(0).cummax(0).values.flip(0)
    return float((best * recall.diff(prepend=recall.new_zeros(1))).sum())


def _numbers(name: str, given: object) -> Tensor:
    """Real numbers in float64, on the CPU."""
    wrong = isinstance(given, Tensor) and (
        given.is_complex() or given.is_meta or given.layout is not torch.strided
    )
    try:
        if not wrong:
            return torch.as_tensor(given, dtype=torch.float64, device="cpu")
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"{name}: expected numbers, got {type(given).__name__} ({error})"
        ) from error
    raise TypeError(f"{name}: expected real numbers in a dense tensor, got {given}")


def _is_right(iou: Sequence[float] | Tensor, threshold: float) -> Tensor:
    overlaps = _numbers("iou", iou)
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
    # 0.3 of float32 is no more than 0.3, though it is in float64
    given = iou.dtype if isinstance(iou, Tensor) else torch.float64
    dtype = given if given.is_floating_point else torch.float64
    return overlaps > torch.tensor(threshold, dtype=dtype, device="cpu").double()
