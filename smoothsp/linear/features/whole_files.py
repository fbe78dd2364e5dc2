"""Files that are whole or not there, whoever writes or dies meanwhile."""

import os
import secrets
from pathlib import Path


def write(path: str | os.PathLike[str], content: bytes) -> None:
    """Replace a file at once: a reader finds the old one or the new one.

    Raises
    ------
    ValueError
        If there is something else than a file, whose place it would take.
    OSError
        If it cannot be written; an existing file is then unchanged.
    """
    path = Path(path)
    if path.exists() and not path.is_file() and not path.is_dir():
        raise ValueError(f"path: expected a file, got a device or pipe at {path}")
    # in the same folder, so that the last step is a rename, which is atomic
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as sink:
            sink.write(content)
        os.replace(part, path)
    except OSError as error:
        raise type(error)(
            f"{path}: expected to write {len(content):,} bytes, got"
            f" {error.strerror or error}. What was there is untouched"
        ) from error
    finally:
        part.unlink(missing_ok=True)
