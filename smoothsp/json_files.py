"""JSON files of models: size limits, duplicate keys, and names of files."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

__all__ = [
    "MAX_NAME_BYTES",
    "is_file_name",
    "parse_json_object",
    "read_json",
    "require_json_size",
]

# Limits of a JSON file and of a file name. File systems allow 255 bytes; an atomic
# write adds a prefix and a suffix.
MAX_JSON_BYTES, MAX_NAME_BYTES = 2**26, 200


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file."""
    require_json_size(path)
    return parse_json_object(path, path.read_bytes())


def require_json_size(path: Path) -> None:
    """Raise if a file is larger than ``MAX_JSON_BYTES``."""
    size = path.stat().st_size
    if size > MAX_JSON_BYTES:
        raise ValueError(
            f"{path}: expected JSON of at most {MAX_JSON_BYTES} bytes, got {size}"
        )


def parse_json_object(path: Path, content: bytes) -> dict[str, Any]:
    """Return the JSON object in ``content``; errors name ``path``."""
    try:
        value = json.loads(content, object_pairs_hook=_reject_duplicate_keys)
    except RecursionError as error:
        raise ValueError(
            f"{path}: expected JSON, got brackets nested too deep"
        ) from error
    except ValueError as error:
        raise ValueError(f"{path}: expected JSON, got {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected a JSON object, got {type(value).__name__}")
    return value


def is_file_name(name: str) -> bool:
    """Return whether this is a valid file name in a folder, on any system."""
    try:
        fits = 0 < len(name.encode()) <= MAX_NAME_BYTES
    except UnicodeEncodeError:  # unpaired surrogate
        return False
    outside = name in (".", "..", "config.json") or any(x in name for x in "/\\\0")
    return fits and not outside


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a dictionary; raise if a key occurs twice.

    JSON readers disagree on which of two values counts.
    """
    value = dict(pairs)
    if len(value) < len(pairs):
        [(key, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {key[:MAX_NAME_BYTES]!a} twice in an object")
    return value
