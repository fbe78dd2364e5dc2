"""Time the chain next to pytorch-crf and a plain PyTorch loop, on one CPU thread.

Every method is called through its public interface, autograd included, and must first
give the same values and gradients as the others: otherwise nothing is reported.
Methods take turns within each round: a ratio compares calls made under the same load.

    pip install -e ".[bench]"
    python benchmarks/oracles.py
"""

import argparse
import csv
import datetime
import gc
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import torch
from torch import Tensor
from torchcrf import CRF

import torch_loop
from smoothsp.losses import CRFLoss, StructuralHinge
from smoothsp.oracles import Chain

NAMES = OURS, PEER, LOOP = "smoothsp", "pytorch-crf", "PyTorch loop"
TOP_K = 5
SHAPES = [(32, 50, 9), (32, 50, 50), (128, 30, 9), (1, 1000, 9)]  # (B, T, S)
PACKAGES = ("torch", "numpy", "numba", "pytorch-crf")
POTENTIALS = ("emissions", "transitions", "start", "end")
RESULTS = Path(__file__).parent / "results" / "oracles.csv"

Answer = tuple[Tensor, ...]
Method = Callable[[], Answer]


@dataclass(frozen=True)
class Problem:
    """Potentials that require gradients, and true labels."""

    emissions: Tensor  # [B, T, S]
    transitions: Tensor  # [S, S]
    start: Tensor  # [S]
    end: Tensor  # [S]
    labels: Tensor  # [B, T]

    @property
    def potentials(self) -> Answer:
        return tuple(getattr(self, name) for name in POTENTIALS)


def draw_problem(batch: int, time_steps: int, states: int, seed: int) -> Problem:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(batch, time_steps, states), (states, states), (states,), (states,)]
    potentials = [torch.randn(shape, generator=generator) for shape in shapes]
    labels = torch.randint(states, (batch, time_steps), generator=generator)
    return Problem(*(potential.requires_grad_() for potential in potentials), labels)


def with_gradients(problem: Problem, loss: Callable[[], Tensor]) -> Method:
    def call() -> Answer:
        value = loss()
        return value, *torch.autograd.grad(value, problem.potentials)

    return call


def without_gradients(call: Callable[[], Answer]) -> Method:
    return torch.no_grad()(call)


def methods(problem: Problem) -> dict[str, dict[str, Method]]:
    """For each question, the methods that answer it; ours first."""
    emissions, transitions, start, end = problem.potentials
    labels = problem.labels
    peer = CRF(len(start), batch_first=True)
    peer.transitions, peer.start_transitions, peer.end_transitions = (
        torch.nn.Parameter(p.detach().clone()) for p in (transitions, start, end)
    )
    peer_potentials = (
        emissions,
        peer.transitions,
        peer.start_transitions,
        peer.end_transitions,
    )
    mask = torch.ones_like(labels, dtype=torch.bool)  # its default mask warns
    crf_loss, hinge = CRFLoss(), StructuralHinge()

    def chain() -> Chain:
        return Chain(emissions, transitions, start, end)

    def peer_nll() -> Answer:
        value = -peer(emissions, labels, mask, reduction="mean")
        return value, *torch.autograd.grad(value, peer_potentials)

    return {
        "NLL, forward + backward": {
            OURS: with_gradients(problem, lambda: crf_loss(chain(), labels)),
            PEER: peer_nll,
            LOOP: with_gradients(
                problem, lambda: torch_loop.nll(*problem.potentials, labels)
            ),
        },
        "hinge, forward + backward": {
            OURS: with_gradients(problem, lambda: hinge(chain(), labels)),
            LOOP: with_gradients(
                problem, lambda: torch_loop.hinge(*problem.potentials, labels)
            ),
        },
        "decode": {
            OURS: without_gradients(lambda: chain().decode()[1:]),
            PEER: without_gradients(
                lambda: (torch.tensor(peer.decode(emissions, mask)),)
            ),
            LOOP: without_gradients(lambda: torch_loop.decode(*problem.potentials)[1:]),
        },
        f"top-{TOP_K} decode": {
            OURS: without_gradients(lambda: chain().decode_topk(TOP_K)[:2]),
            LOOP: without_gradients(
                lambda: torch_loop.decode_topk(*problem.potentials, TOP_K)
            ),
        },
    }


