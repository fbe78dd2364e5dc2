"""Options for training a tagger."""

import math
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["MU", "TOP_K", "NetworkOptions", "Options", "TrainingOptions", "check"]

Loss = Literal["hinge", "hinge-l2", "hinge-entropy", "crf", "perceptron", "softmax"]
Structure = Literal["chain", "semi-markov"]
MU = {"hinge-l2": 1.0, "hinge-entropy": 1.0}
"""Strength of the smoothing of each loss where ``mu`` is not given."""
TOP_K = 5
"""Outputs that l2 smoothing spreads over where ``top_k`` is not given."""
MAX_ROUNDS, MIN_STEPS = 8, 1200


@dataclass(frozen=True)
class NetworkOptions:
    """Architecture and features."""

    structure: Structure = "chain"
    """Structure of the output: labels of words with their neighbours, or of segments no
    longer than the longest in training."""
    word_size: int | None = None
    """Columns of word vectors; 100 if not given. Not with vectors to start from."""
    hidden: int = 128
    """Units of the LSTM in each direction."""
    dropout: float = 0.5
    """Dropout rate."""
    context: bool = False
    """Read neighbouring sentences of a document together; needs an encoder."""


@dataclass(frozen=True)
class TrainingOptions:
    """Training and evaluation."""

    loss: Loss = "hinge-l2"
    """Training loss; -l2 and -entropy smooth the hinge. softmax is the baseline with
    independent labels."""
    mu: float | None = None
    """Strength of the smoothing; 1 if not given. Only with hinge-l2, hinge-entropy."""
    top_k: int | None = None
    """Outputs that l2 smoothing spreads over; 5 if not given. Only with hinge-l2."""
    epochs: int | None = None
    """Passes over the training sentences. Without epochs and steps: at least 8 passes
    and 1,200 steps."""
    steps: int | None = None
    """Training steps in place of epochs, rounded up to a multiple of eight. The
    development F1 is computed eight times, after equal numbers of steps."""
    patience: int | None = None
    """Stop after this many development F1 in a row that are not better."""
    seed: int = 0
    """Seed of the initial weights, the order of sentences and the dropout."""
    rate: float = 2e-3
    """Highest learning rate of the network."""
    encoder_rate: float = 5e-5
    """Highest learning rate of the encoder."""
    batch: int = 32
    """Sentences per step."""

    def rounds(self, batches: int) -> tuple[int, int]:
        """Number of rounds, and the steps of each."""
        if self.epochs is not None:
            return self.epochs, batches
        min_steps = self.steps or MIN_STEPS
        steps = min_steps if self.steps else max(min_steps, MAX_ROUNDS * batches)
        rounds = min(MAX_ROUNDS, steps)
        return rounds, math.ceil(steps / rounds)


@dataclass(frozen=True)
class Options(TrainingOptions, NetworkOptions):
    """Keywords of ``Tagger.train``."""


def check(options: Any) -> None:
    """Raise ``ValueError`` for incompatible options and values out of range."""
    loss = options.loss
    if options.structure != "chain" and loss == "softmax":
        raise ValueError(
            f"structure: expected chain with loss softmax, got {options.structure}"
        )
    if options.mu is not None and loss not in MU:
        raise ValueError(
            f"mu: expected none with loss {loss}, which is not smoothed, got"
            f" {options.mu}. Choose loss {' or '.join(MU)}"
        )
    if options.top_k is not None and loss != "hinge-l2":
        raise ValueError(
            f"top_k: expected none with loss {loss}, got {options.top_k}. Choose loss"
            " hinge-l2"
        )
    for name in ("mu", "rate", "encoder_rate"):
        value = getattr(options, name)
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"{name}: expected a positive number, got {value}")
    if not 0 <= options.dropout < 1:
        raise ValueError(
            f"dropout: expected at least 0, below 1, got {options.dropout}"
        )
    names = ("top_k", "epochs", "steps", "patience", "batch", "hidden", "word_size")
    for name, min_value in (*((name, 1) for name in names), ("seed", 0)):
        value = getattr(options, name)
        if value is not None and value < min_value:
            raise ValueError(f"{name}: expected at least {min_value}, got {value}")
    if options.steps is not None and options.epochs is not None:
        raise ValueError("steps: expected steps or epochs, got both")
