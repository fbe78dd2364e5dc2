"""No barrier of a Triton kernel can be removed without the simulator noticing."""

import sys

import pytest

from tests.programs import run


@pytest.mark.long
def test_a_barrier_less_is_a_fault():
    pytest.importorskip("triton.backends.nvidia")
    command = [sys.executable, "-m", "tests.kernels.barriers", "90", "3"]
    said = run(*command, env={"TRITON_INTERPRET": "0"}).stdout.splitlines()
    found = dict(line.split("\t") for line in said)
    assert found
    assert [name for name, fault in found.items() if not fault] == []
