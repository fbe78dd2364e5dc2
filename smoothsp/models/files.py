"""Atomic storage of a model folder: readers always find one complete model.

``config.json`` names the other files by their checksums. New files are first written
beside the old ones, with ``.new`` after their names. Then the new ``config.json``
replaces the old one in a single step: this is when the model changes. The other files
follow. A reader takes the version of each file that has the checksum in
``config.json``.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, overload

from smoothsp.atomic_files import replace
from smoothsp.json_files import (
    MAX_NAME_BYTES,
    is_file_name,
    parse_json_object,
    require_json_size,
)

__all__ = [
    "CONFIG",
    "NEW_SUFFIX",
    "check_folder_path",
    "encode_json",
    "get_about",
    "read",
    "write",
]

CONFIG, NEW_SUFFIX = "config.json", ".new"
CHUNK = 2**20


def check_folder_path(folder: object) -> Path:
    """Return a folder as ``Path``; raise if the system cannot have such a path."""
    if not isinstance(folder, str | os.PathLike):
        raise TypeError(f"folder: expected a path, got {type(folder).__name__}")
    path = Path(folder)
    try:
        path.exists()
        os.fsencode(path)
        if "\0" not in str(path):
            return path
        reason = "one with a NUL character"
    except (OSError, ValueError) as error:
        reason = (
            error.strerror or str(error) if isinstance(error, OSError) else str(error)
        )
    shown = repr(str(path))[:MAX_NAME_BYTES]
    raise ValueError(f"folder: expected the path of a folder, got {shown} ({reason})")


def write(folder: Path, config: dict[str, Any], files: Mapping[str, bytes]) -> None:
    """Write a model, replacing an old one; other files of the folder stay."""
    checksums = {
        name: hashlib.sha256(content).hexdigest() for name, content in files.items()
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _commit_new_files(folder)
        for name, content in files.items():
            replace(folder / (name + NEW_SUFFIX), content)
        replace(folder / CONFIG, encode_json({**config, "files": checksums}))
    except OSError as error:
        raise OSError(
            f"{folder}: expected to write a model, got {error.strerror or error}. The "
            "one that was there is untouched"
        ) from error
    try:
        _commit_new_files(folder)
    except OSError as error:
        raise OSError(
            f"{folder}: expected to remove {NEW_SUFFIX} from the names of the new "
            f"model's files, got {error.strerror or error} at "
            f"{error.filename2 or error.filename}. The new model is saved and can be "
            "loaded; make room there for the next"
        ) from error


def read(folder: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Read the files that ``write`` wrote.

    Raises
    ------
    FileNotFoundError
        If there is no model.
    ValueError
        If it is damaged or was edited: names the file.
    """
    path = folder / CONFIG
    if not path.is_file():
        state = "a file" if folder.is_file() else "no config.json there"
        state = state if folder.exists() else "nothing"
        raise FileNotFoundError(
            f"{folder}: expected the folder of a model, got {state}"
        )
    content = _read_bytes(path)
    while True:
        try:
            return _read_listed_files(folder, content)
        except ValueError:
            # A concurrent save may have replaced files that this config names: read
            # again while the config changes.
            previous, content = content, _read_bytes(path)
            if content == previous:
                raise


def get_about(path: Path, config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the entry ``about`` of a config, or None."""
    about = config.get("about")
    if about is None or isinstance(about, dict):
        return about
    raise ValueError(f"{path}: expected about to be a JSON object, got {about!r}")


def encode_json(value: dict[str, Any]) -> bytes:
    """Encode a JSON object as it is stored in files."""
    text = f"{json.dumps(value, indent=1, ensure_ascii=False)}\n"
    # backslashreplace: lone surrogates occur in file names that are not UTF-8.
    return text.encode(errors="backslashreplace")


def _read_listed_files(
    folder: Path, content: bytes
) -> tuple[dict[str, Any], dict[str, bytes]]:
    path = folder / CONFIG
    config = parse_json_object(path, content)
    checksums = config.pop("files", None)
    if not isinstance(checksums, dict) or not all(
        isinstance(x, str) for x in checksums.values()
    ):
        raise ValueError(f"{path}: expected the checksums of files, got no 'files'")
    for name in checksums:
        if not is_file_name(name):
            shown = ascii(name) if len(name) <= MAX_NAME_BYTES else f"{name[:20]!a}..."
            raise ValueError(
                f"{path}: expected names of files as keys of 'files', got {shown}"
            )
    return config, {
        name: _read_checked_file(folder, name, checksums[name]) for name in checksums
    }


def _read_checked_file(folder: Path, name: str, checksum: str) -> bytes:
    exists = False
    # The first name is tried twice: a concurrent save may rename the second to it
    # between the two checks.
    for path in (folder / name, folder / (name + NEW_SUFFIX), folder / name):
        if not path.is_file():
            continue
        with suppress(FileNotFoundError):
            content, exists = _read_bytes(path, checksum), True
            if content is not None:
                return content
    if not exists:
        raise ValueError(f"{folder}: expected a file {name}, got none; copy it, too")
    raise ValueError(
        f"{folder / name}: expected the checksum in config.json, got another: the file "
        "is damaged, was edited, or belongs to another model"
    )


@overload
def _read_bytes(path: Path) -> bytes: ...


@overload
def _read_bytes(path: Path, checksum: str) -> bytes | None: ...


def _read_bytes(path: Path, checksum: str | None = None) -> bytes | None:
    """Return the content of a file, or None if it has another checksum."""
    if ".json" in path.suffixes:
        require_json_size(path)
    with path.open("rb") as source:
        if checksum is not None:
            digest = hashlib.sha256()
            while chunk := source.read(CHUNK):
                digest.update(chunk)
            if digest.hexdigest() != checksum:
                return None
            source.seek(0)
        return source.read()


def _commit_new_files(folder: Path) -> None:
    """Rename ``.new`` files with the checksums of config.json; delete other ones."""
    path = folder / CONFIG
    if not path.is_file():
        return
    try:
        checksums = parse_json_object(path, _read_bytes(path)).get("files")
    except ValueError:
        return
    for name, checksum in checksums.items() if isinstance(checksums, dict) else ():
        new = folder / (name + NEW_SUFFIX)
        if is_file_name(name) and new.is_file():
            if _read_bytes(new, str(checksum)) is not None:
                os.replace(new, folder / name)
            else:
                new.unlink()
