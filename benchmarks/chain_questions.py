"""Time entropy, one sample and edge marginals of a chain.

Each should take at most three times as long as ``marginals()``:

    python benchmarks/chain_questions.py

Writes a CSV and prints the table. Results are checked first: entropies and edge
marginals against a loop in plain PyTorch in float64, frequencies of samples against
marginals.
"""

import argparse
import csv
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor

from inference.problems import DTYPES, Case, Problem
from inference.questions import MARGINALS, Method
from measuring import machine, timing
from methods import ours, torch_loop
from report.results import shortened
from smoothsp.oracles import Chain

ENTROPY, ENTROPY_GRADIENT = "entropy", "entropy, forward + backward"
DRAW, EDGES = "sample(1)", "edge_marginals"
CASES = (Case(32, 50, 9), Case(32, 50, 50), Case(32, 50, 200))
TOLERANCES = {torch.float32: 1e-4, torch.float64: 1e-9}
DRAWS = 400


def questions(problem: Problem) -> dict[str, Method]:
    """Calls of one problem; the first is what the others are held against."""
    given = problem.potentials
    without = torch.no_grad()

    def chain() -> Chain:
        return Chain(*given)

    def slopes() -> tuple[Tensor, ...]:
        return torch.autograd.grad(chain().entropy().sum(), given)

    calls = {
        ours.NAME: without(lambda: chain().marginals()),
        ENTROPY: without(lambda: chain().entropy()),
        ENTROPY_GRADIENT: slopes,
        DRAW: without(lambda: chain().sample(1)),
        EDGES: without(lambda: chain().edge_marginals()),
    }
    return {n: Method(MARGINALS, problem, f, tuple) for n, f in calls.items()}


def check(problem: Problem) -> None:
    """Stop unless a few rows are right."""
    rows = 2
    emissions, *rest = (x.detach() for x in problem.potentials)
    chain = Chain(emissions[:rows], *rest)
    exact = [x.double().requires_grad_() for x in (emissions[:rows], *rest)]
    total = torch_loop.log_partition(*exact)
    entropy, slopes = total.detach().clone(), []
    for b in range(rows):
        grads = torch.autograd.grad(total[b], exact, retain_graph=True)
        slopes.append(grads)
        inner = sum((g * x).sum() for g, x in zip(grads, exact, strict=True))
        entropy[b] -= inner.detach()
    tolerance = TOLERANCES[emissions.dtype]
    close(ENTROPY, chain.entropy(), entropy, tolerance)
    # the gradient in shared transitions is the sum over time
    moves = torch.stack([grads[1] for grads in slopes])
    close(EDGES, chain.edge_marginals().sum(1), moves, tolerance)
    chances = torch.stack([grads[0][b] for b, grads in enumerate(slopes)])
    drawn = chain.sample(DRAWS, generator=torch.Generator().manual_seed(0))
    counts = torch.nn.functional.one_hot(drawn, emissions.shape[2]).sum(1)
    spread = (chances * (1 - chances) / DRAWS).sqrt()
    close(DRAW, counts / DRAWS / (1 + 9 * spread), chances / (1 + 9 * spread), 0.1)


def close(name: str, found: Tensor, true: Tensor, tolerance: float) -> None:
    error = float((found.detach().double() - true).abs().max())
    size = float(true.abs().max())
    if not error <= tolerance * max(1.0, size):
        raise SystemExit(f"{name} is off by {error:.2g} of {size:.2g}: nothing timed")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument(
        "--output",
        type=Path,
        default=Path(__file__).parent / "results/chain_questions.csv",
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    effort = timing.Effort(rounds=options.rounds)
    rows = []
    print("| question | shape | dtype | us | over marginals |\n" + "| --- " * 5 + "|")
    for case in CASES:
        for name, dtype in DTYPES.items():
            problem = case.draw(dtype, seed=0)
            check(problem)
            methods = questions(problem)
            seconds = {n: timing.on_the_wall(m.call, 2) for n, m in methods.items()}
            measured = timing.measure(methods, seconds, effort)
            for method, found in timing.summarise(measured, ours.NAME).items():
                question = MARGINALS if method == ours.NAME else method
                row = {"question": question, "case": str(case), "dtype": name}
                numbers = asdict(found)
                rows.append(shortened({**row, **numbers}))
                print(
                    f"| {question} | {case} | {name} | {1e6 * found.median:.0f} "
                    f"| {found.ratio:.2f} |",
                    flush=True,
                )
    where = machine.where_measured(0, "cpu")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    with options.output.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0], *where])
        writer.writeheader()
        writer.writerows(row | where for row in rows)


if __name__ == "__main__":
    main()
