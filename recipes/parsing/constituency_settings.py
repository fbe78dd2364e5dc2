"""Options of ``constituency.py``."""

from dataclasses import dataclass
from pathlib import Path

from runs.run_options import RunOptions
from smoothsp.models.tree_options import ConstituencyOptions


@dataclass(frozen=True)
class Data:
    """Input files."""

    data: str | None = None
    """Folder of bracketed files, or of columns with --nested; default: drawn trees."""
    held_out: int = 20
    """With --data: number of bracketed files, the last ones, held out for scoring."""
    columns: tuple[str, ...] = ()
    """With --nested: these columns of tags, by number or name, the outer one first; all
    that there are if not given."""
    skip_bad: bool = False
    """With --nested: leave out sentences that cannot be read."""


@dataclass(frozen=True)
class Training(ConstituencyOptions):
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

    out: Path = Path("runs/constituency")
    """Folder of the checkpoint, the model and the metrics."""


# Fields of a dataclass are those of its last base first.
@dataclass(frozen=True)
class Config(Output, Training, Data):
    """Train a constituency parser."""
