"""Tagged sentences and trees of any file, and imports that stay light."""

import sys

import pytest

from smoothsp.data import (
    read_boxes,
    read_dependencies,
    read_masks,
    read_spans,
    read_splits,
    read_tagged,
    read_trees,
)
from tests import programs

COLUMNS = "Orla B-PER\nleft O\n\nso ?\n"


def test_columns_and_json_lines_are_read(tmp_path, capsys):
    path = tmp_path / "a.txt"
    path.write_text(COLUMNS)
    first, second = read_tagged(path, unknown="?")
    assert (first.words, first.tags) == (["Orla", "left"], ["B-PER", "O"])
    assert second.tags == [None]
    assert "a.txt: read as columns" in capsys.readouterr().err
    path.write_text('{"tokens": ["Orla"], "ner_tags": ["B-PER"], "text": "Orla"}\n')
    assert read_tagged(path)[0].tags == ["B-PER"]
    with pytest.raises(
        ValueError, match=r"a\.txt: column: expected|column: expected a"
    ):
        path.write_text(COLUMNS)
        read_tagged(path, column="x")
    with pytest.raises(ValueError, match="encoding: expected an encoding of Python"):
        read_tagged(path, encoding="x")


def test_columns_may_be_numbers(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("1 Orla N B-PER\n2 left V O\n")
    assert read_tagged(path, column=3, word_column=2)[0].tags == ["N", "V"]
    assert read_tagged(path, column=-1)[0].tags == ["B-PER", "O"]
    for option in ("column", "word_column"):
        with pytest.raises(TypeError, match=f"^{option}: expected the number of a col"):
            read_tagged(path, **{option: True})
    path.write_text("a B-X O\nb I-X B-Y\n")
    assert read_trees(path, columns=[2, 3])[0].spans == [("TOP+X", 0, 1), ("Y", 1, 1)]


@pytest.mark.parametrize(
    ("read", "argument"),
    [
        (read_tagged, "path"),
        (read_trees, "path"),
        (read_dependencies, "path"),
        (read_spans, "path"),
        (read_boxes, "path"),
        (read_masks, "folder"),
        (read_splits, "folder"),
    ],
)
@pytest.mark.parametrize("given", [3, None, b"a"])
def test_what_is_no_path_is_refused(read, argument, given):
    with pytest.raises(TypeError, match=f"^{argument}: expected a path, got"):
        read(given)


def test_null_in_json_is_an_unknown_tag(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"words": ["a", "b"], "tags": [null, "B-X"]}\n{"words": ["c"], "tags": null}\n'
    )
    assert [one.tags for one in read_tagged(path)] == [[None, "B-X"], [None]]


def test_parts_of_a_folder_are_found(tmp_path):
    for name in ("train", "valid", "test"):
        (tmp_path / f"{name}.txt").write_text("Orla B-PER\n")
    (tmp_path / "train.txt").write_text(COLUMNS)
    found = read_splits(tmp_path, unknown="?")
    assert tuple(map(len, found)) == (2, 1, 1)
    (tmp_path / "test.txt").unlink()
    assert read_splits(tmp_path, unknown="?").test == []


@pytest.mark.parametrize(
    ("content", "spans"),
    [
        ("( (S (NP (NN a)) (VB b)) )\n", [("S", 0, 1), ("NP", 0, 0)]),
        ("(S\n (NP (NN a)) (VB b))\n", [("S", 0, 1), ("NP", 0, 0)]),
        ("1\ta\tB-X\tB-Y\n2\tb\tI-X\tO\n", [("TOP+X", 0, 1), ("Y", 0, 0)]),
        ("a B-X O\n( I-X O\n) O B-Y\n", [("TOP", 0, 2), ("X", 0, 1), ("Y", 2, 2)]),
        ("(\tB-X\tO\n)\tI-X\tB-Y\n", [("TOP+X", 0, 1), ("Y", 1, 1)]),
    ],
)
def test_trees_are_brackets_or_columns(content, spans, tmp_path):
    (tmp_path / "a.txt").write_text(content)
    (tree,) = read_trees(tmp_path / "a.txt")
    assert tree.spans == spans


def test_bad_trees_are_named_with_file_and_line(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("(S (NN a))\n(S (NN a) b)\n")
    with pytest.raises(ValueError, match=r"a\.txt, line 2: expected \(LABEL"):
        read_trees(path)


@pytest.mark.long
def test_readers_of_text_import_nothing_heavy():
    program = (
        "import sys, smoothsp; before = set(sys.modules); import smoothsp.data;"
        "print(*{name.split('.')[0] for name in set(sys.modules) - before})"
    )
    loaded = set(programs.run(sys.executable, "-c", program).stdout.split())
    assert not loaded & {"PIL", "nltk", "torchvision", "datasets", "pytorch_lightning"}
