"""A program that writes the tables of what each GPU kernel takes of a GPU.

Run as ``python -m tests.kernels.block_sizes [GENERATION]`` with TRITON_INTERPRET=0. It
compiles each kernel of chains whose blocks depend on the number of states, for 16 to 64
states, those of circuits, and three generations of GPUs, which need not be there. With
one it prints its cells.
"""

import importlib
import itertools
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
import triton  # noqa: TID253
from torch import Tensor

from tests.kernels.device_compilation import (
    chain_calls,
    compile_circuits,
    resources,
)
from tests.programs import run
from tests.ptx.launch import modules, pretend

GENERATIONS, SIZES = (80, 90, 100), (16, 32, 64)
PAGE = Path(__file__).parents[2] / "benchmarks/tables/gpu_blocks.md"
PAGE_TEXT = """# Blocks of the GPU kernels

```bash
TRITON_INTERPRET=0 python -m tests.kernels.block_sizes
```

The command compiles the kernels of chains and of the other dynamic programmes with Triton {version}.
It reads registers, stack and shared memory from the machine code: no GPU is needed, and nothing is timed.
Block sizes depend on the number of states and the dtype alone: nothing is tuned by timing at first use.
The last columns are for compute capability 8.0, 9.0 and 10.0: registers of a thread, bytes of stack, and KB of shared memory of a program.
No register is spilled to the stack.
At most 48 KB of shared memory are used, which no launch has to request.

## Chains

A program computes one row of the batch, or a chunk of one.
It holds blocks of S states, rounded up to a power of two from 16, and tiles of R states by S.
Transitions are shared by all steps.

| kernel | dtype | S | R | warps | 8.0 | 9.0 | 10.0 |
| --- | --- | --- | --- | --- | --- | --- | --- |
{chains}
## Other dynamic programmes

A program computes eight rows of the batch.
Of each level of the circuit it computes so many items at a time, and so many products of each.

| kernel | dtype | items | products | warps | 8.0 | 9.0 | 10.0 |
| --- | --- | --- | --- | --- | --- | --- | --- |
{circuits}"""  # noqa: E501
MOST_SHARED = 48 * 1024


def measure(generation: int) -> None:
    """Print the row and the cell of each kernel for a generation."""
    pretend(generation)

    def launch(
        kernel: Any, programs: int, near: Tensor, *args: Any, **options: Any
    ) -> None:
        built = kernel.warmup(*args, grid=(programs,), **options)
        registers, stack = resources(built.asm["cubin"])
        shared = built.metadata.shared
        name = kernel.__name__.removeprefix("_").removesuffix("_kernel")
        kind = "circuits" if "EDGES" in options else "chains"
        taken = (name, near.dtype, stack, shared)
        assert stack == 0 and shared <= MOST_SHARED, taken
        if kind == "circuits":
            sizes = options["HEADS"], options["EDGES"]
        else:
            block = options["BLOCK"]
            sizes = block, options.get("ROWS", options.get("COLUMNS", block))
        dtype = str(near.dtype).removeprefix("torch.")
        cells = (name, dtype, *sizes, options["num_warps"])
        row = " | ".join(map(str, cells))
        sys.stdout.write(f"{kind}\t{row}\t{registers}, {stack}, {shared / 1024:g}\n")

    for module in modules():
        if hasattr(module, "launch"):
            module.launch = launch
    for S, dtype in itertools.product(SIZES, (torch.float32, torch.float64)):
        for name, launcher, arguments in chain_calls(S, True, dtype):
            module = importlib.import_module(f"smoothsp._kernels.chain.cuda.{name}")
            getattr(module, launcher)(*arguments)
    compile_circuits(torch.float32, torch.float64)


def main() -> None:
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for generation in GENERATIONS:
        command = [sys.executable, "-m", "tests.kernels.block_sizes", str(generation)]
        said = run(*command, cpu_seconds=3600)
        for line in said.stdout.splitlines():
            kind, row, cell = line.split("\t")
            found[kind][row].append(cell)
    tables = {
        kind: "".join(f"| {x} | {' | '.join(y)} |\n" for x, y in sorted(rows.items()))
        for kind, rows in found.items()
    }
    PAGE.write_text(PAGE_TEXT.format(version=triton.__version__, **tables))


if __name__ == "__main__":
    measure(int(sys.argv[1])) if sys.argv[1:] else main()
