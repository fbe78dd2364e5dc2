"""The files of a model: written so that a folder always holds one whole model.

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
    """The folder, if it is a path that there may be."""
    if not isinstance(folder, str | os.PathLike):
        raise TypeError(f"folder: expected a path, got {type(folder).__name__}")
    place = Path(folder)
    try:
        place.exists()
        os.fsencode(place)
        if "\0" not in str(place):
            return place
        said = "one with a NUL character"
    except (OSError, ValueError) as error:
        said = (
            error.strerror or str(error) if isinstance(error, OSError) else str(error)
        )
    shown = repr(str(place))[:MAX_NAME_BYTES]
    raise ValueError(f"folder: expected the path of a folder, got {shown} ({said})")


def write(folder: Path, config: dict[str, Any], files: Mapping[str, bytes]) -> None:
    """Replace the model in the folder, or make one; the folder may hold other files."""
    sums = {
        name: hashlib.sha256(content).hexdigest() for name, content in files.items()
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _finish(folder)
        for name, content in files.items():
            replace(folder / (name + NEW_SUFFIX), content)
        replace(folder / CONFIG, encode_json({**config, "files": sums}))
    except OSError as error:
        raise OSError(
            f"{folder}: expected to write a model, got {error.strerror or error}. The "
            "one that was there is untouched"
        ) from error
    try:
        _finish(folder)
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
        there = "a file" if folder.is_file() else "no config.json there"
        there = there if folder.exists() else "nothing"
        raise FileNotFoundError(
            f"{folder}: expected the folder of a model, got {there}"
        )
    found = _bytes(path)
    while True:
        try:
            return _of_config(folder, found)
        except ValueError:
            # a save meanwhile: what was missing is of the model before
            before, found = found, _bytes(path)
            if found == before:
                raise


def get_about(path: Path, config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Entry ``about`` of ``config``, if there is one."""
    found = config.get("about")
    if found is None or isinstance(found, dict):
        return found
    raise ValueError(f"{path}: expected about to be a JSON object, got {found!r}")


def encode_json(value: dict[str, Any]) -> bytes:
    """JSON as it stands in a file."""
    text = f"{json.dumps(value, indent=1, ensure_ascii=False)}\n"
    # of half a surrogate pair, as in names of files that are no text
    return text.encode(errors="backslashreplace")


def _of_config(folder: Path, content: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    path = folder / CONFIG
    config = parse_json_object(path, content)
    sums = config.pop("files", None)
    if not isinstance(sums, dict) or not all(isinstance(x, str) for x in sums.values()):
        raise ValueError(f"{path}: expected the checksums of files, got no 'files'")
    for name in sums:
        if not is_file_name(name):
            shown = ascii(name) if len(name) <= MAX_NAME_BYTES else f"{name[:20]!a}..."
            raise ValueError(
                f"{path}: expected names of files as keys of 'files', got {shown}"
            )
    return config, {name: _content(folder, name, sums[name]) for name in sums}


def _content(folder: Path, name: str, checksum: str) -> bytes:
    found = False
    # a save may rename the second to the first between the looks at them
    for path in (folder / name, folder / (name + NEW_SUFFIX), folder / name):
        if not path.is_file():
            continue
        with suppress(FileNotFoundError):
            content, found = _bytes(path, checksum), True
            if content is not None:
                return content
    if not found:
        raise ValueError(f"{folder}: expected a file {name}, got none; copy it, too")
    raise ValueError(
        f"{folder / name}: expected the checksum in config.json, got another: the file "
        "is damaged, was edited, or belongs to another model"
    )


@overload
def _bytes(path: Path) -> bytes: ...


@overload
def _bytes(path: Path, checksum: str) -> bytes | None: ...


def _bytes(path: Path, checksum: str | None = None) -> bytes | None:
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


def _finish(folder: Path) -> None:
    """Let the files that config.json means take their places; drop what it does not."""
    path = folder / CONFIG
    if not path.is_file():
        return
    try:
        sums = parse_json_object(path, _bytes(path)).get("files")
    except ValueError:
        return
    for name, checksum in sums.items() if isinstance(sums, dict) else ():
        new = folder / (name + NEW_SUFFIX)
        if is_file_name(name) and new.is_file():
            if _bytes(new, str(checksum)) is not None:
                os.replace(new, folder / name)
            else:
                new.unlink()
