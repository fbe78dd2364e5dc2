"""Options of ``horse_segmentation.py``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from runs.run_options import RunOptions


@dataclass(frozen=True)
class Data:
    """Input files."""

    data: Path | None = None
    """Folder of images and masks; default: drawn animals."""
    limit: int | None = None
    """Maximum number of images, in random order; default: all, or 100 drawn ones."""
    side: int = 240
    """Longest side of the resized images in pixels; drawn images have 128."""


@dataclass(frozen=True)
class Model:
    """Architecture and features."""

    model: Literal["linear", "network"] = "linear"
    """A structured SVM, or a convolutional network."""
    superpixels: int = 300
    """Approximate number per image; half as many for drawn images."""
    backbone: Literal["small", "efficientnet-lite0"] = "small"
    """With network: the convolutional feature extractor."""
    weights: str = "imagenet"
    """With efficientnet-lite0: imagenet for those of its package, a file, or random."""


@dataclass(frozen=True)
class Training:
    """Training and evaluation."""

    cost: Literal["balanced", "pixels"] = "balanced"
    """Cost of wrong pixels: balanced over both classes, or equal for all pixels."""
    loss: Literal["hinge", "cross-entropy"] = "hinge"
    """With network: a loss of the graph, or of each superpixel separately."""
    eps: float = 0.1
    """With linear: suboptimality of the objective along the path."""
    tol: float = 0.01
    """With linear: the duality gap at the chosen lambda."""
    epochs: int = 12
    """With network: passes over the training images."""
    seed: int = 1
    """Seed of the initial weights and the order of images."""


@dataclass(frozen=True)
class Output(RunOptions):
    """Output files."""

    out: Path = Path("runs/horse_segmentation")
    """Folder of the checkpoint, the model, the numbers and the figures."""


@dataclass(frozen=True)
class Config(Output, Training, Model, Data):
    """Train a segmenter."""
