"""A program that compiles every Triton kernel for a GPU, which need not be there.

Run as ``python -m tests.kernels.device_compilation SIZE`` with TRITON_INTERPRET=0. The
interpreter is Python and forgives what the compiler does not, such as a name that
changes its type in a loop.
"""

import importlib
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

B, T, K = 4, 20, 5
# number of states, and whether all steps share their transitions
SIZES = {"few-states": (9, True), "many-states": (300, False)}
WIDE = torch.float64


def compile_launch(
    kernel: Any, programs: int, near: Tensor, *args: Any, **options: Any
) -> None:
    """Stand in for ``launch``: compile the kernel for these arguments."""
    assert kernel.warmup(*args, grid=(programs,), **options).asm["cubin"]


def pretend() -> None:
    """Let Triton believe in a GPU: all it asks for is which one."""
    # pytest imports this file too, and there Triton must not come before its settings
    from triton.backends.compiler import GPUTarget
    from triton.runtime.driver import driver

    stub = SimpleNamespace(
        get_current_target=lambda: GPUTarget("cuda", 80, 32),
        get_current_device=lambda: 0,
        get_current_stream=lambda device: 0,
        get_active_torch_device=lambda: torch.device("cpu"),
    )
    driver.set_active(stub)


def calls(S: int, shared: bool, dtype: torch.dtype) -> Iterator[tuple[Any, ...]]:
    """Yield (module, launcher, arguments) for each kernel."""

    def new(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
        return torch.zeros(shape, dtype=dtype)

    steps, lengths = torch.arange(T).repeat(B, 1), torch.full((B,), T)
    edges = (1, 1, S, S) if shared else (B, T - 1, S, S)
    labels, valid = new(B, K, T, dtype=torch.int64), new(B, K, dtype=torch.bool)
    chain = (new(B, T, S), new(*edges), new(S), new(S), steps, lengths, shared)
    parts = (new(B, T, S), new(B, 1 if shared else T - 1, S, S), new(B, S), new(B, S))
    wide = (new(B, K, dtype=WIDE), new(*edges, dtype=WIDE), new(S, dtype=WIDE))
    yield "sums", "forward_backward", (*chain, new(B, dtype=WIDE), *parts)
    if S <= 64:
        yield "scan", "forward_backward", (*chain, new(B, dtype=WIDE), *parts)
    yield "faults", "find_fault", (*chain, new(5, dtype=torch.int64))
    moves = new(S, S) if shared else parts[1]
    yield "weigh", "weigh", (new(B), *parts, shared, parts[0], moves, new(S), new(S))
    yield "best", "viterbi", (*chain, labels[:, 0])
    yield "best", "viterbi_topk", (*chain, labels, valid)
    yield "samples", "sample", (*chain, new(B, K, T, dtype=WIDE), labels)
    yield "samples", "entropy", (*chain, new(B))
    yield "given_outputs", "score", (*chain, labels, wide[0], lengths)
    rest = (steps, lengths, shared)
    yield (
        "given_outputs",
        "count",
        (new(B, K), labels, *rest, parts[0], *wide[1:], wide[2]),
    )
    yield "given_outputs", "residual", (labels[:, 0], *rest, *parts, *parts)
    yield "covariance", "covariance", (*chain, *parts, *parts)


if __name__ == "__main__":
    pretend()
    for name, launcher, arguments in calls(*SIZES[sys.argv[1]], torch.float32):
        module = importlib.import_module(f"smoothsp._kernels.chain.cuda.{name}")
        module.launch = compile_launch
        getattr(module, launcher)(*arguments)
