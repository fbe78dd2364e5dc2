"""Runs of a comparison in a folder: a file for each, whole or not there."""

import hashlib
import io
import json
import re
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from smoothsp.linear.engines.solution import State
from smoothsp.optim import curves

Row = dict[str, Any]


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
        text = json.dumps(settings, sort_keys=True)
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
            if found["settings"] == self.settings:
                return [dict(row) for row in found["rows"]]
        except (ValueError, TypeError, KeyError) as error:
            raise self._damaged(self.rows) from error
        raise self._damaged(self.rows)

    def interrupted(self) -> tuple[list[Row], State | None]:
        """Rows and state of an interrupted run; nothing if there is none."""
        if self.folder is None or not self.part.exists():
            return [], None
        try:
            with np.load(self.part, allow_pickle=False) as found:
                state = {name: found[name] for name in found.files}
            rows = json.loads(str(state.pop("rows of the comparison")))
        except (ValueError, OSError, KeyError, EOFError, BadZipFile) as error:
            raise self._damaged(self.part) from error
        return rows, state

    def keep(self, rows: list[Row]) -> None:
        """Write a finished run."""
        if self.folder is None:
            return
        content = json.dumps({"settings": self.settings, "rows": rows}, indent=1)
        curves.replace(self.rows, content.encode())
        self.part.unlink(missing_ok=True)

    def keep_interrupted(self, rows: list[Row], state: State) -> None:
        """Write an interrupted run."""
        if self.folder is None:
            return
        held = io.BytesIO()
        text = np.array(json.dumps(rows))
        arrays: Any = {**state, "rows of the comparison": text}
        np.savez(held, **arrays)
        curves.replace(self.part, held.getvalue())

    def _damaged(self, path: Path) -> ValueError:
        return ValueError(
            f"out: expected a run of compare(), got another or a damaged file at"
            f" {path}; delete it to repeat the run"
        )
