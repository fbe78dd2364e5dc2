"""The files of a model: what a folder holds when something comes between."""

import hashlib
import json
import os
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
    read_bytes, seen = files._read_bytes, []

    def interrupted(path, *checksum):
        content = read_bytes(path, *checksum)
        if path.name == moment and not seen:
            seen.append(path)
            files.write(folder, {"kind": "new"}, NEW)
        return content

    monkeypatch.setattr(files, "_read_bytes", interrupted)
    assert files.read(folder) == ({"kind": "new"}, NEW)


def test_files_may_take_their_places_while_a_folder_is_read(folder, monkeypatch):
    finish = files._commit_new_files
    monkeypatch.setattr(files, "_commit_new_files", lambda folder: None)
    files.write(folder, {"kind": "new"}, NEW)
    read_bytes = files._read_bytes

    def interrupted(path, *checksum):
        content = read_bytes(path, *checksum)
        if path.name == "a":
            monkeypatch.setattr(files, "_read_bytes", read_bytes)
            finish(folder)
        return content

    monkeypatch.setattr(files, "_read_bytes", interrupted)
    assert files.read(folder) == ({"kind": "new"}, NEW)


HOSTILE = {
    "long": "x" * 5_000,
    "longer than a save can write": "x" * 240,
    "empty": "",
    "above": "../a",
    "absolute": "/etc/passwd",
    "here": ".",
    "NUL": "a\0b",
    "half of a pair": "\ud800",
    "backslash": "..\\a",
    "itself": "config.json",
}


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_names_that_no_file_has_are_refused_and_the_folder_can_be_saved_to(
    name, folder
):
    (folder / "config.json").write_text(json.dumps({"files": {name: "0"}}))
    with pytest.raises(ValueError, match=r"config.json: expected names of files as ke"):
        files.read(folder)
    files.write(folder, {"kind": "new"}, NEW)
    assert files.read(folder) == ({"kind": "new"}, NEW)


@pytest.mark.parametrize("kind", ["folder", "pipe", "link to a device"])
@pytest.mark.parametrize("name", ["a", "config.json"])
def test_what_is_no_file_is_never_read(name, kind, folder):
    place = folder / name
    place.unlink()
    if kind == "folder":
        place.mkdir()
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to("/dev/zero")
    with pytest.raises((FileNotFoundError, ValueError), match=r"expected .*, got "):
        files.read(folder)
    if kind == "folder":
        with pytest.raises(OSError, match="Is a directory"):
            files.write(folder, {"kind": "new"}, NEW)
        place.rmdir()
    files.write(folder, {"kind": "new"}, NEW)
    assert files.read(folder) == ({"kind": "new"}, NEW)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ('{"files": {"a": "0"}, "files": {}}', "the key 'files' twice in an object"),
        ('{"files": {"a": 3}}', "expected the checksums of files"),
        ('{"files": "a"}', "expected the checksums of files"),
        ('{"x": ' * 100_000, "got brackets nested too deep"),
        ('{"x": ' + "9" * 5_000 + "}", "expected JSON, got Exceeds the limit"),
    ],
)
def test_json_that_may_be_read_in_several_ways_is_refused(config, message, folder):
    (folder / "config.json").write_text(config)
    with pytest.raises(ValueError, match=f"config.json: .*{message}"):
        files.read(folder)
    files.write(folder, {"kind": "new"}, NEW)
    assert files.read(folder) == ({"kind": "new"}, NEW)


def test_a_file_of_many_gigabytes_takes_no_memory(folder):
    """It has holes, so that it takes no place either."""
    for name in ("config.json", "vocabulary.json"):
        with (folder / name).open("wb") as file:
            file.truncate(2**40)
    with pytest.raises(ValueError, match=r"config.json: expected JSON of at most 67"):
        files.read(folder)
    files.write(folder, {"kind": "new"}, NEW)
    zeros = hashlib.sha256(bytes(2**20)).hexdigest()
    config = {"files": {"vocabulary.json": zeros}}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"vocabulary.json: expected JSON of at m"):
        files.read(folder)


@pytest.mark.parametrize("place", ["x" * 5_000, "a\0b", "\ud800"])
def test_a_path_that_no_folder_has_is_named(place):
    with pytest.raises(ValueError, match=r"^folder: expected the path of a folder, go"):
        files.check_folder_path(place)
