"""Options and folders of training runs, before Lightning is imported."""

import difflib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from smoothsp.run_folder import MODEL, held, require_free

__all__ = ["made", "run_of"]

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
