"""Time structures that are dynamic programmes next to their peers.

One command runs all races on one and on two threads, in separate processes, and writes
a CSV and a table:

    pip install -e ".[bench]"
    python benchmarks/circuits.py

Values and gradients must first agree with float64; peers that disagree or are not
installed are listed. Times are CPU time on one thread and wall time on two. Targets are
for an idle machine.
"""

import argparse
import csv
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch

from dynamic_programmes.races import Race, all_races
from measuring import machine
from report.results import shortened

HERE = Path(__file__).parent
OURS = "smoothsp"
SECONDS = 0.05  # of one contender in one round


def main(
    races: Callable[[], list[Race]],
    script: str,
    name: str,
    description: str,
    counts: tuple[int, ...] = (1, 2),
) -> None:
    """Run the races of a script, and write ``results/<name>.csv``."""
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="", help="races whose name contains this")
    parser.add_argument(
        "--output", type=Path, default=HERE / f"results/{name}.csv", help="the CSV"
    )
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options, races())
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for threads in counts:
            path = Path(folder) / f"{threads}.csv"
            command = [sys.executable, script, *sys.argv[1:], "--output", str(path)]
            subprocess.run(
                [*command, "--worker", str(threads)],
                env=os.environ | machine.pinned(threads),
                check=True,
            )
            with path.open(newline="") as file:
                rows += list(csv.DictReader(file))
    where = machine.where_measured(0, "cpu")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    write(options.output, [row | where for row in rows])
    present(rows)


def write(path: Path, rows: list[dict[str, object]] | list[dict[str, str]]) -> None:
    """Rows as CSV."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def work(options: argparse.Namespace, races: list[Race]) -> None:
    """Race on so many threads, and write rows as CSV."""
    torch.set_num_threads(options.worker)
    warnings.simplefilter("ignore")
    rows = []
    for race in races:
        if options.only in race.name:
            print(f"{race.name}, threads: {options.worker}", file=sys.stderr)
            found = race_once(race, options.rounds)
            rows += [shortened({"threads": options.worker, **row}) for row in found]
    write(options.output, rows)


def race_once(race: Race, rounds: int) -> list[dict[str, object]]:
    """Contenders take turns; medians of rounds, and the medians of their ratios."""
    exact = race.ours(torch.float64)()
    calls = {OURS: race.ours(torch.float32)}
    agree(race, OURS, calls[OURS](), exact, gradients=True)
    absent = {}
    for name, make in race.peers.items():
        try:
            calls[name] = make(torch.float32)
            answer = calls[name]()
        except Exception as error:
            absent[name] = f"{type(error).__name__}: {error}".split("\n")[0]
            calls.pop(name, None)
            continue
        if race.comparable:
            agree(race, name, answer, exact, gradients=False)
    times: dict[str, list[float]] = {name: [] for name in calls}
    # on one thread what others do on the machine is left out, and what a contender does
    # on threads of its own is not
    one = torch.get_num_threads() == 1
    clock = time.process_time if one else time.perf_counter
    for _ in range(rounds):
        for name, call in calls.items():
            began = clock()
            call()
            many = max(1, int(SECONDS / (clock() - began)))
            began = clock()
            for _ in range(many):
                call()
            times[name].append((clock() - began) / many)
    rows: list[dict[str, object]] = []
    for name, found in times.items():
        ratios = [x / y for x, y in zip(found, times[OURS], strict=True)]
        rows.append(
            {
                "race": race.name,
                "method": name,
                "median": median(found),
                "least": min(found),
                "ratio": median(ratios),
                "target": race.target,
                "note": "",
            }
        )
    for name, why in absent.items():
        row = dict.fromkeys(rows[0], "")
        rows.append({**row, "race": race.name, "method": name, "note": why})
    return rows


def agree(race: Race, name: str, found: object, exact: object, gradients: bool) -> None:
    """Stop if values, or gradients too, are not those in float64."""
    pairs = list(zip(found, exact, strict=False))  # type: ignore[call-overload]
    for mine, true in pairs if gradients else pairs[:1]:
        mine, true = mine.detach().double(), true.detach()
        size, error = float(true.abs().max()), float((mine - true).abs().max())
        if not error <= race.tolerance * max(size, 1.0):
            raise SystemExit(f"{race.name}: {name} is off by {error:.2g} of {size:.2g}")


def median(values: list[float]) -> float:
    return float(torch.tensor(values, dtype=torch.float64).quantile(0.5))


def present(rows: list[dict[str, str]]) -> None:
    """Print the table of the page."""
    print("| race | threads | smoothsp, us | peer | its us | ratio | target |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    ours = {(x["race"], x["threads"]): x for x in rows if x["method"] == OURS}
    for row in rows:
        if row["method"] == OURS:
            continue
        mine = ours[row["race"], row["threads"]]
        microseconds = f"{1e6 * float(mine['median']):.0f}"
        if row["note"]:
            shown = ("-", "-", row["note"])
        else:
            target = float(mine["target"] or "nan")
            shown = (
                f"{1e6 * float(row['median']):.0f}",
                f"{float(row['ratio']):.1f}",
                "" if target != target else f"{target:.0f}",
            )
        cells = (row["race"], row["threads"], microseconds, row["method"], *shown)
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main(all_races, __file__, "circuits", __doc__ or "")
