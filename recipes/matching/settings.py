"""Options of ``matching_points.py``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from runs.run_options import RunOptions

Kind = Literal["sift", "orb"]
Loss = Literal["hinge", "hinge-l2", "perturbed", "softmax"]


@dataclass(frozen=True)
class Data:
    """Input files."""

    data: Path | None = None
    """Folder of images; default: drawn ones."""
    images: int = 200
    """Maximum number of images of the folder."""


@dataclass(frozen=True)
class Model:
    """Architecture and features."""

    features: Kind = "sift"
    """Key point detector and descriptor of OpenCV."""
    points: int = 40
    """Maximum number of points per view."""


@dataclass(frozen=True)
class Training:
    """Training and evaluation."""

    loss: Loss = "hinge"
    """What is minimised; l2 says how the hinge is smoothed, softmax takes each point of
    the first view by itself."""
    epochs: int = 12
    """Passes over the pairs of views."""
    seed: int = 1
    """Seed of the initial weights and the order of pairs."""


@dataclass(frozen=True)
class Output(RunOptions):
    """Output files."""

    out: Path = Path("runs/matching_points")
    """Folder of the checkpoint, the weights, the numbers and the figure."""


@dataclass(frozen=True)
class Config(Output, Training, Model, Data):
    """Learn to match key points of two views."""
