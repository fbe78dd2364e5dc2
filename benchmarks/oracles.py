"""Time the chain oracles next to all peers, and print which targets are reached.

One command measures all cells on one and on two threads, in separate processes, and
writes the CSV, the figure and the page of tables:

    pip install -e ".[bench]"
    python benchmarks/oracles.py

Methods are called through their public interfaces, including autograd. They must first
return equal values and gradients; otherwise nothing is reported.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from inference import targets
from inference.problems import SMALL
from measuring import machine
from report import tables
from report.results import Results, Row, read, write

HERE = Path(__file__).parent
THREADS = (1, 2)
UNFINISHED = "results/unfinished"  # the parts of a run
CSV, FIGURE = "results/oracles.csv", "figures/oracles.png"
PAGE, CONCLUSIONS = "tables/oracles.md", "README.md"


def main() -> None:
    options = parse(sys.argv[1:])
    if options.worker:
        work(options)
    elif options.device == "cuda":
        from inference import on_cuda

        on_cuda.main(options)
    elif options.figure:
        rows, where = read(options.output / CSV)
        present(rows, where, options.output)
    else:
        folder = options.output
        if options.quick and folder == HERE:
            folder = Path(tempfile.mkdtemp(prefix="smoothsp-benchmark-"))
        unfinished = folder / UNFINISHED
        if not options.resume:
            shutil.rmtree(unfinished, ignore_errors=True)
        rows = measure(options, unfinished)
        present(rows, machine.where_measured(options.seed, "cpu"), folder)
        shutil.rmtree(unfinished)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="few shapes, few rounds, about a minute; written to a temporary folder",
    )
    parser.add_argument(
        "--figure",
        action="store_true",
        help="measure nothing: draw the figure and the tables from the CSV",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="keep the parts that a run which was interrupted has measured",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--output",
        type=Path,
        default=HERE,
        help=f"folder of {CSV}, {FIGURE} and {PAGE}",
    )
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--part", type=int, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def measure(options: argparse.Namespace, unfinished: Path) -> list[Row]:
    """Rows of a process for each part, then of cold ones."""
    from inference import cold_start, memory, sweep
    from methods import peers

    print("\n".join(peers.absent()))
    plan = sweep.QUICK if options.quick else sweep.Plan()
    rows: list[Row] = []
    for threads in THREADS:
        for part in range(len(sweep.parts(plan, threads))):
            path = unfinished / f"{threads}-{part}.csv"
            if not path.exists():
                measure_part(options, threads, part, path)
            rows += read(path)[0]
    rows += memory.rows(("float32",) if options.quick else ("float32", "float64"))
    if options.quick:
        return rows
    return [*rows, *cold_start.rows()]


def measure_part(
    options: argparse.Namespace, threads: int, part: int, path: Path
) -> None:
    command = [sys.executable, __file__, "--worker", str(path), "--part", str(part)]
    command += ["--seed", str(options.seed)]
    command += ["--quick"] if options.quick else []
    done = subprocess.run(command, env=machine.pinned(threads))
    if done.returncode:
        raise SystemExit(
            f"part {part} on {threads} thread(s) ended with status {done.returncode}; "
            f"continue with --resume"
        )


def work(options: argparse.Namespace) -> None:
    """In a process whose threads are pinned: measure, and leave the rows in a file."""
    import os

    import torch

    from inference import gate, sweep

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    plan = sweep.QUICK if options.quick else sweep.Plan()
    part = sweep.parts(plan, torch.get_num_threads())[options.part]
    try:
        rows = list(sweep.sweep(replace(plan, seed=options.seed), part))
    except gate.Disagreement as error:
        raise SystemExit(f"{error}") from error
    whole = options.worker.with_suffix(".part")
    write(whole, rows, {})
    whole.replace(options.worker)


def present(rows: list[Row], where: dict[str, str], folder: Path) -> None:
    """CSV, figure, tables; the targets are printed too."""
    from report import figure

    write(folder / CSV, rows, where)
    results = Results(rows)
    verdicts = targets.evaluate(results)
    figure.draw(results, folder / FIGURE)
    page = folder / PAGE
    if not page.exists():
        page.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(HERE / PAGE, page)
    tables.fill(page, tables.tables(results, verdicts, where))
    if (folder / CONCLUSIONS).exists():
        glance = tables.markdown(tables.at_a_glance(results, str(SMALL)))
        tables.fill(folder / CONCLUSIONS, {"at a glance": glance})
    print(f"\n{tables.markdown(tables.targets_table(verdicts))}\n")
    print(f"{folder / CSV}, {folder / FIGURE} and {page} are written")


if __name__ == "__main__":
    main()
