"""Compiled kernels give the CPU's answers on the simulator, without a race."""

import sys

import pytest

from tests.programs import run

HOPPER, AMPERE = 90, 80


@pytest.mark.parametrize(
    ("generation", "which"),
    [
        pytest.param(HOPPER, "one", marks=pytest.mark.short),
        pytest.param(HOPPER, "some", marks=pytest.mark.long),
        pytest.param(AMPERE, "few", marks=pytest.mark.long),
    ],
)
def test_every_kernel_is_its_twin_in_any_order_of_warps(generation, which):
    pytest.importorskip("triton.backends.nvidia")
    command = [
        sys.executable,
        "-m",
        "tests.ptx.simulate_kernels",
        str(generation),
        which,
    ]
    run(*command, env={"TRITON_INTERPRET": "0"})
