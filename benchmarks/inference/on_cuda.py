"""Ours on a CUDA device: between device events, beside the memory's floor.

The floor of a question is the time to read the potentials once and to write what is
asked for once, at the bandwidth that copying reaches on this device. A run takes at
most eight minutes: shapes that it did not reach are named.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from inference import cells, circuits_on_cuda, sweep
from inference.problems import DTYPES, Problem
from inference.questions import DECODE, HINGE, MARGINALS, NLL, TOP
from measuring import machine, timing
from methods import compiled_loop, crf_layers, ours, peers, struct_edges
from report import tables
from report.results import CUDA, Results, Row, write

CSV = "results/oracles_cuda.csv"
BUDGET = 7 * 60  # seconds, after which no further shape is begun
COPIED = 2**28  # float32 numbers: far more than a cache holds
BUILDERS: dict[str, peers.Builder] = {
    ours.NAME: ours.methods,
    compiled_loop.NAME: compiled_loop.methods,
    crf_layers.PYTORCH_CRF: crf_layers.pytorch_crf,
    struct_edges.NAME: struct_edges.methods,
}


def main(options: argparse.Namespace) -> None:
    if not torch.cuda.is_available():
        print(
            "--device cuda: no CUDA device is here, nothing measured", file=sys.stderr
        )
        raise SystemExit(2)
    print("\n".join(peers.absent()))
    missing = peers.PACKAGES.keys() - peers.installed()
    builders = {n: b for n, b in BUILDERS.items() if n not in missing}
    plan = sweep.QUICK if options.quick else sweep.Plan()
    rows = list(measure(replace(plan, seed=options.seed), builders))
    where = machine.where_measured(options.seed, "cuda")
    table = tables.markdown(tables.cuda_table(Results(rows), list(builders)))
    print(f"\n{table}")
    if not options.quick:
        write(options.output / CSV, rows, where)
        about = tables.measured(Results(rows), where)
        page: Path = options.output / "tables/oracles.md"
        tables.fill(page, {"cuda": f"{about}\n\n{table}"})


def measure(plan: sweep.Plan, builders: dict[str, peers.Builder]) -> Iterator[Row]:
    began, bandwidth, peak = time.monotonic(), copy_bandwidth(), peak_bandwidth()
    print(
        f"copying reaches {bandwidth / 1e9:.0f} GB/s, {bandwidth / peak:.0%} of the "
        f"device's peak of {peak / 1e9:.0f} GB/s"
    )
    circuits = circuits_on_cuda.CASES
    asked = (circuits, plan.dtypes, plan.effort, plan.seed)
    for row, moved in circuits_on_cuda.rows(*asked):
        print(f"{row.case} {row.dtype} {row.question}: {row.median * 1e6:.3g} us")
        yield beside_the_floor(row, moved, bandwidth, peak)
    for case, dtype in sweep.pairs(plan.cases, plan.dtypes):
        if time.monotonic() - began > BUDGET:
            print(f"not measured, for the time is up: {case}, {dtype}")
            continue
        problem = case.draw(DTYPES[dtype], plan.seed).to("cuda")
        questions = cells.methods_of(builders, problem)
        asked = (CUDA, plan, plan.questions, case, problem, questions)
        for row in sweep.ask(*asked, stopwatch=timing.on_the_device):
            if row.method == ours.NAME:
                moved = bytes_of(row.question, problem)
                row = beside_the_floor(row, moved, bandwidth, peak)
            yield row


def beside_the_floor(row: Row, moved: int, bandwidth: float, peak: float) -> Row:
    """Print what share of the peak a call reaches, and note that of the floor."""
    reached = moved / row.median
    print(f"  {reached / 1e9:.0f} GB/s, {reached / peak:.1%} of the peak")
    return replace(row, note=f"{reached / bandwidth:.1%}")


def copy_bandwidth() -> float:
    """Bytes read and written a second, by the fastest of several copies."""
    source = torch.zeros(COPIED, device="cuda")
    target = torch.empty_like(source)
    target.copy_(source)
    seconds = min(
        timing.on_the_device(lambda: target.copy_(source), 10) for _ in range(5)
    )
    return 2 * source.nbytes / seconds


def peak_bandwidth() -> float:
    """Bytes a second of the device's memory: clock times width, at double data rate."""
    from triton.testing import get_dram_gbps

    return 1e9 * float(get_dram_gbps())


def bytes_of(question: str, problem: Problem) -> int:
    """Potentials read once, and what is asked for written once; no padding."""
    emissions, *shared = problem.potentials
    real = problem.positions * emissions.shape[2] * emissions.element_size()
    potentials = real + sum(x.nbytes for x in shared)
    labels = problem.positions * problem.labels.element_size()
    written = {
        NLL: labels + potentials,  # labels are read, gradients written
        HINGE: labels + potentials,
        DECODE: labels,
        MARGINALS: real,
        **{name: k * labels for k, name in TOP.items()},
    }
    return potentials + written[question]
