"""Files that are replaced in one step: a reader finds the old one or the new one."""

import os
import secrets
from pathlib import Path

__all__ = ["replace"]


def replace(path: Path, content: bytes | memoryview) -> None:
    """Replace a file, or make one, in a single step."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as sink:
            sink.write(content)
            sink.flush()
            os.fsync(sink.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
