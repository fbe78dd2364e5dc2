"""Save and load taggers and parsers: JSON description and safetensors weights."""

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
# Limits far above real models: torch fails hard for sizes beyond 64 bits.
MAX_BUCKETS, MAX_LAYERS = 2**48, 1024
CONFIG_FIELDS = {"about", "encoder", "format", "labels", "scheme", "sizes", "structure"}
CONFIG_FIELDS |= {"levels", "tokenizer", "version"}
Network = TypeVar("Network", bound=nn.Module)
NetworkBuilder = Callable[
    [Mapping[str, Any], Vocabulary, list[str], Encoder | None], Network
]


def save_network(
    folder: str | os.PathLike[str],
    config: Mapping[str, Any],
    network: Any,
    vocabulary: Vocabulary,
    encoder: Encoder | None,
) -> None:
    """Write a model to a folder atomically; ``load_network`` reads it."""
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
    folder: Path,
    config: Mapping[str, Any],
    content: Mapping[str, bytes],
    build: NetworkBuilder[Network],
) -> tuple[Network, list[str], Vocabulary]:
    """Build network, labels and vocabulary from the result of ``files.read``.

    ``build`` returns the network of a config, with arbitrary weights.
    """
    path = folder / files.CONFIG
    encoder_config.require_allowed_fields(
        config, str(path), CONFIG_FIELDS, str(config.get("format"))
    )
    for name in (WEIGHTS, VOCABULARY):
        if name not in content:
            raise ValueError(f"{path}: expected the checksum of {name}, got none")
    vocabulary = _parse_vocabulary(folder / VOCABULARY, content[VOCABULARY])
    tokenizer, weights = content.get(TOKENIZER), content[WEIGHTS]
    source_names = f"{files.CONFIG} and {VOCABULARY}"
    labels_entry = config.get("labels")
    # Transitions alone are L^2 weights. This bounds the memory of label constraints,
    # which are built before the weights are checked.
    if isinstance(labels_entry, list) and len(labels_entry) ** 2 > 8 * len(weights):
        raise ValueError(
            f"{path}: expected the labels that {WEIGHTS} has weights for, got "
            f"{len(labels_entry)} of them"
        )
    # Build on the meta device first: an edited config could request any amount of
    # memory, and shapes are compared with the weights before memory is allocated.
    with torch.device("meta"):
        meta_network, _ = _build_network(path, config, vocabulary, tokenizer, build)
    require_shapes(folder / WEIGHTS, meta_network, weights, source_names)
    network, labels = _build_network(path, config, vocabulary, tokenizer, build)
    load_weights(folder / WEIGHTS, network, weights, source_names)
    return network, labels, vocabulary


def require_choice(path: Path, name: str, value: Any, choices: Sequence[str]) -> str:
    """Return a value of the config, or raise if it is not among the choices."""
    if value not in choices:
        expected = ", ".join(dict.fromkeys(choices))
        raise ValueError(
            f"{path}: expected {name} to be one of {expected}, got {value!r}"
        )
    return str(value)


def require_sizes(sizes: Any, *names: str) -> None:
    """Raise unless the named sizes are positive and ``dropout`` is in [0, 1]."""
    for name in names:
        value = getattr(sizes, name)
        max_value = MAX_LAYERS if name == "layers" else MAX_BUCKETS
        if type(value) is not int or not 1 <= value <= max_value:
            raise ValueError(f"{name}: {value!r}")
    drop = sizes.dropout
    if type(drop) not in (int, float) or not 0 <= drop <= 1:
        raise ValueError(f"dropout: {drop!r}")


def _build_network(
    path: Path,
    config: Mapping[str, Any],
    vocabulary: Vocabulary,
    tokenizer: bytes | None,
    build: NetworkBuilder[Network],
) -> tuple[Network, list[str]]:
    labels = config.get("labels")
    if not isinstance(labels, list) or not labels:
        raise ValueError(f"{path}: expected labels, got {labels!r}")
    try:
        if not _is_string_list(labels):
            raise ValueError("labels: expected strings")
        if len(set(labels)) < len(labels):
            raise ValueError("labels: expected each once")
        encoder = None
        if config.get("encoder") is not None:
            if tokenizer is None:
                raise ValueError(f"no {TOKENIZER}")
            encoder = Encoder.from_description(config["encoder"], tokenizer.decode())
        return build(config, vocabulary, labels, encoder), labels
    except (KeyError, OverflowError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"{path}: expected the description of a network, got an invalid one "
            f"({type(error).__name__}: {' '.join(str(error).split())[:200]})"
        ) from error


def _parse_vocabulary(path: Path, content: bytes) -> Vocabulary:
    entries = parse_json_object(path, content)
    names = {field.name for field in fields(Vocabulary)}
    if entries.keys() != names:
        wrong = ", ".join(sorted(entries.keys() ^ names))
        raise ValueError(f"{path}: expected {', '.join(sorted(names))}; wrong: {wrong}")
    lists = ("words", "characters", "shapes")
    is_valid = all(_is_string_list(entries[name]) for name in lists)
    is_valid &= isinstance(entries["affixes"], list) and all(
        map(_is_string_list, entries["affixes"])
    )
    is_valid &= (
        type(entries["buckets"]) is int and 0 < entries["buckets"] <= MAX_BUCKETS
    )
    is_valid &= isinstance(entries["rare"], list) and all(
        isinstance(x, bool) for x in entries["rare"]
    )
    if not is_valid or len(entries["rare"]) != len(entries["words"]):
        raise ValueError(f"{path}: expected lists of strings as they were saved")
    listed = {name: entries[name] for name in lists}
    listed |= {f"affixes {n}": values for n, values in enumerate(entries["affixes"])}
    for name, values in listed.items():
        text, count = next(iter(Counter(values).most_common(1)), ("", 0))
        if count > 1:
            raise ValueError(
                f"{path}: expected each of {name} once, got {text!r} {count} times"
            )
    return Vocabulary(**entries)


def _is_string_list(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(x, str) for x in value)
