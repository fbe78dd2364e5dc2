"""Options of ``conll_ner.py``, and checks of their combinations."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from runs import arguments
from runs.outputs import Outputs
from smoothsp.data.columns import Layout
from smoothsp.models.training import NetworkOptions, Options, TrainingOptions
from smoothsp.models.training import check as check_training

Show = Literal["columns", "json", "colour"]
Tokenizer = Literal["treebank", "blanks"]


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
    predict: str | None = None
    """Tag the text in this file (- for standard input) with the model in --out."""
    evaluate: str | None = None
    """Score the model in --out on this file of words and tags."""
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
    tokenizer: Tokenizer = "treebank"
    """How texts are split into words: as in the Penn Treebank, or at white space."""


@dataclass(frozen=True)
class Training(TrainingOptions):
    """Training and evaluation."""


@dataclass(frozen=True)
class Output(Outputs):
    """Output files."""

    out: Path = Path("runs/conll_ner")
    """Folder of the model, the checkpoint, the metrics and the figure."""
    show: Show = "columns"
    """With --predict: columns of words and tags, lines of JSON, or coloured text."""
    nbest: int = 1
    """With --predict: number of best taggings to print for each sentence."""
    confidence: bool = False
    """With --predict and json or colour: add probabilities of taggings and spans."""


# Fields of a dataclass are those of its last base first.
@dataclass(frozen=True)
class Config(Output, Training, Model, Data):
    """Train a named-entity tagger, or tag text with a trained one."""

    @property
    def layout(self) -> Layout:
        return Layout(
            self.column, self.word_column, self.encoding, self.skip_bad, self.unknown
        )

    @property
    def options(self) -> dict[str, Any]:
        """What ``Tagger.train`` takes of these."""
        return {field.name: getattr(self, field.name) for field in fields(Options)}


def check(config: Config) -> None:
    check_training(config)
    arguments.one_of(config, show=get_args(Show), tokenizer=get_args(Tokenizer))
    arguments.at_least(config, nbest=1)
    if config.nbest > 1 and config.predict is None:
        raise ValueError(
            f"nbest: expected 1 in training, got {config.nbest}. Add --predict FILE"
        )
    if config.show != "columns" and config.predict is None:
        raise ValueError(
            f"show: expected columns in training, got {config.show}. Add --predict FILE"
        )
    if config.confidence and config.show == "columns":
        raise ValueError(
            "confidence: expected --predict FILE with --show json or colour beside it,"
            " got columns, which have no place for it"
        )
    _check_pairs(config)
    # says what is wrong with --encoding
    assert config.layout


def _check_pairs(config: Config) -> None:
    arguments.of_run(config)
    if config.train is not None and config.data is not None:
        raise ValueError("train: expected --train or --data, got both")
    if (config.train is None) != (config.dev is None):
        given, lacking = ("train", "dev") if config.train else ("dev", "train")
        raise ValueError(
            f"{lacking}: expected a file beside --{given}, got none: one is trained on,"
            " the other chooses the best model"
        )
    if config.test is not None and config.train is None:
        raise ValueError(
            "test: expected --train and --dev beside it, got none. To score a trained"
            " model, give --evaluate FILE"
        )
    if config.word_size is not None and config.embeddings is not None:
        raise ValueError(
            "word_size: expected none with --embeddings, whose vectors have a size"
        )
