"""Bracketed trees, their spans, and the score of EVALB."""

import pytest
import torch

from parsing import brackets, phrases, spans
from smoothsp.data import ConstituencyTree, trees
from smoothsp.oracles import SpanTree

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
    line = trees.text(SAID)
    assert line == (
        "( (S (NP (NNP Ada)) (VP (VBD said) (SBAR (S (VP (TO to) (VP (VB go)))))"
        " (PRT (RP on))) (. .)) )"
    )
    train, dev = phrases.make(train=50, dev=20)
    assert (train, dev) == phrases.make(train=50, dev=20) != phrases.make(2, 50, 20)
    for tree in [SAID, *train]:
        assert trees.parse(trees.text(tree).encode(), "x") == [tree]


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
        (b"(" * 3000, "x, line 1: expected trees of at most 400 brackets within"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(content, message):
    with pytest.raises(ValueError, match=message) as caught:
        trees.parse(content, "x")
    assert "\n" not in str(caught.value)


def test_sentences_to_parse_come_from_text_or_trees(tmp_path):
    (tmp_path / "trees").write_text(TEXT)
    (tmp_path / "text").write_text("a b\n\nc\n")
    assert trees.read_words(tmp_path / "trees", pytest.fail) == [
        SAID.words,
        ["yes"],
        ["no"],
    ]
    assert trees.read_words(tmp_path / "text", pytest.fail) == ["a b", "c"]
    with pytest.raises(
        FileNotFoundError, match="expected a file of sentences, got a folder"
    ):
        trees.read_words(tmp_path, pytest.fail)
    # editors of Windows put a mark before the first word
    for name in ("trees", "text"):
        known = trees.read_words(tmp_path / name, pytest.fail)
        marked = b"\xef\xbb\xbf" + (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(marked)
        assert trees.read_words(tmp_path / name, pytest.fail) == known


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("( he left )", "( he left )"),
        ("(he left) .", "(he left) ."),
        ("( he ( who slept ) left )", "( he ( who slept ) left )"),
        ("(", "("),
        ("(UH Yes)", ["Yes"]),
        ("( (UH Yes) )", ["Yes"]),
        ("(TOP\n (S (PRP he) (VBD left)))", ["he", "left"]),
        ("\n(s(prp he))", ["he"]),
    ],
)
def test_a_sentence_may_begin_with_a_bracket(text, words, tmp_path):
    (tmp_path / "text").write_text(text)
    assert trees.read_words(tmp_path / "text", pytest.fail) == [words]


def test_trees_may_be_as_deep_as_sentences_are_long():
    content = b"(A" * 399 + b"(NN a)" + b")" * 399
    (tree,) = trees.parse(content, "x")
    assert tree.words == ["a"]


def test_f1_by_hand():
    # 8 constituents count: S, NP, VP, SBAR, S, VP, VP, PRT, and 6 of the 7 are right
    found = ConstituencyTree(
        SAID.words,
        [
            # the full stop takes up no place: right, and so is what PRT is called
            ("S", 0, 4),
            ("NP", 0, 0),
            ("VP", 1, 5),
            ("S+VP", 2, 3),
            ("ADVP", 4, 4),
            ("NP", 2, 2),
            ("TOP", 0, 5),
        ],
    )
    score = brackets.f1([SAID], [found])
    assert score == {"f1": 12 / 15, "precision": 6 / 7, "recall": 6 / 8, "exact": 0.0}
    assert brackets.f1([SAID, found], [SAID, found])["exact"] == 1.0
    # a constituent found twice is right once
    twice = ConstituencyTree(["a"], [("NP+NP", 0, 0)], ["NN"])
    once = ConstituencyTree(["a"], [("NP", 0, 0)], ["NN"])
    assert brackets.f1([once], [twice])["precision"] == 0.5


def test_a_target_is_a_tree_of_the_structure_with_all_its_constituents():
    train, _ = phrases.make(train=40, dev=1)
    labels = sorted({label for tree in [SAID, *train] for label, _, _ in tree.spans})
    number = {label: n for n, label in enumerate(labels, start=1)}
    for tree in [SAID, *train]:
        y, n = spans.target(tree, number), len(tree.words)
        potentials = torch.zeros(1, n, n, len(labels) + 1)
        for label, i, j in tree.spans:
            potentials[0, i, j, number[label]] = 1.0
            assert y[i, j] == number[label]
        structure = SpanTree(potentials)
        # no tree has more of them, and this one is a tree
        assert structure.score(y[None]) == structure.decode()[0] == len(tree.spans)


def test_right_branching_by_hand():
    (found,) = brackets.right_branching([SAID], "S", "VP")
    assert found.spans == [("S", 0, 5), *(("VP", i, 5) for i in range(1, 5))]
    one = ConstituencyTree(["a"], [("NP", 0, 0)], ["NN"])
    assert brackets.right_branching([one], "S", "VP")[0].spans == [("S", 0, 0)]
