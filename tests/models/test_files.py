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
