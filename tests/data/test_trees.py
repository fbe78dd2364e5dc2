"""Bracketed trees and their spans, and files of nested entities."""

import dataclasses

import pytest

from parsing import phrase_grammar
from smoothsp.data import ConstituencyTree, read_trees, trees
from smoothsp.data.columns import DEFAULT_LAYOUT, read, read_levels

TEXT = """
( (S
    (NP-SBJ=1 (NNP Ada) )
    (VP (VBD said)
      (SBAR (-NONE- 0)
        (S (NP-SBJ (-NONE- *)) (VP (TO to) (VP (VB go) ))))
      (PRT (RP on)))
    (. .) ))
((X (NN yes)))  ( (NN no) )
"""
SAID = ConstituencyTree(
    ["Ada", "said", "to", "go", "on", "."],
    [
        ("S", 0, 5),
        ("NP", 0, 0),
        ("VP", 1, 4),
        ("SBAR+S+VP", 2, 3),
        ("VP", 3, 3),
        ("PRT", 4, 4),
    ],
    ["NNP", "VBD", "TO", "VB", "RP", "."],
)


def test_trees_are_read_without_traces_and_functions():
    first, second, third = trees.parse(TEXT.encode(), "x")
    assert first == SAID
    assert second == ConstituencyTree(["yes"], [("X", 0, 0)], ["NN"])
    assert third == ConstituencyTree(["no"], [("TOP", 0, 0)], ["NN"])


def test_a_tree_is_written_and_comes_back():
    line = trees.to_brackets(SAID)
    assert line == (
        "( (S (NP (NNP Ada)) (VP (VBD said) (SBAR (S (VP (TO to) (VP (VB go)))))"
        " (PRT (RP on))) (. .)) )"
    )
    train, dev = phrase_grammar.make(train=50, dev=20)
    assert (
        (train, dev)
        == phrase_grammar.make(train=50, dev=20)
        != phrase_grammar.make(2, 50, 20)
    )
    for tree in [SAID, *train]:
        assert trees.parse(trees.to_brackets(tree).encode(), "x") == [tree]


def test_the_last_files_are_held_out(tmp_path):
    for name in ("b.mrg", "a.mrg", "c.mrg", "README.md"):
        (tmp_path / name).write_text(f"( (X (NN {name}) ) )")
    train, dev = trees.read_folder(tmp_path, 1)
    assert [tree.words for tree in train + dev] == [["a.mrg"], ["b.mrg"], ["c.mrg"]]
    assert len(dev) == 1
    with pytest.raises(
        ValueError, match=r"more than 3 files .* got 3\. Hold out fewer"
    ):
        trees.read_folder(tmp_path, 3)
    with pytest.raises(FileNotFoundError, match=r"expected a folder .* got nothing"):
        trees.read_folder(tmp_path / "nowhere", 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"x: expected at least one tree, got none\. Is this the right file"),
        (
            b"\n word",
            r"x, line 2: expected a tree that begins with \(, got 'word'\. Is",
        ),
        (
            b"( (S\n(NP (NN a)",
            r"x, line 2: expected a \) to this \(, .*\. Was it copied",
        ),
        (b"\n( (S (NN a) b) )", r"x, line 2: expected \(LABEL .* in this tree"),
        (b"( (S (NN)) )", r"x, line 1: expected \(LABEL .* in this tree"),
        (b"( (NN \xc3\xa9) )\n( (NN \xe9) )", r"x, line 2: expected UTF-8, got the"),
        (b"(" * 3000, "x, line 1: expected trees of at most 400 nested brackets"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(content, message):
    with pytest.raises(ValueError, match=message) as caught:
        trees.parse(content, "x")
    assert "\n" not in str(caught.value)


def test_sentences_to_parse_come_from_text_or_trees(tmp_path):
    (tmp_path / "trees").write_text(TEXT)
    (tmp_path / "text").write_text("a b\n\nc\n")
    assert trees.read_sentences(tmp_path / "trees", pytest.fail) == [
        SAID.words,
        ["yes"],
        ["no"],
    ]
    assert trees.read_sentences(tmp_path / "text", pytest.fail) == ["a b", "c"]
    with pytest.raises(
        FileNotFoundError, match="expected a file of sentences, got a folder"
    ):
        trees.read_sentences(tmp_path, pytest.fail)
    # editors of Windows put a mark before the first word
    for name in ("trees", "text"):
        known = trees.read_sentences(tmp_path / name, pytest.fail)
        marked = b"\xef\xbb\xbf" + (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(marked)
        assert trees.read_sentences(tmp_path / name, pytest.fail) == known


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("( he left )", "( he left )"),
        ("(he left) .", "(he left) ."),
        ("( he ( who slept ) left )", "( he ( who slept ) left )"),
        ("(", ["("]),
        ("(UH Yes)", ["Yes"]),
        ("( (UH Yes) )", ["Yes"]),
        ("(TOP\n (S (PRP he) (VBD left)))", ["he", "left"]),
        ("\n(s(prp he))", ["he"]),
    ],
)
def test_a_sentence_may_begin_with_a_bracket(text, words, tmp_path):
    (tmp_path / "text").write_text(text)
    assert trees.read_sentences(tmp_path / "text", pytest.fail) == [words]


