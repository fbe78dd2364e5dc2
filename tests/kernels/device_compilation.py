"""A program that compiles every Triton kernel for a GPU, which need not be there.

Run as ``python -m tests.kernels.device_compilation GENERATION [tiles]`` with
TRITON_INTERPRET=0, where 80 is Ampere and 90 is Hopper. ``tiles`` compiles chains of
one size, which takes most, and circuits. It prints what each kernel takes of a GPU.
The interpreter is Python and forgives what the compiler does not, such as a name that
changes its type in a loop.
"""

import importlib
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from smoothsp.oracles import SemiMarkov
from tests.programs import run
from tests.ptx.launch import modules, pretend

B, T, K = 4, 20, 5
WIDE = torch.float64
# What a program may take: bytes of stack a thread, where registers are spilled to (by
# tiles of 512 states alone), and bytes of shared memory. Registers of all its threads
# are those of a multiprocessor.
MOST_STACK, MOST_SHARED, MOST_REGISTERS = 16, 41 * 1024, 65536


def compile_launch(
    kernel: Any, programs: int, near: Tensor, *args: Any, **options: Any
) -> None:
    """Stand in for ``launch``: compile the kernel for these arguments."""
    built = kernel.warmup(*args, grid=(programs,), **options)
    registers, stack = resources(built.asm["cubin"])
    threads, shared = 32 * built.metadata.num_warps, built.metadata.shared
    name = kernel.__name__
    sys.stdout.write(
        f"{kernel.__module__}.{name} {near.dtype}: {threads} threads of {registers} "
        f"registers and {stack} bytes of stack, {shared} bytes of shared memory\n"
    )
    assert stack <= MOST_STACK, name
    assert shared <= MOST_SHARED, name
    assert registers * threads <= MOST_REGISTERS, name
    compiled.add((kernel.__module__, name))


compiled: set[tuple[str, str]] = set()


def resources(binary: bytes) -> tuple[int, int]:
    """Registers and bytes of stack of a thread, as the compiler has fixed them."""
    from triton.backends import nvidia

    tool = Path(nvidia.__path__[0]) / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        command = [tool, "-res-usage", file.name]
        said = run(*command)
    ((registers, stack),) = re.findall(r"REG:(\d+) STACK:(\d+)", said.stdout)
    return int(registers), int(stack)


def kernels() -> set[tuple[str, str]]:
    """Modules and names of all kernels: functions that end in ``_kernel``."""
    from triton.runtime import JITFunction

    return {
        (value.__module__, name)
        for module in modules()
        for name, value in vars(module).items()
        if isinstance(value, JITFunction) and name.endswith("_kernel")
    }


def scan_multiplies(dtype: torch.dtype) -> bool:
    from smoothsp._kernels.chain.cuda.scan import supports_matmul

    return supports_matmul(dtype)


def chain_calls(S: int, shared: bool, dtype: torch.dtype) -> Iterator[tuple[Any, ...]]:
    """Yield (module, launcher, arguments) for each kernel of chains."""

    def new(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
        return torch.zeros(shape, dtype=dtype)

    steps, lengths = torch.arange(T).repeat(B, 1), torch.full((B,), T)
    edges = (1, 1, S, S) if shared else (B, T - 1, S, S)
    labels, valid = new(B, K, T, dtype=torch.int64), new(B, K, dtype=torch.bool)
    chain = (new(B, T, S), new(*edges), new(S), new(S), steps, lengths, shared)
    parts = (new(B, T, S), new(B, 1 if shared else T - 1, S, S), new(B, S), new(B, S))
    yield "forward_backward", "forward_backward", (chain, new(B, dtype=WIDE), parts)
    if S <= 64 and scan_multiplies(dtype):
        yield "scan", "forward_backward", (chain, new(B, dtype=WIDE), parts)
    yield "viterbi", "viterbi", (chain, labels[:, 0])
    yield "viterbi", "viterbi_topk", (chain, labels, valid)
    yield "samples", "sample", (chain, new(B, K, T, dtype=WIDE), labels)
    yield "samples", "entropy", (chain, new(B))
    yield "covariance", "covariance", (chain, parts, parts)


# States, whether all steps share transitions, dtype.
TILES = (300, False, torch.float32)
SIZES = [(9, True, torch.float32), TILES, (64, True, WIDE)]


def compile_chains(sizes: list[tuple[int, bool, torch.dtype]]) -> None:
    for S, shared, dtype in sizes:
        for name, launcher, arguments in chain_calls(S, shared, dtype):
            module = importlib.import_module(f"smoothsp._kernels.chain.cuda.{name}")
            getattr(module, launcher)(*arguments)


def compile_circuits(*dtypes: torch.dtype) -> None:
    from smoothsp._kernels.circuits.cuda import inside_outside, max_product
    from smoothsp.oracles._circuits.schedule import device_schedule

    for dtype in dtypes:
        structure = SemiMarkov(torch.zeros(B, T, 2, 3, dtype=dtype))
        asked, device = structure._circuit_batch, torch.device("cpu")
        circuit, rows = device_schedule(asked.topology, device), asked.lanes(device)
        own, value = structure.segments.flatten(1), torch.zeros(B, dtype=WIDE)
        shared, far = torch.zeros(9, dtype=dtype), torch.zeros(B, dtype=torch.bool)
        marginals = torch.zeros(B, own.shape[1] + 9, dtype=dtype)
        inside_outside.inside_outside(
            own, shared, circuit, rows, True, value, far, marginals
        )
        labels = torch.zeros(B, T, dtype=torch.int64)
        max_product.best_outputs(
            own, shared, circuit, rows, value, labels, labels.int()
        )


if __name__ == "__main__":
    pretend(int(sys.argv[1]))
    for module in modules():
        if hasattr(module, "launch"):
            module.launch = compile_launch
    which = sys.argv[2:]
    compile_chains([TILES] if which else SIZES)
    compile_circuits(torch.float32, *([] if which else [WIDE]))
    if not which:
        forgotten = kernels() - compiled
        assert not forgotten, f"not compiled: {forgotten}"
