"""Files of taggers and templates: written whole, and what is wrong with one is said."""

import io
import json
import os
import pickle
import re
import zipfile

import numpy as np
import pytest

from smoothsp.linear import ChainSVM
from smoothsp.linear.features import Templates, whole_files

X = [[{"a": 1.0}, {"b": 2.0, "c": 1.0}], [{"c": 1.0}]]
Y = [["P", "Q"], ["R"]]
WORDS = [["the", "cat"], ["a", "cat", "sat"]]


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """The bytes of a tagger's file."""
    path = tmp_path_factory.mktemp("stored") / "tagger.npz"
    ChainSVM(C=1.0, max_passes=200, tol=0.1).fit(X, Y).save(path)
    return path.read_bytes()


@pytest.fixture
def edited(stored, tmp_path):
    """Write the file with other arrays, or with other entries of its JSON."""

    def edit(arrays=(), **changes):
        with np.load(io.BytesIO(stored)) as file:
            parts = {name: file[name] for name in file.files} | dict(arrays)
        content = json.loads(parts["json"].tobytes())
        for group, change in changes.items():
            content[group] |= change
            content[group] = {k: v for k, v in content[group].items() if v is not ...}
        text = json.dumps(content).encode()
        parts["json"] = np.frombuffer(text, dtype=np.uint8)
        path = tmp_path / "edited.npz"
        np.savez(path, **{k: v for k, v in parts.items() if v is not ...})
        return path

    return edit


def test_an_unedited_file_loads(edited):
    tagger = ChainSVM.load(edited())
    assert [list(tags) for tags in tagger.predict(X)] == Y


@pytest.mark.parametrize(
    ("arrays", "changes", "message"),
    [
        ({"weights": ...}, {}, "save wrote, got one without weights"),
        ({"classes": ...}, {}, "got one without classes"),
        ({}, {"facts": {"gap_": ..., "status_": ...}}, "without gap_, status_"),
        ({}, {"parameters": {"colour": 1}}, "of another version: .*'colour'"),
        ({"weights": np.zeros(5)}, {}, r"weights \(5,\) for 3 features and 3 classes"),
        ({"classes": np.array(["P", "Q"])}, {}, "for 3 features and 2 classes"),
        ({"classes": np.array([], dtype="U1")}, {}, r"classes <U1 of shape \(0,\)"),
        ({"classes": np.array([["P", "Q"]])}, {}, r"classes <U1 of shape \(1, 2\)"),
        ({"classes": np.array([0.5, 1.5])}, {}, "classes float64 of shape"),
        ({"classes": np.array(["Q", "P", "Q"])}, {}, "classes that do not rise"),
        ({"classes": np.array(["P", None])}, {}, "is .2,. object"),
        ({"weights": np.zeros(21, complex)}, {}, "weights of complex128"),
        ({"weights": np.zeros(21, "M8[D]")}, {}, "weights of datetime64"),
        ({"weights": np.full(21, np.nan)}, {}, "NaN or infinity in 21 of 21 weights"),
        ({}, {"facts": {"n_features_in_": 10**12}}, "1000000000000 features for"),
        ({}, {"facts": {"n_features_in_": 3.0}}, "3.0 features for"),
        ({}, {"facts": {"n_features_in_": 7}}, "for 7 features and 3 classes"),
        ({}, {"facts": {"feature_names_": ["a", "b"]}}, "2 names of 3 features"),
        (
            {},
            {"facts": {"feature_names_": ["a", "b", 3]}},
            "names that are not strings",
        ),
    ],
)
def test_what_was_edited_is_named(arrays, changes, message, edited):
    path = edited(arrays, **changes)
    with pytest.raises(ValueError, match=f"{path}: expected .*{message}"):
        ChainSVM.load(path)


