"""Ctrl-C while a recipe is not yet, or no longer, in its own code: it ends quietly."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

RECIPES = Path(__file__).parents[3] / "recipes"
SLOW = "import time\nprint('importing', flush=True)\ntime.sleep(60)\n"
ENDS = """\
import atexit
import os
import signal

from runs import start, terminal

start.quietly()
atexit.register(os.kill, os.getpid(), signal.SIGINT)


def recipe():
    print("stopped", flush=True)
    os.kill(os.getpid(), signal.SIGINT)


terminal.run(recipe)
"""


def run(script, path):
    return subprocess.Popen(
        [sys.executable, script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(path)},
    )


@pytest.mark.parametrize("recipe", sorted(path.name for path in RECIPES.glob("*.py")))
def test_while_it_imports(recipe, tmp_path):
    for name in ("numpy", "torch", "tqdm"):
        (tmp_path / f"{name}.py").write_text(SLOW)
    with run(RECIPES / recipe, tmp_path) as process:
        assert process.stdout.readline() == b"importing\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30) == (b"", b"")
    assert process.returncode == -signal.SIGINT


def test_once_more_while_it_ends(tmp_path):
    script = tmp_path / "twice.py"
    script.write_text(ENDS)
    with run(script, RECIPES) as process:
        assert process.communicate(timeout=30) == (b"stopped\n", b"")
    assert process.returncode == -signal.SIGINT