def check(problem: Problem) -> None:
    """Stop the benchmark unless all methods agree, in float64 and ours in float32."""
    exact = replace(problem, **{n: as_float64(getattr(problem, n)) for n in POTENTIALS})
    rounded, answers = methods(problem), methods(exact)
    for question, candidates in answers.items():
        truth = candidates[OURS]()
        others = {f"{n} in float64": (m(), 1e-7) for n, m in candidates.items()}
        others[f"{OURS} in float32"] = (rounded[question][OURS](), 1e-4)
        for name, (answer, tolerance) in others.items():
            try:
                compare(answer, truth, exact, tolerance)
            except AssertionError as error:
                raise SystemExit(
                    f"{question}: {name} is wrong, nothing timed\n{error}"
                ) from error


def compare(answer: Answer, truth: Answer, problem: Problem, tolerance: float) -> None:
    for actual, expected in zip(answer, truth, strict=True):
        if actual.dtype == torch.int64:
            # Outputs may differ at ties: compare what they score.
            actual, expected = (score(problem, y) for y in (actual, expected))
        torch.testing.assert_close(
            actual.double(), expected, rtol=tolerance, atol=tolerance
        )


def as_float64(potential: Tensor) -> Tensor:
    return potential.detach().double().requires_grad_()


def score(problem: Problem, labels: Tensor) -> Tensor:
    """Score of labels [B, T] or [B, K, T]."""
    if labels.dim() == 2:
        return torch_loop.score(*problem.potentials, labels)
    best = [torch_loop.score(*problem.potentials, y) for y in labels.unbind(1)]
    return torch.stack(best, dim=1)


def calls_per_sample(method: Method, sample_seconds: float) -> int:
    began = time.perf_counter()
    method()
    return max(1, int(sample_seconds / (time.perf_counter() - began)))


def seconds(method: Method, calls: int) -> float:
    began = time.perf_counter()
    for _ in range(calls):
        method()
    return (time.perf_counter() - began) / calls


def measure(
    candidates: dict[str, Method], rounds: int, sample_seconds: float
) -> dict[str, list[float]]:
    """Seconds per call, one sample per method and round, in rotating order."""
    calls = {n: calls_per_sample(m, sample_seconds) for n, m in candidates.items()}
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    names = list(candidates)
    gc.collect()
    gc.disable()
    try:
        for turn in range(rounds):
            shift = turn % len(names)
            for name in names[shift:] + names[:shift]:
                samples[name].append(seconds(candidates[name], calls[name]))
    finally:
        gc.enable()
    return samples


def summarise(samples: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    summary = {}
    for name, times in samples.items():
        low, median, high = statistics.quantiles(times, n=4, method="inclusive")
        paired = [t / ours for t, ours in zip(times, samples[OURS], strict=True)]
        ratio = statistics.median(paired)
        summary[name] = {"median": median, "low": low, "high": high, "ratio": ratio}
    return summary


def where_measured(seed: int) -> dict[str, str]:
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    commit = subprocess.run(git, capture_output=True, text=True).stdout.strip()
    cpu = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()
        models = [x.split(":")[1].strip() for x in lines if x.startswith("model name")]
        cpu = models[0] if models else cpu
    return {
        "commit": commit or "unknown",
        "date": datetime.date.today().isoformat(),
        "machine": f"{cpu}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
        "threads": str(torch.get_num_threads()),
        "seed": str(seed),
    }


def readable(row: dict[str, float] | None) -> str:
    """Median with quartiles, and how many times our own time that is."""
    if row is None:
        return ""
    scale, unit = (1e6, "us") if row["high"] < 1e-3 else (1e3, "ms")
    median, low, high = (f"{row[x] * scale:.3g}" for x in ("median", "low", "high"))
    return f"{median} {unit} ({low} to {high}), {row['ratio']:.3g}x"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--sample-seconds", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=RESULTS, help="CSV to write")
    options = parser.parse_args()
    torch.set_num_threads(1)
    where = where_measured(options.seed)
    print("; ".join(f"{key} {value}" for key, value in where.items()), end="\n\n")
    print(f"| (B, T, S) | question | {' | '.join(NAMES)} |")
    print("| --- " * (2 + len(NAMES)) + "|")
    rows = []
    for shape in SHAPES:
        problem = draw_problem(*shape, seed=options.seed)
        check(problem)
        for question, candidates in methods(problem).items():
            load = os.getloadavg()[0]
            summary = summarise(
                measure(candidates, options.rounds, options.sample_seconds)
            )
            cells = " | ".join(readable(summary.get(name)) for name in NAMES)
            print(f"| {shape} | {question} | {cells} |", flush=True)
            for name, row in summary.items():
                what = {"shape": shape, "question": question, "method": name}
                rows.append({**what, **row, "load": load, **where})
    options.output.parent.mkdir(parents=True, exist_ok=True)
    with options.output.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
