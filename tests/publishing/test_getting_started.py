"""The commands of the getting-started page run in a fresh copy, and print its lines.

The copy has a virtual environment of its own, in which the packages of the tests are
visible, so nothing is downloaded, and the sources beside the tests, whose kernels are
compiled. Training takes a few steps, so numbers are not compared.
"""

import re
import shutil
import site
import sys

import pytest

import conll_ner
from smoothsp import command_line
from tests.programs import ROOT, run
from tests.recipes.runs import write_corpus

PAGE = ROOT / "docs/getting_started.md"
# what other commands of the page do by hand, and what needs a pretrained encoder
NOT_RUN = (
    "git clone",
    "python3 -m venv .venv",
    ".venv/bin/pip install",
    ".venv/bin/python recipes/conll_ner.py",
    'pip install -e ".[recipes,hugging-face]"',
    "python recipes/conll_ner.py --train train.txt --dev dev.txt --encoder",
)
SHORTER = {
    "make ner": 'make ner ARGS="--overwrite --steps 8"',
    "--out runs/mine": "--out runs/mine --steps 8",
}


def commands():
    for block in re.findall(r"```bash\n(.*?)```", PAGE.read_text(), re.DOTALL):
        yield from block.splitlines()


def lines_shown():
    """Lines that recipes print, without numbers; other blocks begin with Ada."""
    blocks = re.findall(r"```text\n(?!Ada )(.*?)```", PAGE.read_text(), re.DOTALL)
    lines = "".join(blocks).splitlines()
    return {shape(line) for line in lines if line != "..."}


def shape(line):
    return " ".join(re.sub(r"\d+(\.\d+)?", "0", line).split())


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """What git has, with an environment, and files of one's own beside the recipes."""
    if not ((ROOT / ".git").exists() and shutil.which("git")):
        pytest.skip("needs git, and a checkout")
    folder = tmp_path_factory.mktemp("newcomer") / "smoothsp"
    for name in filter(None, run("git", "ls-files", "-z").stdout.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    run(sys.executable, "-m", "venv", "--without-pip", folder / ".venv")
    (packages,) = (folder / ".venv/lib").glob("python*/site-packages")
    visible = [*site.getsitepackages(), str(ROOT)]
    (packages / "visible.pth").write_text("\n".join(visible) + "\n")
    for stamp in ".installed", ".compiled":  # by make, with the extras and kernels
        (folder / ".venv" / stamp).touch()
    write_corpus(folder, (60, 20, 20))
    (folder / "text.txt").write_text("Ada met Bob .\nBob lives in Paris .\n")
    return folder


@pytest.mark.long
def test_every_command_prints_what_the_page_shows(copy):
    wanted = [x for x in commands() if not x.startswith(NOT_RUN)]
    assert wanted[:2] == ["make ner", "source .venv/bin/activate"]
    for as_shown, shorter in SHORTER.items():
        wanted = [re.sub(f"{as_shown}$", shorter, x) for x in wanted]
    nothing = {"PYTHONPATH": "", "VIRTUAL_ENV": ""}  # of the checkout of these tests
    done = run("bash", "-ec", "\n".join(wanted), cwd=copy, env=nothing)
    printed = {shape(line) for line in (done.stdout + done.stderr).splitlines()}
    assert lines_shown() <= printed
    tagged = (copy / "tagged.txt").read_text().splitlines()
    words = [line.split("\t")[0] for line in tagged if line]
    assert words == ["Ada", "met", "Bob", ".", "Bob", "lives", "in", "Paris", "."]
    assert (copy / "runs/conll_ner/learning_curve.png").exists()


def test_commands_that_are_not_run_stand_on_the_page():
    for start in NOT_RUN:
        assert any(command.startswith(start) for command in commands()), start


def test_the_recipe_has_the_options_that_the_page_names(monkeypatch, capsys):
    options = set(re.findall(r"(?<![\w-])--[a-z-]+", PAGE.read_text()))
    assert len(options) > 10
    monkeypatch.setattr(sys, "argv", ["conll_ner.py", "--help"])
    with pytest.raises(SystemExit):
        conll_ner.command_line()
    with pytest.raises(SystemExit):
        command_line.main(["predict", "--help"])
    known = capsys.readouterr().out
    assert {x for x in options if not re.search(rf"{x}(?![\w-])", known)} == set()
