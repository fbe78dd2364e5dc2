"""Atomic file writes: a reader sees the old content or the new content, no mixture."""

import os
import secrets
from pathlib import Path

__all__ = ["replace"]


def replace(path: Path, content: bytes | memoryview) -> None:
    """Replace a file, or make one, in a single step."""
    # same folder: os.replace is atomic only within one file system
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as sink:
            sink.write(content)
            sink.flush()
            # without fsync a crash may leave the new name with no content
            os.fsync(sink.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
