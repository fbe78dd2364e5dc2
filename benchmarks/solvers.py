"""Time the SVMs of smoothsp.linear next to their peers, section by section.

    pip install -e ".[bench]"
    python benchmarks/solvers.py            # one thread
    python benchmarks/solvers.py --quick    # small problems, into a temporary folder

Prints which targets are reached, and writes ``results/svm.csv`` and its tables in the
page of tables. All of it takes long: ``--sections`` measures some sections and keeps
the rows of the others.
"""

import argparse
import csv
import io
import os
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import torch

from measuring import machine
from report import tables as report_tables
from training import svm_races
from training.races import Entry, Goal

HERE = Path(__file__).parent
CSV, PAGE = "results/svm.csv", "tables/solvers.md"
PEERS = ("scikit-learn", "scipy", "liblinear-official")
VERSIONS = (*PEERS, "numpy", "numba", "torch")
Row = dict[str, Any]


def main() -> None:
    options = parse()
    if os.environ.get("OMP_NUM_THREADS") != "1":
        # libraries read it when they are imported
        os.execve(sys.executable, [sys.executable, *sys.argv], machine.pinned(1))
    torch.set_num_threads(1)
    folder = options.output
    if options.quick and folder == HERE:
        folder = Path(tempfile.mkdtemp(prefix="smoothsp-benchmark-"))
    plan = svm_races.QUICK if options.quick else svm_races.Plan()
    entries: list[Entry] = []
    for entry in svm_races.measure(replace(plan, sections=tuple(options.sections))):
        print(line(entry), flush=True)
        entries.append(entry)
    rows = [row_of(entry) for entry in entries]
    if options.sections:
        rows = merged(rows, folder / CSV)
    present(rows, folder)


def present(rows: list[Row], folder: Path) -> None:
    """CSV and tables; the targets are printed too."""
    path, page = folder / CSV, folder / PAGE
    entries = [entry_of(row) for row in rows]
    goals = svm_races.goals(entries)
    print(f"\n{goals_table(goals)}\n")
    write(path, rows)
    print(f"{path} is written")
    if page.exists():
        tables = {
            "svm measured": where(rows),
            "svm targets": goals_table(goals),
            "svm times": times_table(entries),
        }
        report_tables.fill(page, tables)
        print(f"{page} has the tables")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small problems")
    parser.add_argument(
        "--sections",
        nargs="+",
        choices=svm_races.SECTIONS,
        default=[],
        help="which to measure",
    )
    parser.add_argument(
        "--output", type=Path, default=HERE, help=f"folder of results and {PAGE}"
    )
    return parser.parse_args()


def line(entry: Entry) -> str:
    about = f"{entry.section}, {entry.case}: {entry.method} {entry.dtype}"
    return f"{about:<90}{least(entry):>10}  x{entry.ratio:.2f}"


def least(entry: Entry) -> str:
    return quantity(entry.seconds)


def quantity(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def goals_table(goals: Iterable[Goal]) -> str:
    head = ["target", "wanted", "worst", "worst at", ""]
    return report_tables.markdown([head, *(goal.cells for goal in goals)])


def times_table(entries: list[Entry]) -> str:
    """The least times, and how many times the reference's they are."""
    table = [["part", "problem", "solver", "dtype", "least", "ratio"]]
    for entry in entries:
        about = [entry.section, entry.case, entry.method, entry.dtype]
        table.append([*about, least(entry), f"{entry.ratio:.2f}"])
    return report_tables.markdown(table)


def where(rows: list[Row]) -> str:
    """Of these rows, when they were measured, and with what."""
    found = {}
    for row in rows:
        versions = ", ".join(
            f"{name} {row[name]}" for name in VERSIONS if row.get(name)
        )
        about = f"{row['date']}, commit `{row['commit']}`, {row['machine']}; {versions}"
        found.setdefault(about, {})[row["section"]] = None
    if len(found) == 1:
        return f"{next(iter(found))}."
    return "\n".join(f"- {', '.join(of)}: {about}." for about, of in found.items())


def row_of(entry: Entry) -> Row:
    """A line of the CSV, with its machine."""
    about = machine.where_measured(0, "cpu") | {x: machine.installed(x) for x in PEERS}
    row = {
        k: f"{v:.5g}" if isinstance(v, float) else v for k, v in asdict(entry).items()
    }
    return row | {
        name: about[name] for name in ("commit", "date", "machine", *VERSIONS)
    }


def entry_of(row: Row) -> Entry:
    known = [field for field in fields(Entry) if row.get(field.name, "") != ""]
    return Entry(**{field.name: field.type(row[field.name]) for field in known})


def merged(rows: list[Row], path: Path) -> list[Row]:
    """With those of other sections that a CSV has."""
    measured, order = {row["section"] for row in rows}, list(svm_races.SECTIONS)
    if path.exists():
        with path.open(newline="") as file:
            old = csv.DictReader(file)
            rows = rows + [row for row in old if row["section"] not in measured]
    return sorted(rows, key=lambda row: order.index(row["section"]))


def write(path: Path, rows: list[Row]) -> None:
    """All at once: a run that is stopped leaves the old file."""
    sink = io.StringIO()
    # older rows may lack what is said today
    names = max(map(list, rows), key=len)
    writer = csv.DictWriter(sink, names, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(sink.getvalue())
    part.replace(path)


if __name__ == "__main__":
    main()
