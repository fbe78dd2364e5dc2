"""Options of a recipe about the folder of its run."""

import json
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from smoothsp.run_folder import CHECKPOINT, held, require_free


@dataclass(frozen=True)
class RunOptions:
    """Output files."""

    out: Path
    resume: bool = False
    """Continue the run in --out from its last checkpoint."""
    overwrite: bool = False
    """Replace the run in --out."""

    @property
    def checkpoint(self) -> Path:
        """State of the run, for ``--resume``."""
        return self.out / CHECKPOINT

    @property
    def model_folder(self) -> Path:
        """The best model so far."""
        return self.out / "model"

    def locked(self) -> AbstractContextManager[None]:
        """Keep other runs out of --out, which has none, or one to go on or replace."""
        require_free(self.out, self.resume, self.overwrite, self.checkpoint.name)
        return held(self.out)


@dataclass(frozen=True)
class FitsOptions(RunOptions):
    """Output files of a recipe that compares many fits."""

    resume: bool = False
    """Continue with the fits that are missing in --out."""

    @property
    def checkpoint(self) -> Path:
        """Results of the fits, for ``--resume``."""
        return self.out / "cells.json"

    def as_json(self) -> dict[str, Any]:
        """All options but those of the folder, which change no number."""
        folder = {field.name for field in fields(RunOptions)}
        values = {name: x for name, x in vars(self).items() if name not in folder}
        return json.loads(json.dumps(values, default=str))
