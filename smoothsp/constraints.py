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

# Stands for the prefix and type of a label that is forbidden at every position.
FORBIDDEN = ("", "")


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
            expected = ", ".join(map(repr, labels))
            raise ValueError(f"forbidden: expected some of {expected}, got {label!r}")
    parts = [
        FORBIDDEN if label in forbidden else schemes.split_tag(label)
        for label in labels
    ]
    compatible = schemes.compatible_schemes(prefix for prefix, kind in parts if prefix)
    # no scheme has all the prefixes: BIOES, whose error lists most prefixes
    guess: Scheme = next(iter(compatible), "BIOES")
    chosen = guess if scheme is None else schemes.resolve_scheme(scheme)
    for label, (prefix, _) in zip(labels, parts, strict=True):
        if (
            label != "O"
            and label not in forbidden
            and (prefix not in schemes.PREFIXES[chosen] or label == f"{prefix}-")
        ):
            expected = schemes.allowed_tags_text(chosen)
            raise ValueError(
                f"labels: expected {expected} for {chosen}, got {label!r}; if no real "
                f"position has it, constraints.bio(labels, forbidden=[{label!r}])"
            )
    roles = [
        (schemes.CANONICAL_PREFIX.get(prefix, prefix), kind) for prefix, kind in parts
    ]
    # a sequence begins after O and ends before O
    outside = ("O", "")
    start = [_is_allowed_pair(outside, b, chosen) for b in roles]
    transitions = [_is_allowed_pair(a, b, chosen) for a in roles for b in roles]
    end = [_is_allowed_pair(a, outside, chosen) for a in roles]
    if labels and not (any(start) and any(end)):
        expected = ", ".join(map(repr, labels))
        raise ValueError(
            f"labels: expected some that may start and end a sequence of {chosen}, "
            f"got {expected} with forbidden = {[*forbidden]}"
        )
    square = _bool_tensor(transitions).reshape(len(roles), len(roles))
    constraints = Constraints(_bool_tensor(start), square, _bool_tensor(end))
    constraints.labels = tuple(labels)
    return constraints


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


def _bool_tensor(values: list[bool]) -> Tensor:
    """Return a bool tensor, also of an empty list."""
    # torch.tensor([]) without a dtype is float
    return torch.tensor(values, dtype=torch.bool)


def as_label_list(labels: object) -> list[str]:
    """Return the labels in the order of their numbers, from a list or ``id2label``."""
    if isinstance(labels, str) or not isinstance(labels, Sequence | Mapping):
        type_name = type(labels).__name__
        raise TypeError(f"labels: expected a sequence or id2label, got {type_name}")
    values = list(labels.values() if isinstance(labels, Mapping) else labels)
    wrong = [label for label in values if not isinstance(label, str)]
    if wrong:
        hint = (
            "; this looks like label2id, pass id2label" if values != [*labels] else ""
        )
        raise TypeError(f"labels: expected strings, got {wrong[0]!r}{hint}")
    for index, label in enumerate(values):
        if (first := values.index(label)) < index:
            raise ValueError(
                f"labels: expected different ones, got {label!r} at {first} and {index}"
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


def _is_allowed_pair(
    previous: tuple[str, str], following: tuple[str, str], scheme: Scheme
) -> bool:
    """Return whether ``following`` may stand after ``previous``.

    Both are (canonical prefix, type). The start and the end of a sequence count as O.
    """
    if FORBIDDEN in (previous, following):
        return False
    same = previous[1] == following[1]
    continues = same and previous[0] in "BI" and following[0] in "IE"
    # in BIO only I is restricted: it continues a span
    if scheme == "BIO":
        return following[0] != "I" or continues
    if scheme == "IOE2":
        return previous[0] != "I" or continues
    # B is written only between two spans of one type that touch (Ramshaw and Marcus)
    if scheme == "IOB1":
        return following[0] != "B" or same
    if scheme == "IOE1":
        return previous[0] != "E" or same
    # BIOES and its renamings: after O, E, S only O, B, S
    return continues or (previous[0] in "OES" and following[0] in "OBS")
