"""Options of ``ud_parser.py``."""

from dataclasses import dataclass
from pathlib import Path

from runs.run_options import RunOptions
from smoothsp.models.tree_options import ParserOptions


@dataclass(frozen=True)
class Data:
    """Input files."""

    data: str | None = None
    """Folder of CoNLL-U files; default: sentences drawn from a small grammar."""
    skip_bad: bool = False
    """Leave out sentences that cannot be read, and name them."""
    root: str | None = None
    """Relation of the root in the files, which is read as root; if not given, the one
    that all words with head 0 and no others have."""


@dataclass(frozen=True)
class Training(ParserOptions):
    """Model and training."""

    encoder: str | None = None
    """A pretrained encoder of transformers, by folder or name, to fine-tune."""
    seed: int = 1
    """Seed of the initial weights, the order of sentences and the dropout."""
    devices: int = 1
    """Processes that share each batch: one for each GPU, or for each core."""


@dataclass(frozen=True)
class Output(RunOptions):
    """Output files."""

    out: Path = Path("runs/ud_parser")
    """Folder of the checkpoint, the model, the metrics and the figure."""


# Fields of a dataclass are those of its last base first.
@dataclass(frozen=True)
class Config(Output, Training, Data):
    """Train a dependency parser."""
