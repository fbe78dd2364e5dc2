"""Options, development split and run folder of a training, without Lightning."""

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

# Accepted types of values for each annotated type of an option.
ACCEPTED_TYPES = {
    NoneType: (NoneType,),
    bool: (bool,),
    int: (int,),
    float: (float, int),
    str: (str,),
}
# One training at a time, since trainings share PyTorch's global random generator.
TRAINING_LOCK = threading.RLock()
# Without a development set, one example in this many is held out.
INVERSE_DEV_FRACTION = 10

Example = TypeVar("Example")
Options = TypeVar("Options")


def make_options(kind: type[Options], values: Mapping[str, Any]) -> Options:
    """Build options of a dataclass, with checked names and types.

    Raises
    ------
    TypeError
        For a name that is no field; suggests the most similar field.
    """
    field_names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    for name in values:
        if name not in field_names:
            nearest = difflib.get_close_matches(name, field_names, n=1)
            hint = f", did you mean {nearest[0]!r}" if nearest else ""
            raise TypeError(
                f"options: expected {', '.join(field_names)}, got {name!r}{hint}"
            )
    types = get_type_hints(kind)
    for name, value in values.items():
        _require_type(name, types[name], value)
    return kind(**values)


def require_encoder(encoder: Any) -> None:
    """Raise ``TypeError`` unless the value is an encoder, a name or None."""
    if not isinstance(encoder, Encoder | str | None):
        raise TypeError(
            "encoder: expected an Encoder, or the folder or name of one, got"
            f" {type(encoder).__name__}"
        )


def _require_type(name: str, annotation: Any, value: Any) -> None:
    """Raise if a value does not fit the annotation of an option."""
    is_union = get_origin(annotation) in (Union, UnionType)
    allowed = get_args(annotation) if is_union else (annotation,)
    choices = [
        x for type_ in allowed for x in get_args(type_) if get_origin(type_) is Literal
    ]
    plain_types = [type_ for type_ in allowed if type_ in ACCEPTED_TYPES]
    if len(plain_types) + bool(choices) < len(allowed):
        # Callables, modules and paths are checked elsewhere.
        return
    if choices and isinstance(value, str):
        if value not in choices:
            raise ValueError(
                f"{name}: expected one of {', '.join(choices)}, got {value!r}"
            )
    elif type(value) not in {x for type_ in plain_types for x in ACCEPTED_TYPES[type_]}:
        names = [type_.__name__ for type_ in plain_types if type_ is not NoneType]
        names += ["str"] * bool(choices) + ["None"] * (NoneType in plain_types)
        raise TypeError(
            f"{name}: expected {' or '.join(names)}, got {type(value).__name__}"
        )


def split_dev(
    examples: Sequence[Example], usable: Callable[[Example], bool] = lambda _: True
) -> tuple[list[Example], list[Example]]:
    """Split examples into training and development examples.

    A fixed random tenth of the ``usable`` examples becomes the development set. With
    fewer than 20 usable examples, these are in both sets.
    """
    usable_indices = [n for n, example in enumerate(examples) if usable(example)]
    if len(usable_indices) < 2 * INVERSE_DEV_FRACTION:
        return list(examples), [examples[n] for n in usable_indices]
    sampled = random.Random(0).sample(
        usable_indices, -(-len(usable_indices) // INVERSE_DEV_FRACTION)
    )
    dev_indices = set(sampled)
    train = [example for n, example in enumerate(examples) if n not in dev_indices]
    return train, [examples[n] for n in sorted(dev_indices)]


@contextmanager
def open_run(
    out: str | os.PathLike[str] | None, resume: bool, overwrite: bool
) -> Iterator[Path | None]:
    """Lock the folder of a run while the context lasts; yield None without one.

    Restores the state of PyTorch's random generators afterwards.
    """
    if out is not None and not (isinstance(out, str | os.PathLike) and str(out)):
        raise TypeError(f"out: expected the path of a folder, got {out!r}")
    for name, value in (("resume", resume), ("overwrite", overwrite)):
        _require_type(name, bool, value)
    if out is None and (resume or overwrite):
        name = "resume" if resume else "overwrite"
        raise ValueError(f"{name}: expected out, the folder of the run, beside it")
    with TRAINING_LOCK, torch.random.fork_rng(), torch.inference_mode(False):
        if out is None:
            yield None
            return
        folder = Path(out)
        require_free(folder, resume, overwrite)
        with held(folder, folder / MODEL):
            yield folder