def test_other_files_are_named(edited, tmp_path):
    path = tmp_path / "other"
    path.write_bytes(pickle.dumps({"weights": 1}))
    with pytest.raises(ValueError, match="save wrote, got BadZipFile: File is not a z"):
        ChainSVM.load(path)
    # compressed, a few bytes may stand for any number of them
    with np.load(edited()) as file:
        np.savez_compressed(tmp_path / "small.npz", **file)
    with pytest.raises(ValueError, match=r"save wrote, got .* is compressed"):
        ChainSVM.load(tmp_path / "small.npz")
    # and so may a header
    content = edited().read_bytes()
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    header = io.BytesIO()
    about = {"descr": "<f8", "fortran_order": False, "shape": (10**14,)}
    np.lib.format.write_array_header_1_0(header, about)
    parts["weights.npy"] = header.getvalue() + bytes(168)
    with zipfile.ZipFile(path, "w") as file:
        for name, part in parts.items():
            file.writestr(name, part)
    with pytest.raises(ValueError, match=r"of 168 bytes is \(10+,\) float64"):
        ChainSVM.load(path)


def test_damage_at_any_place_is_noticed(stored, tmp_path):
    path = tmp_path / "tagger.npz"
    for place in range(0, len(stored), 71):
        path.write_bytes(stored[:place])
        with pytest.raises(ValueError, match=r"expected a file that ChainSVM.save wro"):
            ChainSVM.load(path)
        flipped = bytearray(stored)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        # some bytes, such as those of a date, mean nothing
        try:
            found = ChainSVM.load(path)
        except ValueError as error:
            assert re.match(f"{path}: expected a file that", str(error))
        else:
            assert [list(tags) for tags in found.predict(X)] == Y


@pytest.mark.parametrize("numbers", [int, np.int64, np.bool_])
def test_weights_of_classes_that_are_numbers_are_those_of_a_refit(tmp_path, numbers):
    y = [[numbers(0), numbers(1)], [numbers(1)]]
    weights = {numbers(0): np.float64(2.0), numbers(1): 1.0}
    tagger = ChainSVM(C=1.0, max_passes=200, tol=0.1, class_weight=weights).fit(X, y)
    tagger.save(tmp_path / "tagger.npz")
    found = ChainSVM.load(tmp_path / "tagger.npz")
    assert found.class_weight == tagger.class_weight
    again = found.fit(X, y)
    assert np.array_equal(again.weights_, tagger.weights_)


# --- templates ---


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"dictionary": ...}, "got one without dictionary"),
        ({"columns": ..., "dtype": ...}, "got one without columns, dtype"),
        ({"templates": ["none(word)"]}, "fit together, .*none"),
        ({"dtype": "colour"}, "fit together"),
        ({"values": [["the", "cat", "a"]]}, "word.* out of range or not asc"),
        (
            {"values": [["the", "cat", "a", "a"]]},
            "values of word that are not distinct",
        ),
        ({"levels": [[[0, 9]], [[0]]]}, r"keys of word\[0\] out of range"),
        ({"levels": [[[1, 0]], [[0]]]}, r"keys of word\[0\] out of range or not asc"),
    ],
)
def test_templates_that_were_edited_say_so(edit, message, tmp_path):
    path = tmp_path / "templates.json"
    templates = Templates(["word", "word[1]"])
    templates.fit(WORDS)
    templates.save(path)
    content = json.loads(path.read_text())
    assert Templates.load(path).names() == templates.names()
    of = content["dictionary"] if edit.keys() & {"values", "levels"} else content
    of |= edit
    path.write_text(json.dumps({k: v for k, v in content.items() if v is not ...}))
    with pytest.raises(ValueError, match=f"{path}: expected .*{message}"):
        Templates.load(path)


# --- writing ---


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_several_processes_may_write_a_file_that_others_read(tmp_path):
    path = tmp_path / "file"
    contents = [bytes([number]) * 200_000 for number in (1, 2)]
    whole_files.write(path, contents[0])
    children = []
    for content in contents:
        child = os.fork()
        if not child:
            status = 1
            try:
                for _ in range(100):
                    whole_files.write(path, content)
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    for _ in range(100):
        assert path.read_bytes() in contents
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_too_large_for_the_disk_is_named_and_the_old_one_stays(tmp_path):
    resource = pytest.importorskip("resource")
    path = tmp_path / "file"
    whole_files.write(path, b"old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        with pytest.raises(OSError, match=f"{path}: expected to write 30,000 bytes, g"):
            whole_files.write(path, bytes(30_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileNotFoundError, match="none/file: expected to write 1 bytes"):
        whole_files.write(tmp_path / "none" / "file", b"x")
