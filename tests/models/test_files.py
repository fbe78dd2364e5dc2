"""The files of a model: what a folder holds when something comes between."""

import re

import pytest

from smoothsp.models import files

OLD, NEW = {"a": b"old a", "b": b"old b"}, {"a": b"new a", "b": b"new b"}


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "model"
    files.write(place, {"kind": "old"}, OLD)
    return place


def test_a_save_that_fails_after_its_switch_says_that_the_model_is_there(folder):
    (folder / "b").unlink()
    (folder / "b").mkdir()
    message = re.escape(f"got Is a directory at {folder / 'b'}. The new model is saved")
    with pytest.raises(OSError, match=message):
        files.write(folder, {"kind": "new"}, NEW)
    assert files.read(folder) == ({"kind": "new"}, NEW)
    (folder / "b").rmdir()
    files.write(folder, {"kind": "old"}, OLD)
    assert files.read(folder) == ({"kind": "old"}, OLD)
    assert sorted(path.name for path in folder.iterdir()) == ["a", "b", "config.json"]


@pytest.mark.parametrize("moment", ["config.json", "a"])
def test_a_folder_can_be_read_while_it_is_saved(moment, folder, monkeypatch):
    read_bytes, seen = files.Path.read_bytes, []

    def interrupted(path):
        content = read_bytes(path)
        if path.name == moment and not seen:
            seen.append(path)
            files.write(folder, {"kind": "new"}, NEW)
        return content

    monkeypatch.setattr(files.Path, "read_bytes", interrupted)
    assert files.read(folder) == ({"kind": "new"}, NEW)


def test_files_may_take_their_places_while_a_folder_is_read(folder, monkeypatch):
    finish = files._finish
    monkeypatch.setattr(files, "_finish", lambda folder: None)
    files.write(folder, {"kind": "new"}, NEW)
    read_bytes = files.Path.read_bytes

    def interrupted(path):
        content = read_bytes(path)
        if path.name == "a":
            monkeypatch.setattr(files.Path, "read_bytes", read_bytes)
            finish(folder)
        return content

    monkeypatch.setattr(files.Path, "read_bytes", interrupted)
    assert files.read(folder) == ({"kind": "new"}, NEW)