def test_trees_may_be_as_deep_as_sentences_are_long():
    content = b"(A" * 399 + b"(NN a)" + b")" * 399
    (tree,) = trees.parse(content, "x")
    assert tree.words == ["a"]


# as GermEval has it, with a source in a comment
GERMEVAL = """\
#\thttp://example.org [2014]
1\tFreunde\tB-ORG\tO
2\tder\tI-ORG\tO
3\tStadt\tI-ORG\tO
4\tKöln\tI-ORG\tB-LOC
5\tin\tO\tO
6\tBonn\tB-LOC\tO

1\tKöln\tB-ORG\tB-LOC
2\tspielt\tO\tO

"""
ORG, KOELN, BONN = ("ORG", 0, 3), ("LOC", 3, 3), ("LOC", 5, 5)


@pytest.fixture
def germeval(tmp_path):
    (tmp_path / "x.tsv").write_text(GERMEVAL)
    return tmp_path / "x.tsv"


def test_two_columns_are_two_levels(germeval):
    first, second = read_trees(germeval)
    assert first.words == ["Freunde", "der", "Stadt", "Köln", "in", "Bonn"]
    assert first.spans[0] == ("TOP", 0, 5)
    assert dict(map(reversed, trees.levels(first))) == {ORG: 1, KOELN: 2, BONN: 1}
    # of two over the same words, the one of the first column is the outer
    assert second.spans == [("TOP", 0, 1), ("ORG+LOC", 0, 0)]
    assert trees.levels(second) == [(1, ("ORG", 0, 0)), (2, ("LOC", 0, 0))]
    written = "".join(trees.to_level_columns(tree, 2) for tree in (first, second))
    assert written == GERMEVAL.partition("\n")[2]


def test_columns_are_named_or_found(germeval, tmp_path, capsys):
    files = read_levels(germeval)
    for file, column in zip(files, ("outer", "inner"), strict=True):
        assert file == read(
            germeval, dataclasses.replace(DEFAULT_LAYOUT, column=column)
        )
    assert "tags from column 3" in capsys.readouterr().err
    assert read_trees(germeval, columns=("inner", "outer"))[1].spans[1] == (
        "LOC+ORG",
        0,
        0,
    )
    (tmp_path / "flat.txt").write_text("Ada B-PER\nmet O\n\n")
    with pytest.raises(ValueError, match=r"expected 2 columns .* got 1\..*columns"):
        read_trees(tmp_path / "flat.txt")
    # any number of levels, parted by blanks
    (tmp_path / "three.txt").write_text("a B-X B-Y B-Z\nb I-X I-Y O\nc I-X O O\n\n")
    (tree,) = read_trees(tmp_path / "three.txt")
    assert [level for level, _ in trees.levels(tree)] == [1, 2, 3]


def test_a_sentence_that_is_bad_at_one_level_is_left_out_of_all(tmp_path, capsys):
    good = ("a B-X B-Y\nb I-X O\n\n", "e O O\nf B-X B-Z\n\n")
    path = tmp_path / "x.txt"
    path.write_text(f"{good[0]}c B-X O\nd O nothing\n\n{good[1]}")
    with pytest.raises(ValueError, match=r"line 5: expected a tag .* got 'nothing'"):
        read_trees(path)
    found = read_trees(path, skip_bad=True)
    assert "left out 1 of 3 sentences" in capsys.readouterr().err
    path.write_text("".join(good))
    assert found == read_trees(path)
