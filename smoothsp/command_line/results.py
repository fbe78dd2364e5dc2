"""Results of commands: on standard output, or in files that are whole or not there."""

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from smoothsp import atomic_files

__all__ = ["format_table", "json_line", "write", "write_text"]


def write_text(parts: Iterable[str], out: Path | None) -> None:
    """Write a text part by part on standard output, or the whole of it to a file.

    The file is written if an error ends the parts, too, and holds those before it.
    """
    if out is None:
        for part in parts:
            sys.stdout.write(part)
        return
    kept = []
    try:
        for part in parts:
            kept.append(part)
    finally:
        if kept:
            write(out, "".join(kept).encode(errors="surrogateescape"))


def write(path: Path, content: bytes) -> None:
    """Write a file so that whoever opens it finds the old one or the new one, whole."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_files.replace(path, content)
    except OSError as error:
        raise OSError(
            f"{path}: expected to write {len(content):,} bytes, got"
            f" {error.strerror or error}. What was there is untouched"
        ) from error


def json_line(value: Mapping[str, Any]) -> str:
    """One line of JSON."""
    return json.dumps(value, ensure_ascii=False) + "\n"


def format_table(title: str, table: Mapping[str, Mapping[str, float]]) -> str:
    """A table of scores in percent, and of whole numbers as they are."""
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
