"""Files that are whole or not there: JSON, tables and figures."""

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from matplotlib.figure import Figure

from smoothsp.atomic_files import replace
from smoothsp.models.files import encode_json


def write(path: Path, fill: Callable[[BinaryIO], Any]) -> None:
    """Write a file so that whoever opens it finds the old one or the new one, whole.

    True even if the process is killed or the machine loses power at any moment, and if
    several processes write it at once.
    """
    # In memory first, so that what goes wrong below is the disk's fault.
    content = io.BytesIO()
    fill(content)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(path, content.getbuffer())
    except OSError as error:
        raise OSError(
            f"{path}: expected to write {content.tell():,} bytes, got"
            f" {error.strerror or error}. What was there is untouched"
        ) from error


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON object."""
    write(path, lambda sink: sink.write(encode_json(content)))


def write_table(
    path: Path, rows: Sequence[dict[str, Any]], names: Sequence[str] | None = None
) -> None:
    """Write rows as CSV under their names, by default those of the first row."""
    text = io.StringIO()
    table = csv.DictWriter(text, names or list(rows[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write(path, lambda sink: sink.write(text.getvalue().encode()))


def write_figure(path: Path, figure: Figure, dpi: int) -> None:
    """Write a figure as PNG."""
    write(path, lambda sink: figure.savefig(sink, format="png", dpi=dpi))
