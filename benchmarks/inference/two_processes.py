"""How much more two processes do than one: what a second core of the machine is worth.

Nothing ties the processes together, each has its own core and its own batch, so this
bounds what a second thread can gain: 2 on separate cores that neither share memory's
bandwidth nor the vector units, less on two hyperthreads of one.

    python -m inference.two_processes float32 4096 100 9  # in benchmarks/, one process
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

from inference.problems import DTYPES, Case
from inference.questions import HINGE, MARGINALS, NLL
from measuring import machine
from report.results import CORES, Row

QUESTIONS = (NLL, HINGE, MARGINALS)
SECONDS, ROUNDS = 0.5, 5


def rows(cases: tuple[Case, ...], dtypes: tuple[str, ...]) -> Iterator[Row]:
    """The gain of the second process, question by question."""
    cores = (
        sorted(os.sched_getaffinity(0))[:2] if hasattr(os, "sched_getaffinity") else []
    )
    if len(cores) < 2:
        return
    for dtype in dtypes:
        for case in cases:
            workers = [start(dtype, case, core) for core in cores]
            try:
                for question in range(len(QUESTIONS)):
                    yield gain(dtype, case, question, workers)
            finally:
                for worker in workers:
                    worker.communicate("\n", timeout=60)


def start(dtype: str, case: Case, core: int) -> subprocess.Popen[str]:
    shape = [str(x) for x in (case.batch, case.time, case.states)]
    command = [
        sys.executable,
        "-m",
        "inference.two_processes",
        dtype,
        *shape,
        str(core),
    ]
    return subprocess.Popen(
        command,
        cwd=machine.HERE,
        env=machine.pinned(1),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def gain(
    dtype: str, case: Case, question: int, workers: list[subprocess.Popen[str]]
) -> Row:
    """Calls a second of both at once, over those of one alone; they take turns."""
    found = []
    ask(workers, question)
    for _ in range(ROUNDS):
        alone = statistics.mean(ask([worker], question)[0] for worker in workers)
        found.append(sum(ask(workers, question)) / alone)
    low, _, high = statistics.quantiles(found, n=4)
    name = QUESTIONS[question]
    row = Row(CORES, name, str(case), dtype, 2, "smoothsp", statistics.median(found))
    print(f"two processes, {case} {dtype} {name}: {row.median:.2f}x", flush=True)
    return Row(
        **{**vars(row), "low": low, "high": high, "samples": ROUNDS, "unit": "x"}
    )


def ask(workers: list[subprocess.Popen[str]], question: int) -> list[float]:
    """Calls a second of each worker, while all of them work."""
    for worker in workers:
        worker.stdin.write(f"{question}\n")
        worker.stdin.flush()
    return [float(worker.stdout.readline()) for worker in workers]


def work(dtype: str, case: Case, core: int) -> None:
    """Read the number of a question, call for a while, print calls a second."""
    os.sched_setaffinity(0, {core})
    import torch

    from methods import ours

    torch.set_num_threads(1)
    methods = ours.methods(case.draw(DTYPES[dtype], seed=0))
    for line in sys.stdin:
        if not line.strip():
            return
        call = methods[QUESTIONS[int(line)]].call
        call()
        began, calls = time.perf_counter(), 0
        while (took := time.perf_counter() - began) < SECONDS:
            call()
            calls += 1
        print(calls / took, flush=True)


if __name__ == "__main__":
    dtype, *numbers = sys.argv[1:]
    *shape, core = map(int, numbers)
    work(dtype, Case(*shape), core)
