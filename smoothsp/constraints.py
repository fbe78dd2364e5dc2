"""Which labels may follow which."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import torch
from jaxtyping import Bool
from torch import Tensor

__all__ = ["Constraints", "bio"]

Scheme = Literal["IOB1", "BIO", "BIOES"]
PREFIXES = {"IOB1": "IB", "BIO": "BI", "BIOES": "BIES"}


class Constraints(NamedTuple):
    """What is allowed; everything else is forbidden in training and decoding alike."""

    start: Bool[Tensor, " state"]
    """May a sequence start with this state?"""
    transitions: Bool[Tensor, "state state"]
    """``[i, j]``: may state j follow state i?"""
    end: Bool[Tensor, " state"]
    """May a sequence end with this state?"""


def bio(
    labels: Sequence[str], scheme: Literal["IOB2"] | Scheme | None = None
) -> Constraints:
    """Constraints of a span encoding.

    Parameters
    ----------
    labels
        One per state: ``"O"``, or a prefix and a type as in ``"B-PER"``.
    scheme
        ``"BIO"`` (also called IOB2): I-X follows B-X or I-X. ``"BIOES"``: spans of
        several tokens run B I ... E, single ones are S. ``"IOB1"``: B-X follows B-X or
        I-X. If absent: BIOES where a label starts with E- or S-, else BIO.

    Raises
    ------
    ValueError
        For a label that the scheme does not know, or an unknown scheme.

    Examples
    --------
    >>> from smoothsp import constraints
    >>> constraints.bio(["O", "B-PER", "I-PER"]).transitions.int().tolist()
    [[1, 1, 0], [1, 1, 1], [1, 1, 1]]
    """
    if scheme is None:
        scheme = "BIOES" if any(x[:2] in ("E-", "S-") for x in labels) else "BIO"
    if scheme == "IOB2":
        scheme = "BIO"
    if scheme not in get_args(Scheme):
        raise ValueError(
            f"scheme: expected one of {(*get_args(Scheme), 'IOB2')}, got {scheme!r}"
        )
    parts = [_split(label, scheme) for label in labels]
    outside = ("O", "")
    moves = [[_may_follow(a, b, scheme) for b in parts] for a in parts]
    return Constraints(
        torch.tensor([_may_follow(outside, b, scheme) for b in parts]),
        torch.tensor(moves),
        torch.tensor([_may_follow(a, outside, scheme) for a in parts]),
    )


def _split(label: str, scheme: Scheme) -> tuple[str, str]:
    if label == "O":
        return "O", ""
    prefix, dash, kind = label.partition("-")
    if not dash or not kind or len(prefix) != 1 or prefix not in PREFIXES[scheme]:
        known = ", ".join(f"{x}-TYPE" for x in PREFIXES[scheme])
        raise ValueError(f"labels: expected O, {known} for {scheme}, got {label!r}")
    return prefix, kind


def _may_follow(a: tuple[str, str], b: tuple[str, str], scheme: Scheme) -> bool:
    """May b follow a? The outside of a sequence counts as O."""
    same = a[1] == b[1]
    if scheme == "IOB1":
        return b[0] != "B" or (a[0] in "BI" and same)
    if scheme == "BIO":
        return b[0] != "I" or (a[0] in "BI" and same)
    if a[0] in "BI":
        return b[0] in "IE" and same
    return b[0] in "OBS"
