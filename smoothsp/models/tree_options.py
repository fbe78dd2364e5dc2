"""Options for training parsers."""

import math
from dataclasses import dataclass
from typing import Any, Literal, get_type_hints

__all__ = ["ConstituencyOptions", "ParserOptions", "TreeOptions", "check"]


@dataclass(frozen=True)
class TreeOptions:
    """Training options of both types of parsers."""

    tokenizer: Literal["treebank", "blanks"] = "treebank"
    """How the model splits texts into words: as the Penn Treebank does, by NLTK, or at
    white space."""
    epochs: int = 8
    """Passes over the training sentences."""
    seed: int = 0
    """Seed of the initial weights, the order of sentences and the dropout."""
    encoder_rate: float = 1e-4
    """Highest learning rate of the encoder."""


@dataclass(frozen=True)
class ParserOptions(TreeOptions):
    """Keywords of ``Parser.train``."""

    structure: Literal["spanning-tree", "projective", "sibling"] = "spanning-tree"
    """Type of trees: with crossing arcs, without, or with scores of siblings too."""
    hidden: int = 200
    """Units of each of the two LSTMs in each direction."""
    loss: Literal["crf", "hinge", "hinge-l2", "perturbed"] = "crf"
    """Training loss; hinge-l2 is smoothed by the l2 norm, perturbed by noise."""


@dataclass(frozen=True)
class ConstituencyOptions(TreeOptions):
    """Keywords of ``ConstituencyParser.train``."""

    nested: bool = False
    """Nested named entities, from files with several columns of tags."""
    hidden: int = 150
    """Units of each of the two LSTMs in each direction."""
    loss: Literal["crf", "hinge", "hinge-l2"] = "crf"
    """Training loss; hinge-l2 is smoothed by the squared l2 norm."""


def check(options: TreeOptions) -> None:
    """Raise ``ValueError`` for integers and floats out of range."""
    for name, kind in get_type_hints(type(options)).items():
        value: Any = getattr(options, name)
        min_value = 0 if name == "seed" else 1
        if kind is int and value < min_value:
            raise ValueError(f"{name}: expected at least {min_value}, got {value}")
        if kind is float and not 0 < value < math.inf:
            raise ValueError(f"{name}: expected a positive number, got {value}")
