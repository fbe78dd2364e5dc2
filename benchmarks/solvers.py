"""Time the certified solvers of linear models next to their peers, part by part.

    pip install -e ".[bench]"
    python benchmarks/solvers.py            # all parts, some minutes, one thread
    python benchmarks/solvers.py --quick    # small problems, into a temporary folder

A part is a module with ``Plan``, ``QUICK``, ``measure(plan)`` and ``goals(entries)``.
Prints which targets are reached, and writes ``results/solvers.csv`` and the tables of
the README.
"""

import argparse
import csv
import io
import os
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, fields
from pathlib import Path

import torch

import machine
import report
import svm_races
from races import Entry, Goal

HERE = Path(__file__).parent
CSV = "results/solvers.csv"
PARTS = {"svm": svm_races}
VERSIONS = ("scikit-learn", "scipy", "liblinear-official")


def main() -> None:
    options = parse()
    if os.environ.get("OMP_NUM_THREADS") != "1":
        # libraries read it when they are imported
        os.execve(sys.executable, [sys.executable, *sys.argv], machine.pinned(1))
    torch.set_num_threads(1)
    entries: list[Entry] = []
    goals: list[Goal] = []
    for name in options.parts:
        part = PARTS[name]
        mine = []
        for entry in part.measure(part.QUICK if options.quick else part.Plan()):
            print(line(entry), flush=True)
            mine.append(entry)
        entries += mine
        goals += part.goals(mine)
    print(f"\n{goals_table(goals)}\n")
    folder = options.output
    if options.quick and folder == HERE:
        folder = Path(tempfile.mkdtemp(prefix="smoothsp-benchmark-"))
    write(folder / CSV, entries)
    print(f"{folder / CSV} is written")
    readme = folder / "README.md"
    if readme.exists() and set(options.parts) == set(PARTS):
        tables = {
            "solvers": where(),
            "solver targets": goals_table(goals),
            "solver times": times_table(entries),
        }
        report.fill(readme, tables)
        print(f"{readme} has the tables")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small problems")
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, default=list(PARTS), help="which to run"
    )
    parser.add_argument(
        "--output", type=Path, default=HERE, help=f"folder of {CSV} and README.md"
    )
    return parser.parse_args()


def line(entry: Entry) -> str:
    about = f"{entry.section}, {entry.case}: {entry.method} {entry.dtype}"
    return f"{about:<90}{quantity(entry.seconds):>10}  x{entry.ratio:.2f}"


def quantity(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def goals_table(goals: Iterable[Goal]) -> str:
    head = ["target", "wanted", "worst", "worst at", ""]
    return report.markdown([head, *(goal.cells for goal in goals)])


def times_table(entries: Iterable[Entry]) -> str:
    """The least times, and how many times the reference's they are."""
    lines = [
        [
            entry.section,
            entry.case,
            entry.method,
            entry.dtype,
            quantity(entry.seconds),
            f"{entry.ratio:.2f}",
        ]
        for entry in entries
    ]
    head = ["part", "problem", "solver", "dtype", "least", "ratio"]
    return report.markdown([head, *lines])


def where() -> str:
    about = machine.where_measured(0, "cpu")
    versions = [f"{name} {machine.installed(name)}" for name in VERSIONS]
    versions += [f"{name} {about[name]}" for name in ("numpy", "numba", "torch")]
    place = f"{about['date']}, commit `{about['commit']}`, {about['machine']}"
    return f"{place}; {', '.join(versions)}."


def write(path: Path, entries: list[Entry]) -> None:
    """All at once: a run that is stopped leaves the old file."""
    about = machine.where_measured(0, "cpu")
    kept = {name: about[name] for name in ("commit", "date", "machine", "numba")}
    kept |= {name: machine.installed(name) for name in VERSIONS}
    sink = io.StringIO()
    names = [field.name for field in fields(Entry)]
    writer = csv.DictWriter(sink, [*names, *kept], lineterminator="\n")
    writer.writeheader()
    for entry in entries:
        row = asdict(entry)
        short = {k: f"{v:.5g}" if isinstance(v, float) else v for k, v in row.items()}
        writer.writerow(short | kept)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(sink.getvalue())
    part.replace(path)


if __name__ == "__main__":
    main()
