"""What can be asked of ``conll_ner.py``, and what of it fits together."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from corpora.column_files import Layout
from runs import arguments
from smoothsp.models.network import Sizes

Loss = Literal["hinge", "hinge-l2", "hinge-entropy", "crf", "perceptron", "softmax"]
Structure = Literal["chain", "semi-markov"]
Show = Literal["columns", "json", "colour"]
Tokenizer = Literal["treebank", "blanks"]
MU = {"hinge-l2": 1.0, "hinge-entropy": 1.0}
TOP_K = 5
WORD_SIZE = 100
ROUNDS, LEAST_STEPS = 8, 1200


@dataclass(frozen=True)
class Data:
    """Files."""

    data: str | None = None
    """Folder of CoNLL files, or wnut17 to download it; default: an invented corpus."""
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
    """Where the tags are: a column's number from 1, from the end if negative, its name,
    or a key of the last column of CoNLL-U; recognised if not given."""
    word_column: str | None = None
    """Where the words are, by number or name; recognised if not given."""
    encoding: str | None = None
    """Of all files of words; if not given UTF-8, or else latin-1."""
    skip_bad: bool = False
    """Leave out sentences that cannot be read, with a warning that counts them."""
    unknown: str | None = None
    """A tag, ? say, that training files have where nobody tagged a word: it may be
    anything there."""


@dataclass(frozen=True)
class Model:
    """What is trained."""

    structure: Structure = "chain"
    """Labels of words, each with its neighbours; or of whole segments, no longer than
    the longest in training."""
    embeddings: str | None = None
    """Text file of word vectors, as GloVe publishes them, to start from."""
    encoder: str | None = None
    """A pretrained encoder of transformers, by folder or name, to be trained along."""
    word_size: int | None = None
    """Columns of word vectors; 100 if not given. Not with --embeddings."""
    hidden: int = 128
    """Units of the LSTM, each way."""
    tokenizer: Tokenizer = "treebank"
    """How the model cuts texts into words: as the Penn Treebank does, by NLTK, or at
    white space."""


@dataclass(frozen=True)
class Training:
    """How it is trained."""

    loss: Loss = "hinge-l2"
    """What is minimised; l2 and entropy say how the hinge is smoothed; softmax is the
    baseline without a chain: independent labels."""
    mu: float | None = None
    """Strength of the smoothing; 1 if not given. Only with hinge-l2, hinge-entropy."""
    top_k: int | None = None
    """Outputs that l2 smoothing spreads over; 5 if not given. Only with hinge-l2."""
    epochs: int | None = None
    """Passes over the training sentences; 8, and at least 1,200 steps, if neither these
    nor --steps are given."""
    steps: int | None = None
    """Training steps, in eight rounds, each judged on the development sentences."""
    patience: int | None = None
    """Stop after so many rounds without a better development F1."""
    seed: int = 1
    """Of the initial weights, the order of sentences and the dropout."""
    rate: float = 2e-3
    """Highest learning rate of the network."""
    encoder_rate: float = 5e-5
    """Highest learning rate of the encoder."""
    batch: int = 32
    """Sentences of a step."""
    dropout: float = 0.5
    """Share of units that a step leaves out."""


@dataclass(frozen=True)
class Output:
    """What is written."""

    out: Path = Path("runs/conll_ner")
    """Folder of the model, the checkpoint, the metrics and the figure."""
    resume: bool = False
    """Continue the run in --out from its last whole epoch."""
    overwrite: bool = False
    """Replace the run in --out."""
    show: Show = "columns"
    """With --predict: columns of words and tags, lines of JSON, or coloured text."""
    nbest: int = 1
    """With --predict: how many of the best taggings of each sentence to print."""
    confidence: bool = False
    """With --predict and json or colour: how probable taggings and spans are."""


# Fields of a dataclass are those of its last base first.
@dataclass(frozen=True)
class Config(Output, Training, Model, Data):
    """Train a named-entity tagger, or tag text with a trained one."""

    @property
    def checkpoint(self) -> Path:
        return self.out / "checkpoint.pt"

    @property
    def model(self) -> Path:
        return self.out / "model"

    @property
    def layout(self) -> Layout:
        return Layout(
            self.column, self.word_column, self.encoding, self.skip_bad, self.unknown
        )

    def sizes(self, word: int | None, longest: int = 1) -> Sizes:
        size = word or self.word_size or WORD_SIZE
        segments = longest if self.structure == "semi-markov" else None
        return Sizes(size, self.hidden, self.dropout, self.loss == "softmax", segments)

    def rounds(self, batches: int) -> tuple[int, int]:
        """How often the model is judged, and the steps from one time to the next."""
        if self.epochs is not None:
            return self.epochs, batches
        least = self.steps or LEAST_STEPS
        steps = least if self.steps else max(least, ROUNDS * batches)
        rounds = min(ROUNDS, steps)
        return rounds, math.ceil(steps / rounds)


def check(config: Config) -> None:
    arguments.one_of(config, loss=get_args(Loss), structure=get_args(Structure))
    arguments.one_of(config, show=get_args(Show), tokenizer=get_args(Tokenizer))
    if config.structure != "chain" and config.loss == "softmax":
        raise ValueError(
            f"structure: expected chain with --loss softmax, got {config.structure}"
        )
    if config.mu is not None and config.loss not in MU:
        raise ValueError(
            f"mu: expected none with --loss {config.loss}, which is not smoothed, got"
            f" {config.mu}. Choose --loss {' or '.join(MU)}"
        )
    for name in ("mu", "rate", "encoder_rate"):
        value = getattr(config, name)
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"{name}: expected a positive number, got {value}")
    if not 0 <= config.dropout < 1:
        raise ValueError(f"dropout: expected at least 0, below 1, got {config.dropout}")
    if config.top_k is not None and config.loss != "hinge-l2":
        raise ValueError(
            f"top_k: expected none with --loss {config.loss}, got {config.top_k}."
            " Choose --loss hinge-l2"
        )
    arguments.at_least(config, top_k=1, epochs=1, steps=1, patience=1, seed=0, nbest=1)
    arguments.at_least(config, batch=1, hidden=1, word_size=1)
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
    for one, other in (("steps", "epochs"), ("evaluate", "predict"), ("train", "data")):
        if getattr(config, one) is not None and getattr(config, other) is not None:
            raise ValueError(f"{one}: expected --{one} or --{other}, got both")
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
