"""JSON files, and names of files in them, checked before they are used."""

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

# Bytes of a JSON file, and of a file's name: a save adds some to each of 255.
MOST_JSON, MAX_NAME_BYTES = 2**26, 200


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file."""
    require_json_size(path)
    return parse_json_object(path, path.read_bytes())


def require_json_size(path: Path) -> None:
    """Raise if a file is larger than any JSON file of a model."""
    size = path.stat().st_size
    if size > MOST_JSON:
        raise ValueError(
            f"{path}: expected JSON of at most {MOST_JSON} bytes, got {size}"
        )


def parse_json_object(path: Path, content: bytes) -> dict[str, Any]:
    """A JSON object."""
    try:
        found = json.loads(content, object_pairs_hook=_each_once)
    except RecursionError as error:
        raise ValueError(
            f"{path}: expected JSON, got brackets that nest too deep"
        ) from error
    except ValueError as error:
        raise ValueError(f"{path}: expected JSON, got {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path}: expected a JSON object, got {type(found).__name__}")
    return found


def is_file_name(name: str) -> bool:
    """Whether a file in a folder may have this name, on any system."""
    try:
        fits = 0 < len(name.encode()) <= MAX_NAME_BYTES
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    outside = name in (".", "..", "config.json") or any(x in name for x in "/\\\0")
    return fits and not outside


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON without a key twice, of which readers take different ones."""
    found = dict(pairs)
    if len(found) < len(pairs):
        [(key, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {key[:MAX_NAME_BYTES]!a} twice in an object")
    return found
