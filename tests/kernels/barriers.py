"""A program that removes each barrier of the Triton kernels alone: does anything show?

Run as ``python -m tests.kernels.barriers GENERATION [STEP]`` with TRITON_INTERPRET=0;
with a step n, only one barrier in n is removed. The program prints one line for each:
where it stands, and what the simulator said.
"""

import itertools
import linecache
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

import smoothsp._kernels
from tests.instances.circuits import projective, semi_markov
from tests.kernels.cpu_references import ugly_case
from tests.ptx import simulate_kernels
from tests.ptx.arithmetic import Fault
from tests.ptx.launch import Simulator, installed
from tests.ptx.simulate_kernels import NARROW, circuits, hold, log_space

BARRIER = "tl.debug_barrier()"
FOLDER = Path(smoothsp._kernels.__path__[0])


def chains(*asked: tuple[str, int, bool]) -> Callable[[], None]:
    """Return a function that compares kernels: of so many states, shared or not."""

    def run() -> None:
        for kernel, S, own in asked:
            hold(ugly_case(2, 4, S, own), NARROW, kernel)

    return run


def in_log_space() -> None:
    log_space("forward_backward", 33, NARROW)


def dynamic_programmes() -> None:
    circuits((semi_markov, projective), [NARROW])


# By file: what launches its barriers, with several warps. 130 states fit into no block
# of registers.
SUMS = chains(
    ("forward_backward", 33, False),
    ("forward_backward", 130, False),
    ("forward_backward", 130, True),
)
COVARIANCE = chains(("covariance", 33, False))
DRAWS = chains(("sample", 33, False), ("entropy", 33, False))
RUNS: dict[str, tuple[Callable[[], None], ...]] = {
    "covariance": (COVARIANCE, simulate_kernels.barriers),
    "forward_backward": (SUMS, in_log_space),
    "log_space": (in_log_space, COVARIANCE, DRAWS, simulate_kernels.barriers),
    "scaled_recursion": (SUMS,),
    "samples": (DRAWS,),
    "scan_chunks": (chains(("scan", 33, False)),),
    "viterbi": (chains(("viterbi", 130, False), ("viterbi_topk", 33, False)),),
    "inside_outside": (dynamic_programmes,),
    "max_product": (dynamic_programmes,),
}


def barriers() -> Iterator[tuple[Path, int]]:
    """Yield the file and the line, from 1, of each barrier."""
    for path in sorted(FOLDER.rglob("cuda/*.py")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if BARRIER in line:
                yield path, number


def noticed(path: Path, number: int, generation: int) -> str:
    """Return what the simulator says without a barrier; nothing if all is well."""
    lines = path.read_text().splitlines(keepends=True)
    lines[number - 1] = lines[number - 1].replace(BARRIER, "pass")
    # Triton reads the sources of kernels from here when their modules are imported
    linecache.cache[str(path)] = (1, None, lines, str(path))
    for name in [x for x in sys.modules if x.startswith("smoothsp._kernels.")]:
        if ".cuda" in name:
            del sys.modules[name]
    try:
        for together in (True, False):
            with installed(Simulator(generation, seed=1, together=together)):
                for run in RUNS[path.stem]:
                    run()
    except (Fault, AssertionError) as error:
        return " ".join(f"{type(error).__name__}: {error}".split())
    finally:
        del linecache.cache[str(path)]
    return ""


def main(generation: int, step: int = 1) -> None:
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    for path, number in itertools.islice(barriers(), None, None, step):
        said = noticed(path, number, generation)
        sys.stdout.write(f"{path.stem}:{number}\t{said}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
