"""Options of ``conll_ner.py``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from runs.run_options import RunOptions
from smoothsp.models.tagger_options import NetworkOptions, TrainingOptions


@dataclass(frozen=True)
class Data:
    """Input files."""

    data: str | None = None
    """Folder of CoNLL files, or wnut17 to download it; default: a generated corpus."""
    train: str | None = None
    """File to train on, in place of --data; with --dev."""
    dev: str | None = None
    """File that chooses the best model; with --train."""
    test: str | None = None
    """File to score the best model on; with --train."""
    column: str | None = None
    """Column of the tags: its number from 1 (from the end if negative), its name, or a
    key of the last column of CoNLL-U. Detected if not given."""
    word_column: str | None = None
    """Column of the words, by number or name; detected if not given."""
    encoding: str | None = None
    """Encoding of all files; if not given, UTF-8 or else latin-1."""
    skip_bad: bool = False
    """Leave out sentences that cannot be read, with a warning that counts them."""
    unknown: str | None = None
    """Tag that marks untagged words in training files, such as ?."""


@dataclass(frozen=True)
class Model(NetworkOptions):
    """Architecture and features."""

    embeddings: str | None = None
    """Text file of word vectors, as GloVe publishes them, to start from."""
    encoder: str | None = None
    """Pretrained encoder of transformers to fine-tune: a folder or a name."""
    tokenizer: Literal["treebank", "blanks"] = "treebank"
    """How texts are split into words: as in the Penn Treebank, or at white space."""


@dataclass(frozen=True)
class Training(TrainingOptions):
    """Training and evaluation."""

    seed: int = 1
    """Seed of the initial weights, the order of sentences and the dropout."""
    devices: int = 1
    """Processes that share each batch: one for each GPU, or for each core."""


@dataclass(frozen=True)
class Output(RunOptions):
    """Output files."""

    out: Path = Path("runs/conll_ner")
    """Folder of the model, the checkpoint, the metrics and the figure."""


# Fields of a dataclass are those of its last base first.
@dataclass(frozen=True)
class Config(Output, Training, Model, Data):
    """Train a named-entity tagger."""
