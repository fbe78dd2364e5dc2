"""Networks of words in folders: what is written of one, and one from what was."""

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from smoothsp import encoder_config
from smoothsp.json_files import parse_json_object
from smoothsp.models import files
from smoothsp.models.encoder import Encoder
from smoothsp.models.features import Vocabulary
from smoothsp.models.weights import (
    WEIGHTS,
    load_weights,
    require_shapes,
    to_safetensors,
)

__all__ = ["load_network", "require_choice", "require_sizes", "save_network"]

VOCABULARY, TOKENIZER = "vocabulary.json", "tokenizer.json"
VERSION = 1
# of integers that torch takes
MOST_BUCKETS, MOST_LAYERS = 2**48, 1024
FIELDS = {"about", "encoder", "format", "labels", "scheme", "sizes", "structure"}
FIELDS |= {"levels", "tokenizer", "version"}
Network = TypeVar("Network", bound=nn.Module)
Build = Callable[[Mapping[str, Any], Vocabulary, list[str], Encoder | None], Network]


def save_network(
    folder: str | os.PathLike[str],
    config: Mapping[str, Any],
    network: Any,
    vocabulary: Vocabulary,
    encoder: Encoder | None,
) -> None:
    """Replace the model in a folder in one step, or make one; ``restored`` reads it."""
    about = {"version": VERSION, "sizes": asdict(network.sizes)}
    about["encoder"] = encoder.description() if encoder else None
    content = {
        WEIGHTS: to_safetensors(network),
        VOCABULARY: files.encode_json(asdict(vocabulary)),
    }
    if encoder:
        content[TOKENIZER] = encoder.tokenizer.to_str().encode()
    files.write(files.check_folder_path(folder), {**config, **about}, content)


def load_network(
    place: Path,
    config: Mapping[str, Any],
    content: Mapping[str, bytes],
    build: Build[Network],
) -> tuple[Network, list[str], Vocabulary]:
    """Return network, labels and vocabulary of what ``files.read`` returned.

    ``build`` makes the network of ``config``, with weights of any values.
    """
    path = place / files.CONFIG
    encoder_config.require_allowed_fields(
        config, str(path), FIELDS, str(config.get("format"))
    )
    for name in (WEIGHTS, VOCABULARY):
        if name not in content:
            raise ValueError(f"{path}: expected the checksum of {name}, got none")
    vocabulary = _vocabulary(place / VOCABULARY, content[VOCABULARY])
    tokenizer, weights = content.get(TOKENIZER), content[WEIGHTS]
    said_by = f"{files.CONFIG} and {VOCABULARY}"
    listed = config.get("labels")
    # neighbours alone have more weights, so rules for labels take no more than these
    if isinstance(listed, list) and len(listed) ** 2 > 8 * len(weights):
        raise ValueError(
            f"{path}: expected the labels that {WEIGHTS} has weights for, got "
            f"{len(listed)} of them"
        )
    # at first without memory: an edited file may ask for any amount of it
    with torch.device("meta"):
        sketch, _ = _built(path, config, vocabulary, tokenizer, build)
    require_shapes(place / WEIGHTS, sketch, weights, said_by)
    network, labels = _built(path, config, vocabulary, tokenizer, build)
    load_weights(place / WEIGHTS, network, weights, said_by)
    return network, labels, vocabulary


def require_choice(path: Path, name: str, value: Any, known: Sequence[str]) -> str:
    """Return the value if it is one of the known ones."""
    if value not in known:
        expected = ", ".join(dict.fromkeys(known))
        raise ValueError(
            f"{path}: expected {name} to be one of {expected}, got {value!r}"
        )
    return str(value)


def require_sizes(sizes: Any, *names: str) -> None:
    """Raise unless sizes of these names are positive, and ``dropout`` is a share."""
    for name in names:
        value = getattr(sizes, name)
        most = MOST_LAYERS if name == "layers" else MOST_BUCKETS
        if type(value) is not int or not 1 <= value <= most:
            raise ValueError(f"{name}: {value!r}")
    drop = sizes.dropout
    if type(drop) not in (int, float) or not 0 <= drop <= 1:
        raise ValueError(f"dropout: {drop!r}")


def _built(
    path: Path,
    config: Mapping[str, Any],
    vocabulary: Vocabulary,
    tokenizer: bytes | None,
    build: Build[Network],
) -> tuple[Network, list[str]]:
    labels = config.get("labels")
    if not isinstance(labels, list) or not labels:
        raise ValueError(f"{path}: expected labels, got {labels!r}")
    try:
        if not _strings(labels):
            raise ValueError("labels: expected strings")
        if len(set(labels)) < len(labels):
            raise ValueError("labels: expected each once")
        encoder = None
        if config.get("encoder") is not None:
            if tokenizer is None:
                raise ValueError(f"no {TOKENIZER}")
            encoder = Encoder.described(config["encoder"], tokenizer.decode())
        return build(config, vocabulary, labels, encoder), labels
    except (KeyError, OverflowError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"{path}: expected the description of a network, got an invalid one "
            f"({type(error).__name__}: {' '.join(str(error).split())[:200]})"
        ) from error


def _vocabulary(path: Path, content: bytes) -> Vocabulary:
    found = parse_json_object(path, content)
    names = {field.name for field in fields(Vocabulary)}
    if found.keys() != names:
        wrong = ", ".join(sorted(found.keys() ^ names))
        raise ValueError(f"{path}: expected {', '.join(sorted(names))}; wrong: {wrong}")
    lists = ("words", "characters", "shapes")
    good = all(_strings(found[name]) for name in lists)
    good &= isinstance(found["affixes"], list) and all(map(_strings, found["affixes"]))
    good &= type(found["buckets"]) is int and 0 < found["buckets"] <= MOST_BUCKETS
    good &= isinstance(found["rare"], list) and all(
        isinstance(x, bool) for x in found["rare"]
    )
    if not good or len(found["rare"]) != len(found["words"]):
        raise ValueError(f"{path}: expected lists of strings as they were saved")
    listed = {name: found[name] for name in lists}
    listed |= {f"affixes {n}": known for n, known in enumerate(found["affixes"])}
    for name, known in listed.items():
        text, count = next(iter(Counter(known).most_common(1)), ("", 0))
        if count > 1:
            raise ValueError(
                f"{path}: expected each of {name} once, got {text!r} {count} times"
            )
    return Vocabulary(**found)


def _strings(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(x, str) for x in value)
