"""Options of a recipe about the folder of its run."""

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Outputs:
    """Output files."""

    out: Path
    resume: bool = False
    """Continue the run in --out from its last checkpoint."""
    overwrite: bool = False
    """Replace the run in --out."""

    @property
    def checkpoint(self) -> Path:
        """State of the run, for ``--resume``."""
        return self.out / "checkpoint.pt"

    @property
    def model_folder(self) -> Path:
        """The best model so far."""
        return self.out / "model"


@dataclass(frozen=True)
class OutputsOfFits(Outputs):
    """Output files of a recipe that compares many fits."""

    resume: bool = False
    """Continue with the fits that are missing in --out."""

    @property
    def checkpoint(self) -> Path:
        """Results of the fits, for ``--resume``."""
        return self.out / "cells.json"

    def as_json(self) -> dict[str, Any]:
        """All options but those of the folder, which change no number."""
        folder = {field.name for field in fields(Outputs)}
        given = {name: x for name, x in vars(self).items() if name not in folder}
        return json.loads(json.dumps(given, default=str))
