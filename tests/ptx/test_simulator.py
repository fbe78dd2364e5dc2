"""The simulator sees what it is there to see: kernels with one fault each."""

import sys

import pytest
import torch

from tests.programs import run
from tests.ptx.arithmetic import Unknown, rule


@pytest.mark.long
def test_each_fault_is_seen():
    """Triton reads its settings when it is imported: so it happens in a program."""
    pytest.importorskip("triton.backends.nvidia")
    command = [sys.executable, "-m", "tests.ptx.simulate_faults"]
    said = run(*command, env={"TRITON_INTERPRET": "0"}).stdout.splitlines()
    assert said == [
        "a missing barrier: race between warps",
        "only the barriers of a sum: race between warps",
        "the same with a barrier: fine",
        "two blocks at one place: race between blocks",
        "a load behind an argument: out of bounds",
        "the same with a mask: fine",
        "a branch that lanes take differently: hangs",
        "a loop that waits for itself: does not end",
        "a sum without its last number: wrong",
        "the same with it: fine",
    ]


def test_what_has_no_model_is_refused():
    for op in ("atom.global.add.u32", "tanh.approx.f32", "cvt.rn.bf16.f32"):
        with pytest.raises(Unknown):
            rule(op)


def test_a_fused_sum_rounds_once():
    a = torch.tensor([1 + 2**-12], dtype=torch.float32).numpy()
    exact = float(a[0]) ** 2 - float(a[0] * a[0])
    assert rule("fma.rn.f32").compute(a, a, -a * a)[0] == exact != 0
    wide = torch.tensor([1 + 2**-27], dtype=torch.float64).numpy()
    assert rule("fma.rn.f64").compute(wide, wide, -wide * wide)[0] == 2**-54
