"""Race two checkouts of smoothsp at the cells of ``oracles.py``, call by call in turns.

    python benchmarks/checkouts.py HEAD~1         # a commit, against these files
    python benchmarks/checkouts.py OLD NEW        # commits, or folders that hold one

Each checkout runs in its own process, through the public names that both have, and must
first return correct results. Disturbances only make calls slower. So the time of a
process is the lower quartile of its rounds, and the time of a checkout is the minimum
over its processes, which differ in memory layout. Cells above the bound are measured
again and judged by all measurements. Race a checkout with itself to see the remaining
noise.
"""

import argparse
import csv
import importlib.util
import io
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from measuring import machine

ROOT = Path(__file__).parents[1]
GENERAL = "log-partition, forward + backward"
COLUMNS = (
    *("threads", "case", "dtype", "question"),
    *("old_seconds", "new_seconds", "ratio", "ratio_low", "ratio_high", "rounds"),
)


@dataclass(frozen=True)
class Cell:
    """A place in the list that both processes make, and what stands there."""

    number: int
    case: str
    dtype: str
    question: str


@dataclass
class Race:
    """Seconds a call of a cell: of each pair of processes, round by round."""

    threads: int
    cell: Cell
    old: list[list[float]] = field(default_factory=list)
    new: list[list[float]] = field(default_factory=list)

    @property
    def seconds(self) -> tuple[float, float]:
        """Of the old and of the new checkout: the quickest process of each."""
        return min(map(lower_quartile, self.old)), min(map(lower_quartile, self.new))

    @property
    def ratio(self) -> float:
        """New over old."""
        old, new = self.seconds
        return new / old

    @property
    def spread(self) -> tuple[float, float]:
        """The smallest and the largest ratio of the processes of a pair."""
        pairs = zip(self.old, self.new, strict=True)
        ratios = [lower_quartile(new) / lower_quartile(old) for old, new in pairs]
        return min(ratios), max(ratios)

    def row(self) -> tuple[object, ...]:
        cell = self.cell.case, self.cell.dtype, self.cell.question
        rounds = sum(map(len, self.old))
        return (self.threads, *cell, *self.seconds, self.ratio, *self.spread, rounds)


