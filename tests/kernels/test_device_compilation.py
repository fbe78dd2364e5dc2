"""The Triton kernels compile to machine code, with or without a device."""

import sys

import pytest

from tests.programs import run


@pytest.mark.slow
@pytest.mark.parametrize(
    "size", ["few-states", pytest.param("many-states", marks=pytest.mark.long)]
)
def test_every_kernel_compiles_for_a_gpu(size, tmp_path):
    pytest.importorskip("triton.backends.nvidia")
    command = [sys.executable, "-W", "error", "-m", "tests.kernels.device_compilation"]
    run(
        *command, size, env={"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    )
