"""A program that runs every kernel of smoothsp on the simulator, against the CPU's.

Run as ``python -m tests.ptx.simulate_kernels GENERATION one|few|some|all`` with
TRITON_INTERPRET=0. ``one`` is a training of chains in seconds. ``all`` also runs each
warp alone, takes ten minutes, and is for changes of kernels.
"""

import math
import sys

import torch

from smoothsp._kernels.chain.cuda.scan import supports_matmul
from tests.instances.circuits import BUILDERS, small
from tests.kernels.cpu_references import KERNELS, WIDE, Twins, ugly_case
from tests.kernels.device_compilation import kernels
from tests.kernels.test_circuit_twins import compare, tolerance
from tests.ptx import arithmetic
from tests.ptx.launch import Simulator, installed
from tests.truth.chain_cases import ChainCase

NARROW = torch.float32
# B, T, S, whether each step has transitions of its own, dtype. Rows are ragged, and the
# first of three or more is empty; about a fifth of all parts are forbidden.
FEW = [(3, 5, 9, False, NARROW), (1, 2, 33, True, NARROW), (9, 1, 1, False, WIDE)]
ALL = [
    *FEW,
    (33, 1, 1, False, WIDE),
    (1, 1, 1, True, NARROW),
    (1, 33, 1, False, NARROW),
    (2, 32, 3, False, WIDE),
    (3, 5, 17, True, WIDE),
    (2, 2, 32, False, NARROW),
    (2, 3, 33, True, WIDE),
    (3, 4, 65, True, NARROW),
    (2, 3, 130, False, WIDE),
]
# Both dtypes with shared edges and with others; states in registers, and in tiles.
SOME = [
    *FEW,
    (2, 3, 33, True, WIDE),
    (2, 2, 65, True, NARROW),
    (1, 2, 130, False, NARROW),
]
FIRST = BUILDERS[:1]
# Kernels, states and dtypes of rows that are done in log space: by four warps, one, ...
UNSAFE = [
    ("forward_backward", 33, NARROW),
    ("scan", 3, WIDE),
    ("scan", 33, NARROW),
    ("forward_backward", 33, WIDE),
    ("forward_backward", 130, NARROW),
]


def hold(case: ChainCase, dtype: torch.dtype, kernel: str) -> None:
    """Compare one kernel with its twin, where this Triton has it."""
    if kernel == "scan" and not supports_matmul(dtype):
        return
    getattr(Twins.of(case, dtype, torch.Generator().manual_seed(0)), kernel)()


def chains(sizes: list[tuple[int, int, int, bool, torch.dtype]]) -> None:
    for *shape, dtype in sizes:
        for kernel in KERNELS:
            if kernel != "scan" or shape[2] <= 64:
                hold(ugly_case(*shape), dtype, kernel)


def log_space(kernel: str, S: int, dtype: torch.dtype) -> None:
    """A row that may not change its state: its likely start has no likely end."""
    gap = 60.0 if dtype == NARROW else 450.0
    emissions = torch.zeros(2, 4, S, dtype=WIDE)
    emissions[:, :2, 0] = emissions[:, 2:, S - 1] = gap
    emissions[1, :, S // 2] = 3 * gap
    edges = torch.full((S, S), -math.inf, dtype=WIDE).fill_diagonal_(0)
    hold(ChainCase(emissions, edges), dtype, kernel)


def near_the_bound() -> None:
    """Sums that are as small as is safe: are they, for some lanes, and not for others?

    The numbers come from such a sum in a kernel whose products were not rounded.
    """
    emissions = torch.full((1, 2, 9), -1000.0)
    emissions[0, 0, 1] = emissions[0, 1, 0] = 0
    emissions[0, 1, 8] = -0.34296709299087524
    edges = torch.zeros(9, 9)
    edges[1, 0] = edges[1, 8] = -66.84285736083984
    case = ChainCase(emissions.double(), edges.double())
    for ulps in (0, 1, 2):
        arithmetic.most_ulps = ulps
        hold(case, NARROW, "forward_backward")


def barriers() -> None:
    """Where threads of two warps touch one number with a barrier between.

    A row with one position, a late one: other threads wrote zeros there.
    """
    edges = torch.linspace(-1, 1, 4 * 20 * 20, dtype=WIDE).view(1, 4, 20, 20)
    late = torch.arange(5)[None] == 4
    emissions = torch.linspace(-1, 1, 100, dtype=WIDE).view(1, 5, 20)
    hold(ChainCase(emissions, edges, mask=late), WIDE, "covariance")


def circuits(builders: tuple, dtypes: list[torch.dtype]) -> None:
    for build in builders:
        for dtype in dtypes:
            compare(*small(build, dtype), **tolerance(dtype == NARROW))


def main(generation: int, which: str) -> None:
    # so that ``torch.empty`` holds NaN, and no kernel reads what it has not written
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    every = which == "all"
    if which == "one":
        with installed(Simulator(generation, together=True, seed=1)):
            for kernel in ("forward_backward", "viterbi"):
                hold(ugly_case(*FEW[0][:4]), NARROW, kernel)
        return
    with installed(Simulator(generation, together=not every, seed=1)) as first:
        chains({"few": FEW, "some": SOME, "all": ALL}[which])
        for unsafe in UNSAFE if every else UNSAFE[:2]:
            log_space(*unsafe)
        near_the_bound()
        barriers()
        builders = FIRST if which == "few" else BUILDERS
        circuits(builders, [NARROW, WIDE] if every else [NARROW])
    assert first.launches.keys() == {name for _, name in kernels()}
    # races show in any order of warps; other numbers need not
    with installed(Simulator(generation, together=every, seed=2)) as other:
        chains(FEW if every else FEW[1:2])
        circuits(FIRST, [NARROW])
    for simulator in (first, other):
        sys.stdout.write(f"{simulator.launches.total()} launches\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
