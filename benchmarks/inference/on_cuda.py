"""The chain on a CUDA device: between device events, beside the memory's floor.

The floor of a question is the time to read the potentials once and to write what is
asked for once, at the bandwidth that copying reaches on this device.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from inference import cells, sweep
from inference.problems import DTYPES, Problem
from inference.questions import DECODE, HINGE, MARGINALS, NLL, TOP
from measuring import machine, timing
from methods import compiled_loop, crf_layers, ours, peers, struct_edges
from report import tables
from report.results import CUDA, Results, Row, write

CSV = "results/oracles_cuda.csv"
COPIED = 2**28  # float32 numbers: far more than a cache holds
BUILDERS: dict[str, peers.Builder] = {
    ours.NAME: ours.methods,
    compiled_loop.NAME: compiled_loop.methods,
    crf_layers.PYTORCH_CRF: crf_layers.pytorch_crf,
    struct_edges.NAME: struct_edges.methods,
}


def main(options: argparse.Namespace) -> None:
    if not torch.cuda.is_available():
        raise SystemExit("--device cuda: no CUDA device is here, nothing measured")
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
    bandwidth = copy_bandwidth()
    print(f"copy bandwidth {bandwidth / 1e9:.0f} GB/s")
    for case, dtype in sweep.pairs(plan.cases, plan.dtypes):
        problem = case.draw(DTYPES[dtype], plan.seed).to("cuda")
        questions = cells.methods_of(builders, problem)
        asked = (CUDA, plan, plan.questions, case, problem, questions)
        for row in sweep.ask(*asked, stopwatch=timing.on_the_device):
            if row.method == ours.NAME:
                floor = bytes_of(row.question, problem) / bandwidth
                row = replace(row, note=f"{floor / row.median:.1%}")
            yield row


def copy_bandwidth() -> float:
    """Bytes read and written a second, by the fastest of several copies."""
    source = torch.zeros(COPIED, device="cuda")
    target = torch.empty_like(source)
    target.copy_(source)
    seconds = min(
        timing.on_the_device(lambda: target.copy_(source), 10) for _ in range(5)
    )
    return 2 * source.nbytes / seconds


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
