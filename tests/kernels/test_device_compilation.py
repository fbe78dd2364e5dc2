"""The Triton kernels compile to machine code, with or without a device."""

import sys

import pytest

from tests.programs import run


@pytest.mark.slow
@pytest.mark.parametrize("generation", [80, 90], ids=["Ampere", "Hopper"])
def test_every_kernel_compiles_and_fits_on_a_gpu(generation, tmp_path):
    pytest.importorskip("triton.backends.nvidia")
    program = "tests.kernels.device_compilation"
    command = [sys.executable, "-W", "error", "-m", program, str(generation)]
    run(*command, env={"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)})
