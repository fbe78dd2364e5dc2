"""A folder has one run at a time, is free again however that ends, and is tried first.

All recipes are asked, each by its main().
"""

import contextlib
import errno
import fcntl
import importlib
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from smoothsp import run_folder
from tests.programs import run

RECIPES = (
    "conll_linear",
    "conll_ner",
    "lightning_ner",
    "multiclass_svm",
    "ocr_words",
    "voc_localization",
)
SAVING = (
    "conll_ner",
    "constituency",
    "ud_parser",
    "voc_localization",
)


def begin(name, out, **options):
    """Train with a recipe; what it would do first fails, if it comes to that."""
    if name == "lightning_ner":
        pytest.importorskip("pytorch_lightning")
    recipe = importlib.import_module(name)
    recipe.main(recipe.Config(out=out, **options))


@contextlib.contextmanager
def another_process(folder):
    """A process that holds the folder, until it is killed; its number."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        with run_folder.held(folder):
            os.write(writing, b"held")
            signal.pause()
    os.read(reading, 4)
    try:
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize("name", RECIPES)
def test_a_second_run_is_refused_until_the_first_is_killed(name, tmp_path, monkeypatch):
    with another_process(tmp_path) as number:
        # what was begun by the run that holds it
        part = tmp_path / ".metrics.json.0123abcd.part"
        part.write_bytes(b"half")
        message = f"out: .*no other run uses, got {tmp_path}, used by process {number} "
        with pytest.raises(ValueError, match=message):
            begin(name, tmp_path)
        assert part.exists()
    monkeypatch.setattr(run_folder, "_tidy", lambda folder: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        begin(name, tmp_path)


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("file", "File exists"),
        ("file/below", "Not a directory"),
        ("/proc/nowhere/run", "No such file or directory"),
    ],
)
def test_a_folder_that_cannot_be_is_noticed_first(name, place, why, tmp_path):
    (tmp_path / "file").write_text("a file")
    out = tmp_path / place
    message = f"out: expected a folder to write to, got {out}: {why}. Give another"
    with pytest.raises(OSError, match=message):
        begin(name, out)


def test_a_disk_without_room_is_noticed_first(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(run_folder, "_tidy", full)
    with (
        pytest.raises(OSError, match=r"expected a folder to write to.*No space left"),
        run_folder.held(tmp_path),
    ):
        raise AssertionError


def test_what_killed_runs_left_unfinished_is_removed(tmp_path):
    left = [".checkpoint.pt.0123abcd.part", "curves/.sgd.csv.89abcdef.part"]
    kept = ["checkpoint.ckpt", ".own.part", "notes.0123abcd.part"]
    (tmp_path / "curves").mkdir()
    for name in left + kept:
        (tmp_path / name).write_bytes(b"half")
    with run_folder.held(tmp_path):
        assert not any((tmp_path / name).exists() for name in left)
    assert all((tmp_path / name).exists() for name in kept)
    # and again after it was let go of
    with run_folder.held(tmp_path):
        pass


def test_what_a_failed_run_wrote_stays(tmp_path):
    (tmp_path / "made").mkdir()
    out = tmp_path / "made" / "a" / "b"
    with pytest.raises(ZeroDivisionError), run_folder.held(out):
        (out / "checkpoint.pt").write_bytes(b"whole")
        raise ZeroDivisionError
    assert (out / "checkpoint.pt").read_bytes() == b"whole"
    other = out.with_name("c")
    with pytest.raises(ZeroDivisionError), run_folder.held(other):
        raise ZeroDivisionError
    assert out.is_dir() and not other.exists()


def test_where_no_lock_can_be_had_a_run_goes_on_with_a_warning(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.warns(match="no lock here"), run_folder.held(tmp_path):
        pass


def test_processes_of_one_run_share_its_folder(tmp_path, monkeypatch):
    with run_folder.held(tmp_path):
        monkeypatch.setenv("LOCAL_RANK", "1")
        with run_folder.held(tmp_path):
            pass
        monkeypatch.setenv("LOCAL_RANK", "0")
        with (
            pytest.raises(ValueError, match="no other run uses"),
            run_folder.held(Path(tmp_path)),
        ):
            raise AssertionError


@pytest.mark.filterwarnings("ignore")
def test_a_second_lightning_run_replaces_the_first(tiny, tmp_path):
    pytest.importorskip("pytorch_lightning")
    lightning_ner = importlib.import_module("lightning_ner")
    config = lightning_ner.Config(data=tiny, epochs=1, out=tmp_path)
    resumed = replace(config, resume=True)
    for overwrite in (False, True):
        lightning_ner.main(replace(config, overwrite=overwrite))
    with pytest.raises(ValueError, match=r"^out: expected a folder without a run"):
        lightning_ner.main(config)
    assert [path.name for path in tmp_path.glob("last*")] == ["last.ckpt"]
    (tmp_path / "last.ckpt").write_bytes(b"PK no checkpoint")
    with pytest.raises(ValueError, match=r"last.ckpt: expected the checkpoint"):
        lightning_ner.main(resumed)
    (tmp_path / "last.ckpt").unlink()
    with pytest.raises(FileNotFoundError, match=r"last.ckpt"):
        lightning_ner.main(resumed)


@pytest.mark.parametrize("name", SAVING)
def test_a_run_is_replaced_only_if_that_is_said(name, tmp_path):
    recipe = importlib.import_module(name)
    config = recipe.Config(out=tmp_path)
    (tmp_path / "model").mkdir()
    with pytest.raises(ValueError, match=r"got .*, which has model\. Continue "):
        recipe.main(config)
    (tmp_path / "model").rmdir()
    config.checkpoint.touch()
    with pytest.raises(ValueError, match=r"^out: expected a folder without a run, got"):
        recipe.main(config)
    config = recipe.Config(out=tmp_path, resume=True, overwrite=True)
    with pytest.raises(ValueError, match="expected resume or overwrite, got both"):
        recipe.main(config)
    config.checkpoint.unlink()


@pytest.mark.parametrize("name", SAVING)
def test_a_file_in_the_place_of_the_model_is_told_before_training(
    name, tmp_path, monkeypatch
):
    (tmp_path / "model").write_text("mine")
    recipe = importlib.import_module(name)
    # what comes next
    monkeypatch.setattr(run_folder, "_tidy", lambda folder: 1 / 0)
    message = f"out: expected a folder for the model, or nothing, at {tmp_path}/model"
    with pytest.raises(ValueError, match=message):
        recipe.main(recipe.Config(out=tmp_path, overwrite=True))
    assert (tmp_path / "model").read_text() == "mine"


@pytest.mark.skipif(not shutil.which("make"), reason="needs make")
def test_make_ner_works_each_time_and_leaves_runs_of_others_alone():
    root = Path(__file__).parents[3]
    for given, expected in ((), ["--overwrite"]), (("ARGS=--data X",), ["--data", "X"]):
        # without the arguments of the make that runs the tests
        clean = "env", "-u", "MAKEFLAGS", "-u", "MAKEOVERRIDES", "-u", "ARGS"
        make = (*clean, "make", "-C", root, "-n", "VENV=none", "ner", *given)
        printed = run(*make).stdout
        [line] = [x for x in printed.splitlines() if "conll_ner.py" in x]
        assert line.split()[2:] == expected
