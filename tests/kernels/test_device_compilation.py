"""The Triton kernels compile to machine code, with or without a device."""

import sys

import pytest

from tests.programs import run

HOPPER = 90


@pytest.mark.long
@pytest.mark.parametrize(
    ("generation", "sizes"),
    [pytest.param(80, ["tiles"], id="Ampere"), pytest.param(HOPPER, [], id="Hopper")],
)
def test_every_kernel_compiles_and_fits_on_a_gpu(generation, sizes, tmp_path):
    pytest.importorskip("triton.backends.nvidia")
    program = "tests.kernels.device_compilation"
    command = [sys.executable, "-W", "error", "-m", program, str(generation), *sizes]
    run(*command, env={"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)})


@pytest.mark.long
def test_a_first_training_compiles_few_kernels():
    pytest.importorskip("triton.backends.nvidia")
    command = [sys.executable, "-m", "tests.kernels.variants"]
    found = run(*command, env={"TRITON_INTERPRET": "0"}).stdout.splitlines()
    kernels = {line.split()[0] for line in found}
    # each once, for batches of all sizes
    assert len(kernels) == len(found) == 6, "\n".join(found)
