"""Labels that held-out samples have and the training samples have not."""

import sys
from collections import Counter
from collections.abc import Hashable, Iterable

SHOWN = 10


def warn(part: str, labels: Iterable[Hashable], known: Iterable[Hashable]) -> None:
    """Say on standard error which labels of a part, and how many, no model knows."""
    known = set(known)
    counts = Counter(label for label in labels if label not in known)
    if not counts:
        return
    shown = ", ".join(f"{name} ({n})" for name, n in counts.most_common(SHOWN))
    more = f" and {len(counts) - SHOWN} others" if len(counts) > SHOWN else ""
    print(
        f"warning: {part} has labels that training lacks, {shown}{more}; each of these"
        f" {counts.total()} counts as an error",
        file=sys.stderr,
    )
