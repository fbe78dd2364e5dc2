"""Seconds from the end of `import smoothsp` to the end of the first loss call.

Each in a fresh process: with an empty numba cache, which is when kernels are compiled,
and with the cache that the process before left. A call is construction, loss, backward.

    python -m inference.cold_start    # one such process, in benchmarks/
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace

from inference.problems import SMALL
from inference.questions import NLL
from measuring import machine, timing
from report.results import COLD_START, Row

COLD, WARM, IMPORT = "empty cache", "warm cache", "import smoothsp"
WARM_STARTS = 7


def first_call() -> dict[str, float]:
    """In this process: seconds of the import, and of the call that follows it."""
    import torch

    problem = SMALL.draw(torch.float32, seed=0)
    torch.autograd.grad(problem.emissions.sum(), problem.emissions)
    began = time.perf_counter()
    import smoothsp

    imported = time.perf_counter()
    chain = smoothsp.oracles.Chain(*problem.potentials)
    smoothsp.losses.CRFLoss()(chain, problem.labels).backward()
    called = time.perf_counter()
    return {"imported": imported - began, "called": called - imported}


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as cache:
        cold = fresh_process(cache)
        warm = [fresh_process(cache) for _ in range(WARM_STARTS)]
    row = Row(COLD_START, NLL, str(SMALL), "float32", 1, "", positions=1600)
    found = {
        COLD: [cold["called"]],
        WARM: [x["called"] for x in warm],
        IMPORT: [x["imported"] for x in warm],
    }
    for name, seconds in found.items():
        low, median, high = timing.quartiles(seconds)
        yield replace(
            row, method=name, median=median, low=low, high=high, samples=len(seconds)
        )


def fresh_process(cache: str) -> dict[str, float]:
    command = [sys.executable, "-m", "inference.cold_start"]
    environment = machine.pinned(1) | {"NUMBA_CACHE_DIR": cache}
    done = subprocess.run(
        command,
        cwd=machine.HERE,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    print(json.dumps(first_call()))
