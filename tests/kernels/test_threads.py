"""The same bits from any thread, worker or child process.

Each test is a program of its own (`concurrency.py`), so that a crash fails one test.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("program", ["from_threads", "from_workers", "after_fork"])
def test_the_oracles_give_the_same_bits(program):
    # Newer Pythons warn about any fork beside threads, which is what is tried here.
    flags = ["-W", "error", "-W", "ignore:This process:DeprecationWarning"]
    # one core is fewer than the workers that the test asks for
    flags += ["-W", "ignore:This DataLoader:UserWarning"]
    done = subprocess.run(
        [sys.executable, *flags, "-m", "tests.kernels.concurrency", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
