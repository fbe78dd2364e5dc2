"""Time structures on hard inputs: masks, ties and peaked scores.

Hard inputs are masks of -inf and of the lowest number, all labels but one masked, ties
everywhere, and peaked scores. They should take at most 1.3 times as long as random
inputs of equal shape, or 20 us longer if a call takes less than 60 us.

    python benchmarks/cliffs.py

Writes a CSV and the table of tables/cliffs.md, with the reason for each call that takes
longer. Every call includes the construction.
"""

import argparse
import csv
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from measuring import machine
from report.results import shortened
from report.tables import fill, markdown
from smoothsp.losses import Entropy, StructuralHinge
from smoothsp.oracles import (
    CTC,
    BinaryGraph,
    BoxSearch,
    Chain,
    Grammar,
    Matching,
    Multiclass,
    PictorialStructure,
    ProjectiveDependencies,
    SemiMarkov,
    SpanningTree,
    SpanTree,
    Tree,
)

ROWS, SECONDS = 32, 0.004
MOST, SHORT, EXTRA = 1.3, 60e-6, 20e-6  # a call of less than SHORT may take EXTRA more
ORDINARY, KEPT = "ordinary", "one label"
Build = Callable[..., object]
# Why a kind of input takes longer, by the beginning of the structure's name.
SEARCH = "a search for rows without an output"
REASONS = {
    ("", "-inf"): SEARCH,
    ("", KEPT): SEARCH,
    ("", "lowest"): f"{SEARCH}, and a copy with -inf",
    ("BinaryGraph", "ties"): "flow from one cell has to reach every other one",
    ("Chain", "peaked"): "rows that leave the range of float32",
}


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def structures() -> dict[str, tuple[Build, list[Tensor]]]:
    """Constructors, and ordinary potentials: a mask goes into the first."""
    targets = torch.randint(1, 20, (ROWS, 10), generator=torch.Generator())
    parents = torch.tensor([-1] + [i // 2 for i in range(19)])
    springs = torch.tensor([0.0, 1.0, 0.0, 1.0]).expand(4, 4)
    limbs = torch.tensor([-1, 0, 1, 1])
    return {
        "Chain, 50 x 9": (Chain, [drawn(ROWS, 50, 9), drawn(9, 9)]),
        "Chain, transitions": (
            lambda moves, nodes: Chain(nodes, moves),
            [drawn(9, 9), drawn(ROWS, 50, 9)],
        ),
        "Chain, by step": (Chain, [drawn(8, 30, 9), drawn(8, 29, 9, 9)]),
        "Multiclass, 50": (Multiclass, [drawn(ROWS, 50)]),
        "ProjectiveDependencies, 20": (ProjectiveDependencies, [drawn(ROWS, 21, 21)]),
        "SpanTree, 10": (SpanTree, [drawn(ROWS, 10, 10)]),
        "SpanTree, 20": (SpanTree, [drawn(ROWS, 20, 20)]),
        "SemiMarkov, 30 x 5": (SemiMarkov, [drawn(8, 30, 5, 4), drawn(4, 4)]),
        "CTC, 50": (lambda x: CTC(x, targets), [drawn(ROWS, 50, 20)]),
        "Grammar, 10": (Grammar, [drawn(8, 10, 5), drawn(5, 5, 5)]),
        "Tree, 20 x 5": (
            lambda x, edges: Tree(x, edges, parents),
            [drawn(ROWS, 20, 5), drawn(20, 5, 5)],
        ),
        "SpanningTree, 20": (SpanningTree, [drawn(ROWS, 21, 21)]),
        "Matching, 20 x 20": (Matching, [drawn(ROWS, 20, 20)]),
        "BinaryGraph, 32 x 32": (
            BinaryGraph.grid,
            [drawn(1, 32, 32, 2), drawn(1, 31, 32).abs(), drawn(1, 32, 31).abs()],
        ),
        "PictorialStructure, 16 x 16": (
            lambda x: PictorialStructure(x, springs, limbs),
            [drawn(8, 4, 16, 16)],
        ),
        "BoxSearch, 20 x 20": (BoxSearch, [drawn(4, 20, 20) - 0.3]),
    }


def inputs(build: Build, potentials: list[Tensor]) -> dict[str, Tensor]:
    """The first potentials, by what they are like; one output is always allowed."""
    main, *rest = potentials
    given = main.clone().requires_grad_()
    structure = build(given, *rest)
    _, y = structure.decode()  # type: ignore[attr-defined]
    score = structure.score(y).sum()  # type: ignore[attr-defined]
    (used,) = torch.autograd.grad(score, given)
    some = (torch.rand(main.shape, generator=torch.Generator()) < 0.3) & (used == 0)
    lowest = torch.finfo(main.dtype).min
    return {
        ORDINARY: main,
        "-inf": main.masked_fill(some, -torch.inf),
        "lowest": main.masked_fill(some, lowest),
        KEPT: main.masked_fill(used == 0, -torch.inf),
        "ties": torch.zeros_like(main),
        "peaked": 30 * main,
    }


def questions(built: object, y: Tensor) -> dict[str, Callable[..., object]]:
    """What is asked of a structure; of tensors the gradient too."""
    found: dict[str, Callable[..., object]] = {
        "decode": lambda s: s.decode() and None,
        "five best": lambda s: s.decode_topk(5) and None,
    }
    if not hasattr(built, "log_partition"):
        hinge = StructuralHinge(reduction="none")
        if not isinstance(built, BoxSearch):
            found["hinge, gradient"] = lambda s: hinge(s, y)
        return found
    soft = StructuralHinge(Entropy(1.0), reduction="none")
    found["log-partition, gradient"] = lambda s: s.log_partition()
    found["smoothed hinge, gradient"] = lambda s: soft(s, y)
    return found


def asked(
    build: Build,
    x: Tensor,
    rest: list[Tensor],
    ask: Callable[..., object],
    slopes: bool,
) -> Callable[[], object]:
    """A call of a question to one input."""
    if not slopes:
        return lambda: ask(build(x, *rest))
    given = x.clone().requires_grad_()

    def call() -> object:
        total = ask(build(given, *rest)).sum()  # type: ignore[attr-defined]
        return torch.autograd.grad(total, given)

    return call


def turns(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The least seconds of this process for each call; they take turns."""
    least = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            began = time.process_time()
            call()
            many = max(1, int(SECONDS / (time.process_time() - began)))
            began = time.process_time()
            for _ in range(many):
                call()
            least[name] = min(least[name], (time.process_time() - began) / many)
    return least


def is_cliff(seconds: float, ordinary: float) -> bool:
    """Whether an input takes longer than it may."""
    short = ordinary < SHORT and seconds <= ordinary + EXTRA
    return seconds > MOST * ordinary and not short


def reason(structure: str, like: str) -> str:
    """Why such inputs take longer."""
    for (begin, kind), words in REASONS.items():
        if kind == like and structure.startswith(begin):
            return words
    return "unknown"


def line(structure: str, question: str, least: dict[str, float]) -> list[str]:
    """A row of the table."""
    base = least[ORDINARY]
    cells, why = [], []
    for like, seconds in [*least.items()][1:]:
        missed = is_cliff(seconds, base)
        cells.append(f"{seconds / base:.2f}{' !' * missed}")
        if missed:
            why.append(f"{like}: {reason(structure, like)}")
    return [structure, question, f"{1e6 * base:.0f}", *cells, "; ".join(why)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--only",
        default="",
        help="a part of a structure's name; then nothing is written",
    )
    here = Path(__file__).parent
    parser.add_argument("--output", type=Path, default=here / "results/cliffs.csv")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows, table = [], []
    for name, (build, potentials) in structures().items():
        if options.only not in name:
            continue
        given, rest = inputs(build, potentials), potentials[1:]
        if not rows:
            table.append(["structure", "question", "us", *[*given][1:], "reason"])
        built = build(given[KEPT], *rest)
        _, y = built.decode()  # type: ignore[attr-defined]
        for question, ask in questions(built, y).items():
            slopes = "gradient" in question
            calls = {
                like: asked(build, x, rest, ask, slopes) for like, x in given.items()
            }
            least = turns(calls, options.rounds)
            row = {"structure": name, "question": question, **least}
            rows.append(shortened(row))
            table.append(line(name, question, least))
            print(" | ".join(table[-1]), flush=True)
    if options.only:
        return
    where = machine.where_measured(0, "cpu")
    what = f"{where['date']}, commit `{where['commit']}`, {where['machine']}."
    fill(here / "tables/cliffs.md", {"table": f"{markdown(table)}\n\n{what}"})
    options.output.parent.mkdir(parents=True, exist_ok=True)
    with options.output.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0], *where])
        writer.writeheader()
        writer.writerows(row | where for row in rows)


if __name__ == "__main__":
    main()
