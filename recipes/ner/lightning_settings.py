"""Options of ``lightning_ner.py``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Optimizer = Literal["adam", "svrg", "casimir", "prox-linear"]


@dataclass(frozen=True)
class Data:
    """Input files."""

    data: str | None = None
    """Folder of CoNLL files; default: an invented corpus."""
    column: str | None = None
    """Column of the tags, as in conll_ner.py."""
    word_column: str | None = None
    """Column of the words, as in conll_ner.py."""
    skip_bad: bool = False
    """Leave out sentences that cannot be read, with a warning that counts them."""


@dataclass(frozen=True)
class Training:
    """Training and evaluation."""

    optimizer: Optimizer = "adam"
    """adam suits networks such as this one; its rate falls linearly to 0. svrg, casimir
    and prox-linear suit convex problems and certificates. They learn more slowly here,
    and show how to use such optimizers in Lightning."""
    epochs: int = 10
    """Passes over the training sentences."""
    rate: float = 0.01
    """Initial step size."""
    seed: int = 1
    """Seed of the initial weights and of the order of the sentences."""


@dataclass(frozen=True)
class Output:
    """Output files."""

    out: Path = Path("runs/lightning_ner")
    """Folder of the checkpoints and of Lightning's logs."""
    resume: bool = False
    """Continue the run in --out from its last checkpoint."""
    overwrite: bool = False
    """Replace the run in --out."""


@dataclass(frozen=True)
class Config(Output, Training, Data):
    """Train a named-entity tagger with Lightning."""

    @property
    def checkpoint(self) -> Path:
        """Checkpoint after the last epoch."""
        return self.out / "last.ckpt"
