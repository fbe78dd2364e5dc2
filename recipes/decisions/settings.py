"""Options of ``shortest_path.py``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from runs.run_options import FitsOptions

Method = Literal["least-squares", "spo+", "perturbed", "interpolation"]
METHODS: tuple[Method, ...] = get_args(Method)
Name = Literal["shortest-path", "knapsack"]


@dataclass(frozen=True)
class Data:
    """Input files."""

    problem: Name = "shortest-path"
    """Type of the decision problem."""
    data: Path | None = None
    """An .npz file; default: the generator of the paper."""
    degrees: tuple[int, ...] = (1, 2, 4, 6, 8)
    """Degrees of the polynomial."""
    noises: tuple[float, ...] = (0.0, 0.5)
    """Half-widths of the multiplicative noise of costs."""
    sizes: tuple[int, ...] = (100, 1000, 5000)
    """Numbers of training examples; a quarter more choose the step size."""
    test: int = 1000
    """Number of test examples."""


@dataclass(frozen=True)
class Training:
    """Training and evaluation."""

    methods: tuple[Method, ...] = METHODS
    """Methods to compare."""
    seeds: int = 5
    """Number of runs of each setting."""
    steps: int = 500
    """Number of steps of each fit, with batches of 32 examples."""
    seed: int = 1
    """First seed."""


@dataclass(frozen=True)
class Output(FitsOptions):
    """Output files."""

    out: Path = Path("runs/shortest_path")
    """Folder of the numbers, the table and the figure."""


@dataclass(frozen=True)
class Config(Output, Training, Data):
    """Compare linear cost predictions by least squares and by decision losses."""
