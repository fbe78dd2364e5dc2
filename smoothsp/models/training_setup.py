"""Options and folders of training runs, before Lightning is imported."""

import difflib
import os
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import torch

from smoothsp.models.encoder import Encoder
from smoothsp.run_folder import MODEL, held, require_free

__all__ = ["make_options", "open_run", "require_encoder", "split_dev"]

# Types of fields, and of the values that each takes.
PLAIN = {
    NoneType: (NoneType,),
    bool: (bool,),
    int: (int,),
    float: (float, int),
    str: (str,),
}
# One training at a time: random numbers come from PyTorch's generator.
LOCK = threading.RLock()
# One example in so many is held out if no others choose the best epoch.
HELD_OUT = 10

Example = TypeVar("Example")
Options = TypeVar("Options")


def make_options(kind: type[Options], given: Mapping[str, Any]) -> Options:
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
    types = get_type_hints(kind)
    for name, value in given.items():
        _require_type(name, types[name], value)
    return kind(**given)


def require_encoder(encoder: Any) -> None:
    """Raise TypeError for what is neither an encoder nor the name of one."""
    if not isinstance(encoder, Encoder | str | None):
        raise TypeError(
            "encoder: expected an Encoder, or the folder or name of one, got"
            f" {type(encoder).__name__}"
        )


def _require_type(name: str, annotation: Any, value: Any) -> None:
    """Raise if a value is none that a field of this type takes."""
    is_union = get_origin(annotation) in (Union, UnionType)
    allowed = get_args(annotation) if is_union else (annotation,)
    choices = [
        x for one in allowed for x in get_args(one) if get_origin(one) is Literal
    ]
    kinds = [one for one in allowed if one in PLAIN]
    if len(kinds) + bool(choices) < len(allowed):
        # callables, modules and paths, which other checks are for
        return
    if choices and isinstance(value, str):
        if value not in choices:
            raise ValueError(
                f"{name}: expected one of {', '.join(choices)}, got {value!r}"
            )
    elif type(value) not in {x for one in kinds for x in PLAIN[one]}:
        names = [one.__name__ for one in kinds if one is not NoneType]
        names += ["str"] * bool(choices) + ["None"] * (NoneType in kinds)
        raise TypeError(
            f"{name}: expected {' or '.join(names)}, got {type(value).__name__}"
        )


def split_dev(
    examples: Sequence[Example], usable: Callable[[Example], bool] = lambda _: True
) -> tuple[list[Example], list[Example]]:
    """Split examples into training and held-out ones.

    One ``usable`` example in ten is held out, always the same ones. With fewer than 20,
    all usable ones are in both.
    """
    numbers = [n for n, one in enumerate(examples) if usable(one)]
    if len(numbers) < 2 * HELD_OUT:
        return list(examples), [examples[n] for n in numbers]
    drawn = random.Random(0).sample(numbers, -(-len(numbers) // HELD_OUT))
    held = set(drawn)
    kept = [one for n, one in enumerate(examples) if n not in held]
    return kept, [examples[n] for n in sorted(held)]


@contextmanager
def open_run(
    out: str | os.PathLike[str] | None, resume: bool, overwrite: bool
) -> Iterator[Path | None]:
    """Hold the folder of a run, if there is one, and keep other runs out of it.

    The state of PyTorch's random generators is restored in the end.
    """
    if out is not None and not (isinstance(out, str | os.PathLike) and str(out)):
        raise TypeError(f"out: expected the path of a folder, got {out!r}")
    for name, value in (("resume", resume), ("overwrite", overwrite)):
        _require_type(name, bool, value)
    if out is None and (resume or overwrite):
        name = "resume" if resume else "overwrite"
        raise ValueError(f"{name}: expected out, the folder of the run, beside it")
    with LOCK, torch.random.fork_rng(), torch.inference_mode(False):
        if out is None:
            yield None
            return
        folder = Path(out)
        require_free(folder, resume, overwrite)
        with held(folder, folder / MODEL):
            yield folder
