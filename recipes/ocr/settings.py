"""Options of ``ocr_words.py``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from runs.run_options import FitsOptions

Setting = Literal["small", "large"]


@dataclass(frozen=True)
class Data:
    """Input files."""

    data: Path | None = None
    """letter.data or its folder; default: generated words."""
    drawn: int = 200
    """Number of generated words, without --data."""


@dataclass(frozen=True)
class Training:
    """Training and evaluation."""

    settings: tuple[Setting, ...] = ("small", "large")
    """Settings for the eight variants: small or large training set."""
    lam: tuple[float, ...] = (0.1, 1e-3)
    """The values of lambda for the eight variants."""
    seeds: tuple[int, ...] = (1,)
    """Seeds of the runs of each variant."""
    tol: float = 1e-4
    """The duality gap at which a variant stops."""
    max_passes: int = 2000
    """Maximum number of passes of a run."""
    max_seconds: float = 60.0
    """Time limit of a run in seconds."""


@dataclass(frozen=True)
class Output(FitsOptions):
    """Output files."""

    out: Path = Path("runs/ocr_words")
    """Folder of tables, figures and numbers."""


@dataclass(frozen=True)
class Config(Output, Training, Data):
    """Eight variants of BCFW to the same gap."""
