"""How much memory the gradients of one long sequence take.

Each in a fresh process: a small call first, so that nothing is left to import or to
compile; then the peak of the resident memory over a call, less what was resident
before. Potentials and labels are there before, the gradients count. Linux only.

    python -m inference.memory float32 9    # one such process, in benchmarks/
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from inference.problems import DTYPES, Case, Problem
from inference.questions import HINGE, NLL
from measuring import machine
from report.results import MEMORY, Row

TIME = 100_000
STATES = (9, 36)
STATUS = Path("/proc/self/status")
RESET = Path("/proc/self/clear_refs")  # 5: the peak starts again from here


def long_case(states: int) -> Case:
    return Case(1, TIME, states)


def growth(dtype: str, states: int) -> dict[str, int]:
    """In this process: bytes that a loss and its gradients add to what is resident."""
    import torch

    from smoothsp.losses import CRFLoss, StructuralHinge
    from smoothsp.oracles import Chain

    def call(loss: torch.nn.Module, problem: Problem) -> None:
        chain = Chain(*problem.potentials)
        torch.autograd.grad(loss(chain, problem.labels), problem.potentials)

    long, short = (
        case.draw(DTYPES[dtype], seed=0)
        for case in (long_case(states), Case(1, 50, states))
    )
    grown = {}
    for question, loss in ((NLL, CRFLoss()), (HINGE, StructuralHinge())):
        call(loss, short)
        before = resident("VmRSS")
        RESET.write_text("5")
        call(loss, long)
        grown[question] = resident("VmHWM") - before
    return grown


def resident(what: str) -> int:
    lines = STATUS.read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(f"{what}:"))
    return int(line.split()[1]) * 1024


def rows(dtypes: tuple[str, ...]) -> Iterator[Row]:
    if not RESET.exists():
        return
    for dtype in dtypes:
        for states in STATES:
            command = [sys.executable, "-m", "inference.memory", dtype, str(states)]
            done = subprocess.run(
                command,
                cwd=machine.HERE,
                env=machine.pinned(1),
                check=True,
                capture_output=True,
                text=True,
            )
            case = str(long_case(states))
            for question, grown in json.loads(done.stdout.splitlines()[-1]).items():
                row = Row(MEMORY, question, case, dtype, 1, "smoothsp", positions=TIME)
                yield replace(row, median=grown, samples=1, unit="bytes")


if __name__ == "__main__":
    print(json.dumps(growth(sys.argv[1], int(sys.argv[2]))))
