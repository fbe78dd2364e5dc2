"""The Triton kernels compile to machine code, with or without a device."""

import sys

import pytest

from tests.programs import run

HOPPER = 90


@pytest.mark.parametrize(
    ("generation", "sizes"),
    [
        pytest.param(HOPPER, ["circuits"], id="Hopper, circuits"),
        pytest.param(80, [], id="Ampere", marks=pytest.mark.long),
        pytest.param(HOPPER, [], id="Hopper", marks=pytest.mark.long),
    ],
)
def test_every_kernel_compiles_and_fits_on_a_gpu(generation, sizes, tmp_path):
    pytest.importorskip("triton.backends.nvidia")
    program = "tests.kernels.device_compilation"
    command = [sys.executable, "-W", "error", "-m", program, str(generation), *sizes]
    run(*command, env={"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)})
