"""Labels that held-out samples have and the training samples have not."""

from collections import Counter
from collections.abc import Hashable, Iterable

from smoothsp.data.text_files import print_stderr

__all__ = ["warn"]

SHOWN = 10


def warn(part: str, labels: Iterable[Hashable], known: Iterable[Hashable]) -> None:
    """Say on standard error which labels of a part, and how many, training lacks.

    Raises
    ------
    ValueError
        If training lacks all of them but O.
    """
    known = set(known)
    all_counts = Counter(labels)
    counts = Counter({x: n for x, n in all_counts.items() if x not in known})
    if not counts:
        return
    shown = ", ".join(f"{name} ({n})" for name, n in counts.most_common(SHOWN))
    if all(label in counts or label == "O" for label in all_counts):
        there = ", ".join(map(str, sorted(known, key=str)[:SHOWN]))
        raise ValueError(
            f"{part}: expected labels that training has, such as {there}, got none of"
            f" them but {shown}. Is it the right column?"
        )
    more = f" and {len(counts) - SHOWN} others" if len(counts) > SHOWN else ""
    print_stderr(
        f"warning: {part} has labels that training lacks, {shown}{more}; each of these"
        f" {counts.total()} counts as an error"
    )
