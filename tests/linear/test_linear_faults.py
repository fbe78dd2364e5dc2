"""Loops of linear chains, and the path, broken on purpose turn the laws red."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.linear.linear_faults import FAULTS

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_every_deliberate_fault_turns_the_laws_red(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "tests.linear.linear_faults", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = dict(line.split("\t") for line in done.stdout.splitlines())
    assert found.pop("none") == "green", done.stderr[-3000:]
    assert found == {name: "red" for name in FAULTS if name != "none"}
