"""How many functions a smoothed hinge passes, from a potential to its gradient."""

import sys
from pathlib import Path

import torch

import smoothsp
from smoothsp.losses import Entropy, StructuralHinge
from smoothsp.oracles import SpanTree

PACKAGE = Path(smoothsp.__file__).parent
# Measured: 163 calls in 27 files. Each costs a microsecond or less; a reader follows
# them all.
MOST_CALLS, MOST_FILES = 170, 27


def way(run) -> list[tuple[int, str, str]]:
    """Depth, file and function of each call of ours, in order."""
    calls, depth = [], 0

    def follow(frame, event, argument):
        nonlocal depth
        code = frame.f_code
        file = Path(code.co_filename)
        if event not in ("call", "return") or not file.is_relative_to(PACKAGE):
            return
        if event == "call":
            name = str(file.relative_to(PACKAGE))
            calls.append((depth, name, code.co_qualname))
        depth += 1 if event == "call" else -1

    sys.setprofile(follow)
    try:
        run()
    finally:
        sys.setprofile(None)
    return calls


def test_a_smoothed_hinge_passes_few_functions():
    spans = torch.randn(8, 10, 10, generator=torch.Generator().manual_seed(0))
    loss = StructuralHinge(Entropy(1.0))
    _, y = SpanTree(spans.flip(0)).decode()

    def run() -> None:
        loss(SpanTree(spans.clone().requires_grad_()), y).backward()

    run()  # kernels and topologies are there afterwards
    calls = way(run)
    lines = (f"{'  ' * depth}{name}  {file}\n" for depth, file, name in calls)
    sys.stdout.writelines(lines)
    files = {file for _, file, _ in calls}
    assert len(calls) <= MOST_CALLS
    assert len(files) <= MOST_FILES
