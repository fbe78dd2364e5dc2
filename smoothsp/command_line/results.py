"""Output of commands: standard output, or files that are written atomically."""

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from smoothsp import atomic_files

__all__ = ["format_table", "json_line", "write", "write_text"]


def write_text(parts: Iterable[str], out: Path | None) -> None:
    """Write parts of a text to standard output one by one, or to a file at the end.

    If an error interrupts the parts, the file has those before it.
    """
    if out is None:
        for part in parts:
            sys.stdout.write(part)
        return
    written = []
    try:
        for part in parts:
            written.append(part)
    finally:
        if written:
            write(out, "".join(written).encode(errors="surrogateescape"))


def write(path: Path, content: bytes) -> None:
    """Write a file atomically; create its folder."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_files.replace(path, content)
    except OSError as error:
        raise OSError(
            f"{path}: expected to write {len(content):,} bytes, got"
            f" {error.strerror or error}. An existing file is unchanged"
        ) from error


def json_line(value: Mapping[str, Any]) -> str:
    """Return a dictionary as one line of JSON."""
    return json.dumps(value, ensure_ascii=False) + "\n"


def format_table(title: str, table: Mapping[str, Mapping[str, float]]) -> str:
    """Return a table of text: floats in percent, integers unchanged."""
    heads = list(next(iter(table.values())))
    width = 2 + max(map(len, [title, *table]))
    sizes = [max(12, 2 + len(head)) for head in heads]
    lines = [title.ljust(width)]
    lines[0] += "".join(h.rjust(n) for h, n in zip(heads, sizes, strict=True))
    for name, row in table.items():
        cells = [
            str(x) if isinstance(x, int) else f"{100 * x:.2f}" for x in row.values()
        ]
        line = "".join(c.rjust(n) for c, n in zip(cells, sizes, strict=True))
        lines.append(name.ljust(width) + line)
    return "\n".join(lines) + "\n"
