"""Warning about evaluation labels that do not occur in training."""

from collections import Counter
from collections.abc import Hashable, Iterable

from smoothsp.data.text_files import print_stderr

__all__ = ["warn"]

MAX_SHOWN = 10


def warn(
    part: str, labels: Iterable[Hashable], training_labels: Iterable[Hashable]
) -> None:
    """Print which labels of a part do not occur in training, with their counts.

    Raises
    ------
    ValueError
        If no label of the part except O occurs in training.
    """
    training_labels = set(training_labels)
    all_counts = Counter(labels)
    counts = Counter({x: n for x, n in all_counts.items() if x not in training_labels})
    if not counts:
        return
    shown = ", ".join(f"{name} ({n})" for name, n in counts.most_common(MAX_SHOWN))
    if all(label in counts or label == "O" for label in all_counts):
        examples = ", ".join(map(str, sorted(training_labels, key=str)[:MAX_SHOWN]))
        raise ValueError(
            f"{part}: expected labels that training has, such as {examples}, got none"
            f" of them but {shown}. Is it the right column?"
        )
    more = f" and {len(counts) - MAX_SHOWN} others" if len(counts) > MAX_SHOWN else ""
    print_stderr(
        f"warning: {part} has labels that training lacks, {shown}{more}; each of these"
        f" {counts.total()} counts as an error"
    )
