"""Constraints on which labels may follow each other."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor

from smoothsp import schemes
from smoothsp.oracles import RegularLanguage
from smoothsp.schemes import Alias, Scheme

__all__ = ["Constraints", "bio", "regular"]

# Prefix and type of a label that is forbidden everywhere.
NEVER = ("", "")


class _Masks(NamedTuple):
    start: Bool[Tensor, " state"]
    """May a sequence start with this state?"""
    transitions: Bool[Tensor, "state state"]
    """``[i, j]``: may state j follow state i?"""
    end: Bool[Tensor, " state"]
    """May a sequence end with this state?"""


class Constraints(_Masks):
    """Allowed starts, transitions and ends; all others are forbidden.

    Examples
    --------
    >>> from smoothsp import constraints
    >>> constraints.bio(["O", "B-PER", "I-PER"]).start.tolist()
    [True, True, False]
    """

    labels: tuple[str, ...] | None = None
    """Name of each state, for error messages."""


def bio(
    labels: Sequence[str] | Mapping[int, str],
    scheme: Scheme | Alias | None = None,
    *,
    forbidden: Collection[str] = (),
) -> Constraints:
    """Return the constraints of a span encoding.

    Parameters
    ----------
    labels
        One per state: ``"O"``, a prefix and a type as in ``"B-PER"``, or a prefix. Or
        a dictionary ``id2label`` from numbers 0, 1, ... (or their digits, as JSON has
        them) to labels, in any order.
    scheme
        Named as in ``metrics.spans``. ``"BIO"`` (also called IOB2): I-X follows B-X or
        I-X. ``"IOB1"``: B-X follows B-X or I-X. ``"IOE2"``: I-X is followed by I-X or
        E-X. ``"IOE1"``: E-X is followed by I-X or E-X. ``"BIOES"`` (also called IOBES),
        ``"BILOU"``, ``"BMES"``, ``"BMEWO"``: spans of several tokens run B I ... E, B I
        ... L, B M ... E, B M ... E, single ones are S, U, S, W. If absent: the first of
        BIO, IOE2, BIOES, BILOU, BMES, BMEWO that has all prefixes, or IOB1 if I is the
        only one.
    forbidden
        Labels that no real position has, such as ``"<pad>"`` or ``"[CLS]"``. The scheme
        does not apply to them.

    Raises
    ------
    ValueError
        For a label that is not in the scheme or occurs twice, an unknown scheme, labels
        of which none may start or end a sequence, or a dictionary whose keys are not 0,
        1, ...

    Examples
    --------
    >>> from smoothsp import constraints
    >>> constraints.bio(["O", "B-PER", "I-PER"]).transitions.int().tolist()
    [[1, 1, 0], [1, 1, 1], [1, 1, 1]]
    >>> constraints.bio(["<pad>", "O", "B"], forbidden=["<pad>"]).start.tolist()
    [False, True, True]
    """
    labels = as_label_list(labels)
    if isinstance(forbidden, str):
        raise TypeError(
            f"forbidden: expected a list of labels, got a string; write [{forbidden!r}]"
        )
    for label in forbidden:
        if label not in labels:
            known = ", ".join(map(repr, labels))
            raise ValueError(f"forbidden: expected some of {known}, got {label!r}")
    parts = [
        NEVER if label in forbidden else schemes.split_tag(label) for label in labels
    ]
    fitting = schemes.compatible_schemes(prefix for prefix, kind in parts if prefix)
    guess: Scheme = next(iter(fitting), "BIOES")
    chosen = guess if scheme is None else schemes.resolve_scheme(scheme)
    for label, (prefix, _) in zip(labels, parts, strict=True):
        if (
            label != "O"
            and label not in forbidden
            and (prefix not in schemes.PREFIXES[chosen] or label == f"{prefix}-")
        ):
            known = schemes.allowed_tags_text(chosen)
            raise ValueError(
                f"labels: expected {known} for {chosen}, got {label!r}; if no real "
                f"position has it, constraints.bio(labels, forbidden=[{label!r}])"
            )
    roles = [
        (schemes.CANONICAL_PREFIX.get(prefix, prefix), kind) for prefix, kind in parts
    ]
    outside = ("O", "")
    start = [_may_follow(outside, b, chosen) for b in roles]
    moves = [_may_follow(a, b, chosen) for a in roles for b in roles]
    end = [_may_follow(a, outside, chosen) for a in roles]
    if labels and not (any(start) and any(end)):
        known = ", ".join(map(repr, labels))
        raise ValueError(
            f"labels: expected some that may start and end a sequence of {chosen}, "
            f"got {known} with forbidden = {[*forbidden]}"
        )
    square = _bools(moves).reshape(len(roles), len(roles))
    found = Constraints(_bools(start), square, _bools(end))
    found.labels = tuple(labels)
    return found


def regular(labels: Sequence[str] | Mapping[int, str], pattern: str) -> RegularLanguage:
    """Return the language of a regular expression over label names.

    Parameters
    ----------
    labels
        One name per state, or a dictionary ``id2label``, as in ``bio``.
    pattern
        Label names separated by blanks. ``|`` separates alternatives, ``( )`` groups,
        and ``.`` matches any label. Quantifiers are ``*`` (any number), ``+`` (at least
        one), ``?`` (at most one), ``{m}``, ``{m,}``, ``{,n}`` and ``{m,n}``. Quote a
        name that has one of these characters or a blank in ``'...'``. The pattern must
        match the whole sequence.

    Returns
    -------
    RegularLanguage
        Call it with ``emissions (batch, time, state)`` and the other arguments of
        ``Chain``. It returns a ``RegularChain``, which supports decoding and every
        loss.

    Raises
    ------
    ValueError
        For a pattern that cannot be parsed, names an unknown label, matches nothing or
        needs more than 10,000 states.

    Examples
    --------
    At least one verb, and no two determiners in a row:

    >>> import torch
    >>> from smoothsp import constraints
    >>> labels = ["DET", "NOUN", "VERB"]
    >>> verbs = constraints.regular(labels, "(DET? NOUN)* VERB (DET? (NOUN | VERB))*")
    >>> sentences = verbs(torch.zeros(1, 3, 3))
    >>> sentences.decode_topk(2)[1].shape, sentences.log_count().exp().round()
    (torch.Size([1, 2, 3]), tensor([10.]))
    """
    if not isinstance(pattern, str):
        raise TypeError(f"pattern: expected a string, got {type(pattern).__name__}")
    return RegularLanguage(as_label_list(labels), pattern)


def _bools(values: list[bool]) -> Tensor:
    # said aloud, since nothing at all would be of floats
    return torch.tensor(values, dtype=torch.bool)


def as_label_list(labels: object) -> list[str]:
    """Labels by their numbers, of a sequence or of ``id2label``."""
    if isinstance(labels, str) or not isinstance(labels, Sequence | Mapping):
        found = type(labels).__name__
        raise TypeError(f"labels: expected a sequence or id2label, got {found}")
    values = list(labels.values() if isinstance(labels, Mapping) else labels)
    wrong = [label for label in values if not isinstance(label, str)]
    if wrong:
        hint = "; that is label2id: hand over id2label" if values != [*labels] else ""
        raise TypeError(f"labels: expected strings, got {wrong[0]!r}{hint}")
    for place, label in enumerate(values):
        if (first := values.index(label)) < place:
            raise ValueError(
                f"labels: expected different ones, got {label!r} at {first} and {place}"
            )
    if not isinstance(labels, Mapping):
        return values
    numbered = {str(number): label for number, label in labels.items()}
    expected = [str(number) for number in range(len(values))]
    if numbered.keys() != set(expected):
        raise ValueError(
            f"labels: expected the numbers 0 to {len(values) - 1} as keys of id2label, "
            f"got {', '.join(map(repr, labels))[:60]}"
        )
    return [numbered[number] for number in expected]


def _may_follow(a: tuple[str, str], b: tuple[str, str], scheme: Scheme) -> bool:
    """May b follow a? The outside of a sequence counts as O."""
    if NEVER in (a, b):
        return False
    same = a[1] == b[1]
    continues = same and a[0] in "BI" and b[0] in "IE"
    if scheme == "BIO":
        return b[0] != "I" or continues
    if scheme == "IOE2":
        return a[0] != "I" or continues
    if scheme == "IOB1":
        return b[0] != "B" or same
    if scheme == "IOE1":
        return a[0] != "E" or same
    return continues or (a[0] in "OES" and b[0] in "OBS")
