"""The same bits from any thread, worker or child process.

Each test is a program of its own (`concurrency.py`), so that a crash fails one test.
"""

import sys

import pytest

from tests.programs import run


@pytest.mark.parametrize(
    "programs",
    [
        ["after_fork", "from_threads"],
        pytest.param(["from_workers", "searches_after_fork"], marks=pytest.mark.long),
    ],
    ids=" ".join,
)
def test_the_oracles_give_the_same_bits(programs):
    # Newer Pythons warn about any fork beside threads, which is what is tried here.
    flags = ["-W", "error", "-W", "ignore:This process:DeprecationWarning"]
    # one core is fewer than the workers that the test asks for
    flags += ["-W", "ignore:This DataLoader:UserWarning"]
    run(sys.executable, *flags, "-m", "tests.kernels.concurrency", *programs)
