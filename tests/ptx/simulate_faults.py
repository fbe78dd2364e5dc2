"""A program that launches kernels with one fault each, and says what was seen.

Run as ``python -m tests.ptx.simulate_faults`` with TRITON_INTERPRET=0.
"""

import sys

import torch
import triton  # noqa: TID253
import triton.language as tl  # noqa: TID253

from tests.ptx import machine
from tests.ptx.arithmetic import Fault
from tests.ptx.launch import Simulator

REVERSED = {
    "a missing barrier": "no",
    "only the barriers of a sum": "sum",
    "the same with a barrier": "barrier",
}
COPIED = {"a load behind an argument": 101, "the same with a mask": 100}
SUMMED = {"a sum without its last number": 255, "the same with it": 256}


@triton.jit
def _reverse_kernel(x, room, out, N: tl.constexpr, WAIT: tl.constexpr):
    o = tl.arange(0, N)
    b_x = tl.load(x + o)
    tl.store(room + o, b_x * 2)
    if WAIT == "barrier":
        tl.debug_barrier()
    total = tl.sum(b_x, 0) if WAIT == "sum" else 0.0
    tl.store(out + o, tl.load(room + N - 1 - o) + total)


@triton.jit
def _copy_kernel(x, out, count, N: tl.constexpr):
    o = tl.arange(0, N)
    tl.store(out + o, tl.load(x + o, mask=o < count, other=0.0))


@triton.jit
def _flag_kernel(x, y, floor, room, out, N: tl.constexpr):
    o = tl.arange(0, N)
    total = tl.sum(tl.load(x + o) * tl.load(y + o), 0)
    if total >= tl.load(floor):
        tl.store(room + o, total + o)
        tl.debug_barrier()
        tl.store(out + o, tl.load(room + N - 1 - o))


@triton.jit
def _waiting_kernel(x, out):
    while tl.load(x) < 1.0:
        tl.store(out, 0.0)


@triton.jit
def _sum_kernel(x, out, count, N: tl.constexpr):
    o = tl.arange(0, N)
    tl.store(out, tl.sum(tl.load(x + o, mask=o < count, other=0.0), 0))


def say(name, found):
    sys.stdout.write(f"{name}: {found}\n")


def fault(simulator, kernel, programs, *args, **options):
    """What the simulator says of a launch, up to the place; "fine" if nothing."""
    try:
        simulator.launch(kernel, programs, args[0], *args, **options)
    except Fault as found:
        return str(found).split(" at ")[0].split(":")[0].split(",")[0]
    return "fine"


def main() -> None:
    machine.MOST_STEPS = 10_000
    simulator = Simulator()
    x, new = torch.arange(256.0), torch.zeros
    for name, wait in REVERSED.items():
        out = new(256)
        given = (x, new(256), out)
        found = fault(simulator, _reverse_kernel, 1, *given, N=256, WAIT=wait)
        assert wait != "barrier" or torch.equal(out, 2 * x.flip(0))
        say(name, found)
    given = (x, new(256), new(256))
    found = fault(simulator, _reverse_kernel, 2, *given, N=256, WAIT="barrier")
    say("two blocks at one place", found)
    for name, count in COPIED.items():
        given = (x[:100].clone(), new(128), count)
        say(name, fault(simulator, _copy_kernel, 1, *given, N=128))
    say("a branch that lanes take differently", parted(simulator))
    given = (new(1), new(1))
    say("a loop that waits for itself", fault(simulator, _waiting_kernel, 1, *given))
    for name, count in SUMMED.items():
        out = new(1)
        assert fault(simulator, _sum_kernel, 1, x, out, count, N=256) == "fine"
        say(name, "fine" if out == x.sum() else "wrong")


def parted(simulator) -> str:
    """Lanes add a product that is not rounded to one that is, each a different one.

    If the sum is near what it is compared with, they part before a barrier.
    """
    generator = torch.Generator().manual_seed(0)
    for _ in range(40):
        x, y = torch.rand(2, 16, generator=generator)
        floor = (x * y).double().sum().float().reshape(1)
        given = (x, y, floor, torch.zeros(16), torch.zeros(16))
        options = {"N": 16, "num_warps": 1, "enable_fp_fusion": True}
        found = fault(simulator, _flag_kernel, 1, *given, **options)
        if found != "fine":
            return found
    return "fine"


if __name__ == "__main__":
    main()
