"""Launches of Triton kernels on CPU tensors, as a GPU would run the compiled PTX."""

import importlib
import os
import pkgutil
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

import smoothsp._kernels
from tests.programs import ROOT
from tests.ptx.decode import Program, decode, own_barriers
from tests.ptx.machine import Launch
from tests.ptx.memory import Memory

# Kernels that were decoded, by Triton's hashes of what it has compiled.
PROGRAMS: dict[str, Program] = {}
# Where global memory begins, and how far apart arguments lie at least.
GLOBAL, GAP = 1 << 40, 512


def pretend(generation: int) -> None:
    """Let Triton believe in a GPU of a generation: 80 is Ampere, 90 Hopper."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime.driver import driver

    stub = SimpleNamespace(
        get_current_target=lambda: GPUTarget("cuda", generation, 32),
        get_current_device=lambda: 0,
        get_current_stream=lambda device: 0,
        get_active_torch_device=lambda: torch.device("cpu"),
    )
    driver.set_active(stub)


def _leave_out_machine_code() -> None:
    """Compile as far as PTX, which is kept apart from what a GPU could run."""
    from triton.backends.nvidia.compiler import CUDABackend

    os.environ["TRITON_CACHE_DIR"] = str(ROOT / ".kernels" / "ptx")
    CUDABackend.make_cubin = staticmethod(lambda *_: b"")


def modules() -> Iterator[ModuleType]:
    """Yield every module of Triton kernels."""
    package = smoothsp._kernels
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if ".cuda." in found.name:
            yield importlib.import_module(found.name)


class Simulator:
    """Compiles kernels for a generation of GPUs, and runs what comes out.

    ``together`` runs all warps of a block at once, which takes less time; else each
    runs alone, in an order drawn from ``seed``.
    """

    def __init__(
        self, generation: int = 90, seed: int = 0, together: bool = False
    ) -> None:
        pretend(generation)
        _leave_out_machine_code()
        self.order, self.together = random.Random(seed), together
        self.launches: Counter[str] = Counter()

    def launch(
        self, kernel: Any, programs: int, near: Tensor, *args: Any, **options: Any
    ) -> None:
        """Run programs of a kernel; the arguments are those of ``_kernels``' launch."""
        built = kernel.warmup(*args, grid=(programs,), **options)
        if built.hash not in PROGRAMS:
            barriers = own_barriers(built.asm["ttgir"])
            PROGRAMS[built.hash] = decode(built.asm["ptx"], barriers)
        program = PROGRAMS[built.hash]
        self.launches[kernel.__name__] += 1
        given = dict(zip(kernel.arg_names, args, strict=False)) | options
        constants = built.src.constants
        known = {kernel.arg_names[k[0]] for k in constants if not isinstance(k, str)}
        passed = {
            name: given[name]
            for name, kind in built.src.signature.items()
            if kind != "constexpr" and name not in known and name not in constants
        }
        tensors = {n: x for n, x in passed.items() if isinstance(x, Tensor)}
        memory, addresses = _memory(tensors, program)
        numbers = [addresses.get(n, x) for n, x in passed.items()]
        # behind them stands scratch that no kernel has
        numbers += [0] * (len(program.parameters) - len(numbers))
        names = [name for name, _ in program.parameters]
        arguments = dict(zip(names, (x % 2**64 for x in numbers), strict=True))
        shared = built.metadata.shared
        order = (self.order, self.together)
        Launch(program, memory, arguments, programs, shared, *order).run()
        for name, x in tensors.items():
            _bytes(x)[...] = memory.bytes[addresses[name] - GLOBAL :][: _size(x)]


def _size(x: Tensor) -> int:
    """Bytes from the first to the last number of a tensor."""
    if x.numel() == 0:
        return 0
    last = sum((n - 1) * d for n, d in zip(x.shape, x.stride(), strict=True))
    return (1 + last) * x.element_size()


def _bytes(x: Tensor) -> np.ndarray:
    flat = x.detach().as_strided((_size(x) // x.element_size(),), (1,))
    return flat.view(torch.uint8).numpy()


def _memory(tensors: dict[str, Tensor], program: Program):
    """Copy arguments to memory; return it and their addresses.

    Tensors that share memory share it there too, and addresses keep their alignment.
    """
    pieces: list[list[int]] = []
    spans = sorted((x.data_ptr(), x.data_ptr() + _size(x)) for x in tensors.values())
    for first, end in spans:
        if pieces and first < pieces[-1][1]:
            pieces[-1][1] = max(end, pieces[-1][1])
        elif end > first:
            pieces.append([first, end])
    at, places = GAP, []
    for first, end in pieces:
        places.append(at + first % GAP)
        at += 2 * GAP + (end - first) // GAP * GAP + GAP
    code = program.code
    granule = program.narrowest("global")
    memory = Memory(GLOBAL, at, granule, lambda i: str(code[i]))
    addresses = dict.fromkeys(tensors, 0)
    for (first, end), place in zip(pieces, places, strict=True):
        for name, x in tensors.items():
            if first <= x.data_ptr() < end and _size(x):
                here = place + x.data_ptr() - first
                memory.add(here, _bytes(x), name)
                addresses[name] = GLOBAL + here
    return memory, addresses


@contextmanager
def installed(simulator: Simulator) -> Iterator[Simulator]:
    """Send every launch of a kernel to the simulator."""
    found = [module for module in modules() if hasattr(module, "launch")]
    before = [module.launch for module in found]
    for module in found:
        module.launch = simulator.launch
    try:
        yield simulator
    finally:
        for module, launch in zip(found, before, strict=True):
            module.launch = launch
