"""Stored runs of a comparison: one file for each, written atomically."""

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
# Key of the rows so far in the state of an interrupted run.
_ROWS = "rows_of_comparison"


class StoredRun:
    """Files of one run: rows if finished, rows and state if interrupted.

    Parameters
    ----------
    folder
        Folder of all runs; None stores nothing.
    name, seed
        Name of the solver and seed.
    settings
        Settings as text; their hash is part of the file name.
    """

    def __init__(
        self, folder: Path | None, name: str, seed: int, settings: dict[str, str]
    ) -> None:
        self.settings, self.folder = settings, folder
        text = json.dumps([name, settings], sort_keys=True)
        # Settings in the name: other settings never overwrite a run.
        settings_hash = hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
        slug = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:60]
        stem = (folder or Path()) / f"{slug}-seed{seed}-{settings_hash}"
        self.rows_path, self.state_path = Path(f"{stem}.json"), Path(f"{stem}.npz")

    def load_finished(self) -> list[Row] | None:
        """Read the rows of a finished run; None if there is no file."""
        if self.folder is None or not self.rows_path.exists():
            return None
        try:
            saved = json.loads(self.rows_path.read_bytes())
            rows, settings = saved["rows"], saved["settings"]
            if settings == self.settings and saved["checksum"] == _compute_checksum(
                rows, settings
            ):
                return [dict(row) for row in rows]
        except (ValueError, TypeError, KeyError, OSError, RecursionError) as error:
            raise self._damaged_error(self.rows_path) from error
        raise self._damaged_error(self.rows_path)

    def load_interrupted(self) -> tuple[list[Row], State | None]:
        """Read rows and state of an interrupted run; ([], None) without a file."""
        if self.folder is None or not self.state_path.exists():
            return [], None
        try:
            with np.load(self.state_path, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            with states.open_state(arrays) as state:
                rows = json.loads(str(state.pop(_ROWS)))
        except (
            *(ValueError, OSError, KeyError, EOFError, BadZipFile),
            *(TypeError, RecursionError),
        ) as error:
            raise self._damaged_error(self.state_path) from error
        return rows, states.add_checksums(state)

    def save_finished(self, rows: list[Row]) -> None:
        """Write a finished run."""
        if self.folder is None:
            return
        checksum = _compute_checksum(rows, self.settings)
        content = {"settings": self.settings, "rows": rows, "checksum": checksum}
        curves.write_file(self.rows_path, json.dumps(content, indent=1).encode())
        # After the rows: an interruption in between leaves both, and the rows are read.
        self.state_path.unlink(missing_ok=True)

    def save_interrupted(self, rows: list[Row], state: State) -> None:
        """Write an interrupted run."""
        if self.folder is None:
            return
        buffer = io.BytesIO()
        arrays: Any = states.add_checksums({**state, _ROWS: np.array(json.dumps(rows))})
        np.savez(buffer, **arrays)
        curves.write_file(self.state_path, buffer.getvalue())

    def _damaged_error(self, path: Path) -> ValueError:
        return ValueError(
            f"out: expected a run of compare(), got another, damaged or edited file at"
            f" {path}; delete it to repeat the run"
        )


def _compute_checksum(rows: list[Row], settings: dict[str, str]) -> str:
    """CRC-32 of rows and settings; equal before and after JSON."""
    text = json.dumps([rows, settings], sort_keys=True)
    return f"{zlib.crc32(text.encode()):08x}"
