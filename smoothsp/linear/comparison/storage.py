"""Runs of a comparison in a folder: a file for each, whole or not there."""

import hashlib
import io
import json
import re
import zlib
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from smoothsp.linear.engines.solution import State
from smoothsp.linear.inputs import states
from smoothsp.optim import curves

Row = dict[str, Any]
# Of a state of an interrupted run: its rows so far.
_ROWS = "rows_of_comparison"


class Stored:
    """The files of one run: its rows, or an interrupted run with its state.

    Parameters
    ----------
    folder
        Folder of all runs; None keeps nothing.
    name, seed
        Of the run.
    settings
        Settings in words. Runs of other settings have other files.
    """

    def __init__(
        self, folder: Path | None, name: str, seed: int, settings: dict[str, str]
    ) -> None:
        self.settings, self.folder = settings, folder
        text = json.dumps([name, settings], sort_keys=True)
        mark = hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
        slug = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:60]
        stem = (folder or Path()) / f"{slug}-seed{seed}-{mark}"
        self.rows, self.part = Path(f"{stem}.json"), Path(f"{stem}.npz")

    def finished(self) -> list[Row] | None:
        """Rows of a finished run; None if there is none."""
        if self.folder is None or not self.rows.exists():
            return None
        try:
            found = json.loads(self.rows.read_bytes())
            rows, settings = found["rows"], found["settings"]
            if settings == self.settings and found["checksum"] == _sum(rows, settings):
                return [dict(row) for row in rows]
        except (ValueError, TypeError, KeyError, OSError, RecursionError) as error:
            raise self._damaged(self.rows) from error
        raise self._damaged(self.rows)

    def interrupted(self) -> tuple[list[Row], State | None]:
        """Rows and state of an interrupted run; nothing if there is none."""
        if self.folder is None or not self.part.exists():
            return [], None
        try:
            with np.load(self.part, allow_pickle=False) as found:
                arrays = {name: found[name] for name in found.files}
            with states.open_state(arrays) as state:
                rows = json.loads(str(state.pop(_ROWS)))
        except (
            *(ValueError, OSError, KeyError, EOFError, BadZipFile),
            *(TypeError, RecursionError),
        ) as error:
            raise self._damaged(self.part) from error
        return rows, states.add_checksums(state)

    def keep(self, rows: list[Row]) -> None:
        """Write a finished run."""
        if self.folder is None:
            return
        checksum = _sum(rows, self.settings)
        found = {"settings": self.settings, "rows": rows, "checksum": checksum}
        curves.replace(self.rows, json.dumps(found, indent=1).encode())
        self.part.unlink(missing_ok=True)

    def keep_interrupted(self, rows: list[Row], state: State) -> None:
        """Write an interrupted run."""
        if self.folder is None:
            return
        held = io.BytesIO()
        arrays: Any = states.add_checksums({**state, _ROWS: np.array(json.dumps(rows))})
        np.savez(held, **arrays)
        curves.replace(self.part, held.getvalue())

    def _damaged(self, path: Path) -> ValueError:
        return ValueError(
            f"out: expected a run of compare(), got another, damaged or edited file at"
            f" {path}; delete it to repeat the run"
        )


def _sum(rows: list[Row], settings: dict[str, str]) -> str:
    """CRC-32 of a run, also as it was read."""
    text = json.dumps([rows, settings], sort_keys=True)
    return f"{zlib.crc32(text.encode()):08x}"
