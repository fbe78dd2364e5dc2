"""Options of ``multiclass_svm.py``."""

from dataclasses import dataclass
from pathlib import Path

from runs.run_options import FitsOptions


@dataclass(frozen=True)
class Data:
    """Input files."""

    data: tuple[Path, ...] = ()
    """LIBSVM files, or folders of MNIST's idx files; default: scikit-learn's digits."""


@dataclass(frozen=True)
class Training:
    """Training and evaluation."""

    log2_c: tuple[int, ...] = tuple(range(-6, 4))
    """The values of C, as powers of two."""
    tolerances: tuple[float, ...] = (0.09, 0.009, 0.0009)
    """Tolerances of fits, relative to the duality gap after the first epoch."""
    limit: float = 60.0
    """Time limit of a fit in seconds; longer fits of the same kind are skipped."""
    seed: int = 0
    """Seed of the order of the samples."""


@dataclass(frozen=True)
class Output(FitsOptions):
    """Output files."""

    out: Path = Path("runs/multiclass_svm")
    """Folder of tables, figures and numbers."""


@dataclass(frozen=True)
class Config(Output, Training, Data):
    """Accuracy for each C and tolerance."""
