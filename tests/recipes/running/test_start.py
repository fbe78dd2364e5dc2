"""Recipes start, and Ctrl-C ends them quietly before and after their own code."""

import importlib
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from tests import programs
from tests.programs import Program
from tests.sweeps import thinned

RECIPES = Path(__file__).parents[3] / "recipes"
HEAVY = ("torch", "numpy", "scipy", "sklearn", "matplotlib", "pytorch_lightning")
SLOW = "import time\nprint('importing', flush=True)\ntime.sleep(60)\n"
ENDS = """\
import atexit
import os
import signal

from runs import sigint, terminal

sigint.default_sigint()
atexit.register(os.kill, os.getpid(), signal.SIGINT)


def recipe():
    print("stopped", flush=True)
    os.kill(os.getpid(), signal.SIGINT)


terminal.run(recipe)
"""
PRINTS = """\
import signal

from runs import terminal


def recipe():
    print("here")
    signal.pause()


terminal.run(recipe)
"""


RECIPE_FILES = sorted(path.name for path in RECIPES.glob("*.py"))


def program(script, path):
    return Program(sys.executable, script, env={"PYTHONPATH": str(path)})


@pytest.mark.parametrize("recipe", RECIPE_FILES)
def test_the_command_shows_its_options(recipe, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [recipe, "--help"])
    with pytest.raises(SystemExit) as end:
        importlib.import_module(recipe.removesuffix(".py")).command_line()
    assert not end.value.code and "--out" in capsys.readouterr().out


@pytest.fixture
def light_only(tmp_path):
    """Run a recipe in a process in which no import may take seconds."""
    for name in HEAVY:
        (tmp_path / f"{name}.py").write_text("raise SystemExit(f'imported {__name__}')")
    path = os.pathsep.join([str(tmp_path), str(RECIPES.parent)])

    def run(recipe, *arguments):
        command = (sys.executable, RECIPES / recipe, *arguments)
        env = {"PYTHONPATH": path, "COLUMNS": "80"}
        return programs.run(*command, env=env, check=False)

    return run


@pytest.mark.parametrize("recipe", RECIPE_FILES)
def test_the_help_needs_no_heavy_import(recipe, light_only):
    done = light_only(recipe, "--help")
    assert not done.returncode and not done.stderr
    assert done.stdout.startswith(f"usage: {recipe} [-h] [OPTIONS]\n")
    assert "None" not in done.stdout
    # paths are relative, or from ~
    assert not re.search(r"(?m)(^|\s)/\w", done.stdout)


@pytest.mark.parametrize(
    ("arguments", "status", "line"),
    [
        (["--call", "4"], 2, "conll_linear.py: error: unknown option --call, did"),
        (["--calls", "x"], 2, "conll_linear.py: error: --calls: expected INT"),
        (["--calls", "3"], 1, "error: --calls: expected an even number"),
    ],
)
def test_neither_do_errors_of_options(arguments, status, line, light_only):
    done = light_only("conll_linear.py", *arguments)
    assert done.returncode == status and not done.stdout
    assert done.stderr.startswith(line) and done.stderr.count("\n") == 1


@pytest.mark.parametrize("recipe", thinned(RECIPE_FILES, 6))
def test_while_it_imports(recipe, tmp_path):
    for name in ("numpy", "torch", "tqdm"):
        (tmp_path / f"{name}.py").write_text(SLOW)
    with program(RECIPES / recipe, tmp_path) as started:
        started.wait(lambda: started.so_far().stdout == "importing\n")
        started.interrupt()
        started.wait(started.ended)
        done = started.so_far()
    assert done.stdout == "importing\n" and not done.stderr
    assert done.returncode == -signal.SIGINT


def test_once_more_while_it_ends(tmp_path):
    script = tmp_path / "twice.py"
    script.write_text(ENDS)
    with program(script, RECIPES) as started:
        started.wait(started.ended)
        done = started.so_far()
    assert done.stdout == "stopped\n" and not done.stderr
    assert done.returncode == -signal.SIGINT


def test_lines_reach_a_pipe_at_once(tmp_path):
    script = tmp_path / "prints.py"
    script.write_text(PRINTS)
    env = {"PYTHONPATH": str(RECIPES), "PYTHONUNBUFFERED": ""}
    with Program(sys.executable, script, env=env) as started:
        started.wait(lambda: started.so_far().stdout == "here\n")
