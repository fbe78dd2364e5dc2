"""Options of ``conll_linear.py``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from runs.run_options import FitsOptions

Features = Literal["hashed", "hashed-with-label", "joint-with-label"]
Study = Literal["solvers", "rates", "mu", "k", "warm-start", "smoothing", "tagger"]


@dataclass(frozen=True)
class Data:
    """Input files."""

    data: Path | None = None
    """Folder of CoNLL files; default: an invented corpus."""
    column: str | None = None
    """Column of the tags, by number or name; detected if not given."""
    word_column: str | None = None
    """Column of the words, by number or name; detected if not given."""
    skip_bad: bool = False
    """Leave out sentences that cannot be read, with a warning that counts them."""


@dataclass(frozen=True)
class Model:
    """Architecture and features."""

    features: Features = "hashed"
    """Hash features alone, or with the tag as in the paper; words apart or joined."""
    hashing: int = 2**16 - 1
    """Number of hashed columns; if hashed with the tag, number of weights."""


@dataclass(frozen=True)
class Training:
    """Training and evaluation."""

    study: tuple[Study, ...] = ("solvers",)
    """Setting to vary, or tagger to train a good tagger."""
    c: tuple[float, ...] = (1.0,)
    """Values of c, where lambda = c / n; not used by the tagger."""
    calls: int = 20
    """Oracle calls per sentence in each run; an even number."""
    seeds: tuple[int, ...] = (0, 1)
    """Seeds of the runs; curves show mean and standard deviation."""
    bound_passes: int = 80
    """Passes of the BCFW run for each c, whose dual is the lower bound."""


@dataclass(frozen=True)
class Output(FitsOptions):
    """Output files."""

    out: Path = Path("runs/conll_linear")
    """Folder of the numbers and the figures."""


@dataclass(frozen=True)
class Config(Output, Training, Model, Data):
    """Train linear taggers and compare how fast their solvers converge."""

    def __post_init__(self) -> None:
        if self.calls < 2 or self.calls % 2:
            raise ValueError(
                f"calls: expected an even number, at least 2, got {self.calls}"
            )
        if "tagger" in self.study and len(self.study) > 1:
            raise ValueError(
                f"study: expected the tagger alone, got {', '.join(self.study)}. Give"
                " it a run of its own"
            )
