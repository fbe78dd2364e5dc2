"""A program that compiles every Triton kernel for a GPU, which need not be there.

Run as ``python -m tests.oracles.device_compilation`` with TRITON_INTERPRET=0. The
interpreter is Python and forgives what the compiler does not, such as a name that
changes its type in a loop.
"""

import importlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

B, T, K = 4, 20, 5
WIDE = torch.float64
POINTERS = {
    torch.float32: "*fp32",
    torch.float64: "*fp64",
    torch.int64: "*i64",
    torch.int32: "*i32",
    torch.bool: "*i1",
}


def compile_launch(
    kernel: Any, programs: int, near: Tensor, *args: Any, **options: Any
) -> None:
    """Stand in for ``launch``: compile the kernel for these arguments."""
    # pytest imports this file too, and there Triton must not come before its settings
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    attributes = {}
    signature = dict.fromkeys(options.keys() & set(kernel.arg_names), "constexpr")
    constants = {name: options[name] for name in signature}
    for place, (name, value) in enumerate(zip(kernel.arg_names, args, strict=False)):
        is_tensor = isinstance(value, Tensor)
        signature[name] = POINTERS[value.dtype] if is_tensor else "i32"
        if is_tensor:
            attributes[(place,)] = [["tt.divisibility", 16]]
    assert set(signature) == set(kernel.arg_names)
    source = ASTSource(kernel, signature, constants, attributes)
    rest = {name: x for name, x in options.items() if name not in constants}
    target = GPUTarget("cuda", 80, 32)
    assert triton.compile(source, target=target, options=rest).asm["cubin"]


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
    yield "scaled", "forward_backward", (*chain, new(B, dtype=WIDE), *parts)
    yield "max", "viterbi", (*chain, labels[:, 0])
    yield "max", "viterbi_topk", (*chain, labels, valid)
    yield "sample", "sample", (*chain, new(B, K, T, dtype=WIDE), labels)
    yield "sample", "entropy", (*chain, new(B))
    yield "path", "score", (*chain, labels, wide[0], lengths)
    rest = (steps, lengths, shared)
    yield "path", "count", (new(B, K), labels, *rest, parts[0], *wide[1:], wide[2])
    yield "path", "residual", (labels[:, 0], *rest, *parts)
    yield "covariance", "covariance", (*chain, *parts, *parts)


if __name__ == "__main__":
    for S, shared, dtype in ((9, True, torch.float32), (300, False, torch.float32)):
        for name, launcher, arguments in calls(S, shared, dtype):
            module = importlib.import_module(f"smoothsp._kernels.chain_{name}_cuda")
            module.launch = compile_launch
            getattr(module, launcher)(*arguments)
