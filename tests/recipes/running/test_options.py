"""A wrong command line is one line, which names what was probably meant."""

import importlib
import re
import sys
from dataclasses import dataclass

import pytest

from runs import options, terminal
from tests.recipes.running.test_run_folder import RECIPES


def said(kind, arguments, monkeypatch, capsys, columns=80):
    """What is written of arguments that are refused."""
    monkeypatch.setattr(sys, "argv", ["recipes/a.py", *arguments])
    monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(SystemExit) as end:
        options.read(kind)
    assert end.value.code == 2
    written = capsys.readouterr()
    assert not written.out
    return written.err


def kind_of(name):
    if name == "lightning_ner":
        pytest.importorskip("pytorch_lightning")
    return importlib.import_module(name).Config


@pytest.mark.parametrize("columns", [40, 80])
@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["--epoch", "3"], "unknown option --epoch, did you mean --epochs"),
        (["--epoch=3"], "unknown option --epoch, did you mean --epochs"),
        (["--skip_bat"], "unknown option --skip-bat, did you mean --skip-bad"),
        (["--no-resum"], "unknown option --no-resum, did you mean --no-resume"),
        (["--xyzzy", "3", "--epoch", "3"], "unknown option --xyzzy"),
        (["--loss", "foo"], "--loss: expected one of 'hinge', 'hinge-l2'"),
        (["--epochs", "three"], "--epochs: expected INT, got 'three'"),
        (["--rate", "x"], "--rate: expected FLOAT, got 'x'"),
        (["--epochs"], "--epochs: expected a value, got none"),
        (["word"], "Unrecognized options: word"),
    ],
)
def test_a_wrong_command_line_is_one_line(
    arguments, what, columns, monkeypatch, capsys
):
    line = said(kind_of("conll_ner"), arguments, monkeypatch, capsys, columns)
    assert line.startswith(f"a.py: error: {what}")
    assert line.endswith("; see --help for all options\n")
    assert line.count("\n") == 1 and "─" not in line and "│" not in line


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_names_what_was_meant(name, monkeypatch, capsys):
    line = said(kind_of(name), ["--ouf", "x"], monkeypatch, capsys)
    assert line.startswith("a.py: error: unknown option --ouf, did you mean --out; ")


@pytest.mark.parametrize("name", RECIPES)
def test_every_option_that_the_help_lists_is_known(name, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["a.py", "--help"])
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit):
        options.read(kind_of(name))
    listed = set(re.findall(r"--[a-z][a-z0-9-]*", _named(capsys.readouterr().out)))
    assert listed and listed <= set(options._option_names(kind_of(name)))


def _named(text):
    """The options that a help begins its lines with."""
    lines = (line.strip("│ ") for line in text.splitlines())
    return "\n".join(line.split("  ")[0] for line in lines if line.startswith("-"))


def test_a_choice_that_may_be_absent_is_not_none(monkeypatch, capsys):
    kind = kind_of("voc_localization")
    line = said(kind, ["--warm-start", "foo"], monkeypatch, capsys)
    assert line.startswith("a.py: error: --warm-start: expected one of '")
    assert "None" not in line
    line = said(kind, ["--k", "foo"], monkeypatch, capsys)
    assert line.startswith("a.py: error: --k: expected INT|{exact}, got 'foo'")


def test_an_option_may_have_another_name_than_its_setting(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["a.py", "--class", "dog"])
    assert options.read(kind_of("voc_localization")).kind == "dog"


def test_errors_name_the_option_as_it_is_written(monkeypatch):
    @dataclass
    class Config:
        max_epochs: int = 1

    def recipe():
        config = options.read(Config)
        raise ValueError(f"max_epochs: expected at least 1, got {config.max_epochs}")

    monkeypatch.setattr("sys.argv", ["recipe.py", "--max-epochs", "0"])
    with pytest.raises(SystemExit, match=r"^error: --max-epochs: expected"):
        terminal.run(recipe)


@pytest.mark.parametrize("written", [["--data", "my.npz"], ["--data=my.npz"]])
def test_an_error_about_a_file_names_its_option(written, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["a.py", "--seeds", "2", *written])
    shortest_path = importlib.import_module("shortest_path")
    message = "--data my.npz: expected to open it, got No such file or directory"
    with pytest.raises(SystemExit, match=f"^error: {message}$"):
        shortest_path.command_line()
    (tmp_path / "my.npz").write_text("no arrays")
    with pytest.raises(SystemExit, match=r"^error: --data my\.npz: expected arrays"):
        shortest_path.command_line()
