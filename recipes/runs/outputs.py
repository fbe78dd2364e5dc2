"""Options of a recipe about the folder of its run."""

from dataclasses import dataclass
from pathlib import Path


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
