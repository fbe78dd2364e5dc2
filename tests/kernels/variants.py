"""A program that lists the variants of GPU kernels that a first training asks for.

Run as ``python -m tests.kernels.variants`` with TRITON_INTERPRET=0. Nothing is built:
Triton says what it would compile. The program prints one line for each variant.
"""

import sys
from typing import Any

import torch
from torch import Tensor

from smoothsp.oracles import SemiMarkov
from smoothsp.oracles._chain import cuda
from smoothsp.oracles._circuits import cuda as circuits
from tests.ptx.launch import modules, pretend

# Batches of a tagger with nine tags: rows and the longest of them.
BATCHES = [(32, 20), (32, 32), (31, 17), (16, 113), (7, 1), (1, 16), (1, 1)]
TAGS = 9


def chain(B: int, T: int, S: int) -> tuple[Tensor, ...]:
    steps, lengths = torch.arange(T).repeat(B, 1), torch.full((B,), T)
    ends = torch.zeros(S), torch.zeros(S)
    return torch.zeros(B, T, S), torch.zeros(S, S), *ends, steps, lengths


def train(B: int, T: int) -> None:
    """Likelihoods with gradients, and predictions."""
    asked = chain(B, T, TAGS)
    cuda.log_partition(*asked, False)
    cuda.decode(*asked)
    cuda.decode_topk(*asked, 3)
    segments = SemiMarkov(torch.zeros(B, T, 2, 3), torch.zeros(3, 3))
    leaves, which = segments._leaves(), segments._circuit_batch
    circuits.log_partition_and_marginals(
        leaves, which, [True] * len(leaves.arrays), torch.float64
    )
    circuits.best(leaves, which, None, torch.float64)


def moved(x: Any) -> Any:
    """Return a tensor as a device has it: one of its own is aligned, a view may not."""
    return x.clone() if isinstance(x, Tensor) and x.storage_offset() == 0 else x


def main() -> None:
    pretend(90)
    seen: set[tuple[str, str]] = set()

    def would_compile(*, key: Any, fn: Any, **rest: Any) -> bool:
        seen.add((fn.name, str(key)))
        return True

    try:
        from triton import knobs
    except ImportError:  # Triton 3.2 and 3.3
        from triton.runtime import JITFunction

        JITFunction.cache_hook = would_compile
    else:
        knobs.runtime.jit_cache_hook = would_compile

    def warm(kernel: Any, programs: int, near: Tensor, *args: Any, **options: Any):
        kernel.warmup(*map(moved, args), grid=(programs,), **options)

    for module in modules():
        if hasattr(module, "launch"):
            module.launch = warm
    # nothing was computed: no flag is read
    circuits.is_capturing = lambda near: True
    for batch in BATCHES:
        train(*batch)
    for name, key in sorted(seen):
        sys.stdout.write(f"{name} {key}\n")


if __name__ == "__main__":
    main()
