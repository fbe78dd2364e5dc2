"""Rows of measurements, and the CSV that keeps them."""

import csv
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

ORACLES = "oracles"  # all methods at the shapes of the tables
SCALING = "scaling"  # ours alone, with one thread and two, at large shapes
FIGURE = "figure"  # all methods against S and T
COLD_START = "cold start"  # the first call of a process
MEMORY = "memory"  # what a long sequence takes
CUDA = "cuda"  # the tables of the GPU


@dataclass(frozen=True)
class Row:
    """One method at one question; ``note`` says why where nothing was measured."""

    section: str
    question: str
    case: str
    dtype: str
    threads: int
    method: str
    median: float = math.nan
    low: float = math.nan
    high: float = math.nan
    ratio: float = math.nan  # to ours, paired within rounds
    ratio_low: float = math.nan
    ratio_high: float = math.nan
    samples: int = 0
    cores: float = math.nan
    rounds: int = 0
    disturbed: int = 0  # of these rounds
    positions: int = 0
    unit: str = "s"
    note: str = ""

    @property
    def measured(self) -> bool:
        return not math.isnan(self.median)


class Results:
    """Rows, and how to find them."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.rows = list(rows)

    def where(self, **wanted: object) -> list[Row]:
        """The rows whose fields are those given."""
        return [
            row
            for row in self.rows
            if all(getattr(row, name) == value for name, value in wanted.items())
        ]

    def first(self, **wanted: object) -> Row | None:
        return next(iter(self.where(**wanted)), None)


def write(path: Path, rows: Iterable[Row], where: dict[str, str]) -> None:
    """Rows as CSV, each with where it was measured."""
    path.parent.mkdir(parents=True, exist_ok=True)
    names = [field.name for field in fields(Row)]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*names, *where])
        writer.writeheader()
        writer.writerows(shortened(asdict(row)) | where for row in rows)


def shortened(row: dict[str, object]) -> dict[str, object]:
    return {k: f"{v:.5g}" if isinstance(v, float) else v for k, v in row.items()}


def read(path: Path) -> tuple[list[Row], dict[str, str]]:
    """The rows, and where they were measured."""
    types = {field.name: field.type for field in fields(Row)}
    with path.open(newline="") as file:
        found = list(csv.DictReader(file))
    rows = [Row(**{name: kind(x[name]) for name, kind in types.items()}) for x in found]
    where = {k: v for k, v in (found or [{}])[0].items() if k not in types}
    return rows, where