def lower_quartile(seconds: list[float]) -> float:
    """Of one process at one cell."""
    return sorted(seconds)[len(seconds) // 4]


def main() -> None:
    options = parse(sys.argv[1:])
    if options.worker:
        work(options.quick)
        return
    with ExitStack() as stack:
        folders = [stack.enter_context(checkout(x)) for x in (options.old, options.new)]
        races = [
            race
            for threads in options.threads
            for race in compete(folders, threads, options)
        ]
    if options.output:
        with options.output.open("w", newline="") as file:
            csv.writer(file).writerows([COLUMNS, *(race.row() for race in races)])
    print(summary(races, options.bound))


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("old", nargs="?", default="HEAD", help="commit or folder")
    parser.add_argument("new", nargs="?", default=str(ROOT), help="by default, these")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--pairs", type=int, default=3, help="of processes")
    parser.add_argument("--rounds", type=int, default=9, help="of each pair")
    parser.add_argument("--bound", type=float, default=1.03, help="of a ratio")
    parser.add_argument("--only", nargs="+", default=[], help="cells that contain one")
    parser.add_argument("--output", type=Path, help="CSV of all cells")
    parser.add_argument("--quick", action="store_true", help="few shapes, one pair")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.quick:
        options.pairs, options.rounds = 1, 3
    return options


@contextmanager
def checkout(name: str) -> Iterator[Path]:
    """The folder, or one that holds what the commit has."""
    if (Path(name) / "smoothsp").is_dir():
        yield Path(name).resolve()
        return
    git = ["git", "-C", str(ROOT), "archive", name, "smoothsp"]
    found = subprocess.run(git, capture_output=True)
    if found.returncode:
        raise SystemExit(
            f"{name}: expected a commit, or a folder with smoothsp in it;"
            f" {found.stderr.decode().strip()}"
        )
    with tempfile.TemporaryDirectory(prefix="smoothsp-checkout-") as folder:
        with tarfile.open(fileobj=io.BytesIO(found.stdout)) as archive:
            archive.extractall(folder, filter="data")
        yield Path(folder)


def compete(
    folders: list[Path], threads: int, options: argparse.Namespace
) -> list[Race]:
    """All cells that are wanted, then those above the bound once more."""
    races: dict[Cell, Race] = {}
    for _ in range(options.pairs):
        pair(races, folders, threads, options, lambda cell: wanted(cell, options.only))
    slow = {cell for cell, race in races.items() if race.ratio > options.bound}
    for _ in range(options.pairs if slow else 0):
        pair(races, folders, threads, options, slow.__contains__)
    return list(races.values())


def wanted(cell: Cell, only: list[str]) -> bool:
    """Whether the words of a cell contain one of the texts, if there are any."""
    words = f"{cell.case} {cell.dtype} {cell.question}"
    return not only or any(text in words for text in only)


def pair(
    races: dict[Cell, Race],
    folders: list[Path],
    threads: int,
    options: argparse.Namespace,
    takes: Callable[[Cell], bool],
) -> None:
    """Race two new processes at the cells that ``takes`` says."""
    with ExitStack() as stack:
        runners = [
            stack.enter_context(Runner(folder, threads, options.quick))
            for folder in folders
        ]
        for cell in filter(takes, runners[0].cells):
            race = races.setdefault(cell, Race(threads, cell))
            sample(race, runners, options.rounds)
            what = f"{threads} thread(s), {cell.case} {cell.dtype} {cell.question}"
            print(f"{what}: {race.ratio:.3f}", flush=True)


def sample(race: Race, runners: list["Runner"], rounds: int) -> None:
    """Rounds of one cell; who begins alternates."""
    calls = min(runner.prepare(race.cell) for runner in runners)
    taken: tuple[list[float], list[float]] = [], []
    for turn in range(rounds):
        for place in (0, 1) if turn % 2 else (1, 0):
            taken[place].append(runners[place].time(calls))
    race.old.append(taken[0])
    race.new.append(taken[1])


class Runner:
    """A process that answers with the smoothsp of a folder."""

    def __init__(self, folder: Path, threads: int, quick: bool) -> None:
        env = machine.pinned(threads) | {"PYTHONHASHSEED": "0"}
        paths = [str(folder), str(ROOT / "benchmarks")]
        env["PYTHONPATH"] = os.pathsep.join(paths)
        command = [sys.executable, __file__, "--worker"]
        self._process = subprocess.Popen(
            command + ["--quick"] * quick,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._folder = folder

    def __enter__(self) -> "Runner":
        found = Path(self._read()).parents[1]
        if found != self._folder:
            raise SystemExit(
                f"expected smoothsp of {self._folder}, got that of {found}"
            )
        lines = [self._read().split("\t") for _ in range(int(self._read()))]
        self.cells = [Cell(i, *line) for i, line in enumerate(lines)]
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def prepare(self, cell: Cell) -> int:
        """Check its answer; how many calls make a sample."""
        return int(self._ask(f"prepare {cell.number}"))

    def time(self, calls: int) -> float:
        """Seconds a call."""
        return float(self._ask(f"time {calls}"))

    def _ask(self, what: str) -> str:
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> str:
        line = self._process.stdout.readline()
        if not line:
            status = self._process.wait()
            raise SystemExit(f"the process of {self._folder} ended with {status}")
        return line.strip()


def work(quick: bool) -> None:
    """Read what to prepare and to time, and answer with numbers."""
    import torch

    from inference import gate, sweep
    from inference.cells import judged_call
    from inference.problems import DTYPES
    from measuring import timing
    from methods import ours

    threads = int(os.environ["OMP_NUM_THREADS"])
    torch.set_num_threads(threads)
    found = list(cells(sweep.QUICK if quick else sweep.Plan(), threads))
    # which of several smoothsp this process has
    origin = importlib.util.find_spec("smoothsp").origin
    print(Path(origin).resolve(), len(found), sep="\n")
    for case, dtype, question in found:
        print(case, dtype, question, sep="\t")
    sys.stdout.flush()
    shape, judge = None, gate.Gate()
    for line in sys.stdin:
        what, number = line.split()
        if what == "prepare":
            case, dtype, question = found[int(number)]
            if shape != (case, dtype):
                shape, judge = (case, dtype), gate.Gate()
                methods = answers(case.draw(DTYPES[dtype], seed=0))
            method = methods[question]
            seconds = judged_call(
                ours.NAME, method, judge, DTYPES[dtype], timing.on_the_wall
            )
            print(timing.calls_of(seconds, sweep.FULL_EFFORT), flush=True)
        else:
            for _ in range(int(number) // timing.WARM):
                method.call()
            print(timing.on_the_wall(method.call, int(number)), flush=True)


def cells(plan, threads: int) -> Iterator[tuple]:
    """Shape, dtype and question of each cell."""
    from inference import sweep
    from inference.questions import TOP

    shapes = sweep.pairs(plan.cases, plan.dtypes)
    questions = (*plan.questions, GENERAL)
    if threads > 1:
        shapes = [*shapes, *sweep.pairs(plan.large, plan.dtypes)]
        questions = [q for q in questions if q not in (TOP[2], TOP[10])]
    return ((*shape, question) for shape in shapes for question in questions)


def answers(problem):
    """The questions of ``ours``, and the log-partition with its gradients."""
    from inference.questions import MARGINALS, Method, with_gradients
    from methods import ours
    from smoothsp.oracles import Chain

    given = problem.potentials
    call = with_gradients(
        lambda: Chain(*given, lengths=problem.lengths).log_partition().sum(), given
    )
    # the gradient in the emissions is judged: it is the marginals
    general = Method(MARGINALS, problem, call, lambda x: x[1:2], compiles=True)
    return ours.methods(problem) | {GENERAL: general}


def summary(races: list[Race], bound: float) -> str:
    lines = [
        "| threads | shape | dtype | question | old, us | new, us | ratio | from | to |"
    ]
    lines.append("| --- " * 9 + "|")
    for race in races:
        threads, case, dtype, question, old, new, *ratios, _ = race.row()
        shown = " | ".join(f"{x:.3f}" for x in ratios)
        lines.append(
            f"| {threads} | {case} | {dtype} | {question} | {1e6 * old:.1f} |"
            f" {1e6 * new:.1f} | {shown} |"
        )
    ratios = [race.ratio for race in races]
    above = sum(ratio > bound for ratio in ratios)
    lines.append(
        f"\n{above} of {len(races)} cells above {bound}; the worst"
        f" {max(ratios):.3f}, the median {statistics.median(ratios):.3f}"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
