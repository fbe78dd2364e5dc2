"""Options and folders of training runs, before Lightning is imported."""

import difflib
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from smoothsp.run_folder import MODEL, held, require_free

__all__ = ["made", "parted", "run_of"]

# One example in so many is held out if no others choose the best epoch.
HELD_OUT = 10

Example = TypeVar("Example")
Options = TypeVar("Options")


def made(kind: type[Options], given: Mapping[str, Any]) -> Options:
    """Return options of this dataclass.

    Raises
    ------
    TypeError
        For a name that is no field: names it, and the nearest field.
    """
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f", did you mean {near[0]!r}" if near else ""
            raise TypeError(f"options: expected {', '.join(known)}, got {name!r}{hint}")
    return kind(**given)


def parted(
    examples: Sequence[Example], usable: Callable[[Example], bool] = lambda _: True
) -> tuple[list[Example], list[Example]]:
    """Return examples to train on, and one in ten, drawn at random, to choose by.

    Few examples are used for both. Only ``usable`` ones are chosen by.
    """
    numbers = [n for n, one in enumerate(examples) if usable(one)]
    if len(numbers) < 2 * HELD_OUT:
        return list(examples), [examples[n] for n in numbers]
    drawn = random.Random(0).sample(numbers, len(numbers) // HELD_OUT)
    held = set(drawn)
    kept = [one for n, one in enumerate(examples) if n not in held]
    return kept, [examples[n] for n in sorted(held)]


@contextmanager
def run_of(
    out: str | os.PathLike[str] | None, resume: bool, overwrite: bool
) -> Iterator[Path | None]:
    """Hold the folder of a run, if there is one, and keep other runs out of it."""
    if out is None:
        if resume or overwrite:
            name = "resume" if resume else "overwrite"
            raise ValueError(f"{name}: expected out, the folder of the run, beside it")
        yield None
        return
    folder = Path(out)
    require_free(folder, resume, overwrite)
    with held(folder, folder / MODEL):
        yield folder
