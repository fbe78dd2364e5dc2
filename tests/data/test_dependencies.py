"""CoNLL-U files, and their trees."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsing import dependency_grammar
from smoothsp.data import DependencyTree, dependencies, read_dependencies
from smoothsp.models.projectivity import crossing_arcs
from tests.data.conllu_files import arcs, row, sentences


@given(st.lists(sentences(), min_size=1, max_size=3))
def test_drawn_trees_are_read_and_written_back(drawn):
    trees = [sentence.tree for sentence in drawn]
    text = "".join(sentence.text for sentence in drawn)
    assert dependencies.to_conllu(trees) == text
    ends_of_windows = "\ufeff" + text.rstrip("\n").replace("\n", "\r\n")
    for content in (text, ends_of_windows, text.replace("\n\n", "\n \n\t\n")):
        assert dependencies.parse(content.encode(), "x") == trees
    for tree, bare in zip(
        trees, dependencies.parse(text.encode(), "x", False), strict=True
    ):
        assert bare == DependencyTree(tree.words, lines=tree.lines)


@given(sentences(), st.data())
def test_another_tree_changes_heads_and_labels_only(sentence, data):
    tree = sentence.tree
    heads, labels = data.draw(arcs(len(tree.words)))
    assert dependencies.replace_tree(tree, tree.heads, tree.labels) == tree
    other = dependencies.replace_tree(tree, heads, labels)
    assert (other.words, other.heads, other.labels) == (tree.words, heads, labels)
    assert dependencies.parse(dependencies.to_conllu([other]).encode(), "x") == [other]
    new_arcs = zip(map(str, heads), labels, strict=True)
    for before, after in zip(tree.lines, other.lines, strict=True):
        fields = before.split("\t")
        if fields[0].isdigit() and (arc := next(new_arcs)) != (*fields[6:8],):
            fields[6:9] = [*arc, "_"]
        assert after == "\t".join(fields)
    # without lines, words are numbered anew
    unwritten = DependencyTree(tree.words, heads, labels)
    (numbered,) = dependencies.parse(dependencies.to_conllu([unwritten]).encode(), "x")
    assert (numbered.words, numbered.heads, numbered.labels) == (
        tree.words,
        heads,
        labels,
    )


def test_sentences_of_a_grammar_come_back_from_a_folder(tmp_path):
    make = dependency_grammar.make
    parts = make(train=60, dev=30)
    assert parts == make(train=60, dev=30) != make(2, 60, 30)
    for name, part in zip(("train", "dev"), parts, strict=True):
        (tmp_path / f"x-{name}.conllu").write_text(dependencies.to_conllu(part))
    files = dependencies.find_treebank(tmp_path)
    assert tuple(map(read_dependencies, files)) == parts
    assert 4 < sum(bool(crossing_arcs(tree.heads)) for tree in parts[0]) < 30


def test_malformed_sentences_are_left_out_and_counted(tmp_path, capsys):
    path = tmp_path / "x.conllu"
    path.write_text(row(1) + "\n" + row(1, 2) + row(2, 1) + "\n" + row(2) + "\n")
    with pytest.raises(ValueError, match=r"x.conllu, line 3: expected heads that"):
        read_dependencies(path)
    assert [tree.words for tree in read_dependencies(path, skip_bad=True)] == [["a"]]
    output = capsys.readouterr().err
    assert "x.conllu, line 6: expected word 1, got '2'" in output
    assert output.count("warning: left out: ") == 2
    path.write_text(row(2))
    with pytest.raises(ValueError, match="at least one sentence, got none"):
        read_dependencies(path, skip_bad=True)


def test_text_without_columns_is_a_sentence_a_line(tmp_path):
    (tmp_path / "text").write_text("The dog  slept .\n\nYes\n")
    texts = dependencies.read_sentences(tmp_path / "text", pytest.fail)
    assert texts == ["The dog  slept .", "Yes"]
    (tmp_path / "bare").write_text(row(1, "_", "_") + row(2, "_", "_"))
    (bare,) = dependencies.read_sentences(tmp_path / "bare", pytest.fail)
    assert (bare.words, bare.heads) == (["a", "a"], [])


# Files that break the rules of lines are in the tests of columns.
FAULTS = [
    ("no sentence", "", ": expected at least one sentence, got none"),
    ("comments alone", "# a\n\n", ", line 1: expected the words of a sentence"),
    ("no head", row(1, "_"), "line 1: .* number of a head in column 7, got '_'"),
    ("a power", row(1, "²"), "line 1: .* number of a head in column 7, got '²'"),
    ("a long head", row(1, "1" * 5000), "line 1: .* number of a head .* '1{60}'$"),
    ("no label", row(1, label="_"), "line 1: expected 'root' in column 8 of a word w"),
    ("a second root", row(1) + row(2, 1), "line 2: expected a label other than 'root'"),
    ("an empty label", row(1) + row(2, 1, ""), "line 2: expected a label .* got ''"),
    ("a head beyond", row(1) + row(2, 3), "line 2: .* a head from 0 to 2, got 3"),
    ("no root", row(1, 2) + row(2, 9), "line 2: expected a head from 0 to 2, got 9"),
    ("a loop", row(1) + row(2, 2), "line 2: expected heads that lead to the root, got"),
    ("a cycle", row(1, 2) + row(2, 1), "line 1: expected heads that lead to the root"),
    ("two roots", row(1) + row(2), "line 2: expected one word with head 0, got 2"),
    ("not UTF-8", b"\xc3\xa9\n\xe9", "line 2: expected UTF-8, got the byte 0xe9"),
]


@pytest.mark.parametrize(("name", "content", "message"), FAULTS)
def test_a_bad_file_is_refused_in_one_line(name, content, message):
    content = content if isinstance(content, bytes) else content.encode()
    with pytest.raises(ValueError, match=rf"^x.*{message}") as caught:
        dependencies.parse(content, "x")
    assert "\n" not in str(caught.value)


def test_wrong_folders_are_refused(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"nowhere: expected a folder .*nothing"
    ):
        dependencies.find_treebank(tmp_path / "nowhere")
    for new, message in (
        (["a-train.conllu"], r"in dev\.conllu, got none"),
        (["a-dev.conllu", "b-dev.conllu"], r"got a-dev\.conllu, b-dev\.conllu"),
    ):
        for name in new:
            (tmp_path / name).write_text(row(1))
        with pytest.raises(FileNotFoundError, match=message):
            dependencies.find_treebank(tmp_path)
    with pytest.raises(FileNotFoundError, match="a file of sentences, got a folder"):
        dependencies.read_sentences(tmp_path, pytest.fail)


def test_the_relation_of_the_root_is_found_or_given(tmp_path, capsys):
    path = tmp_path / "a.conllu"
    for name in ("ROOT", "ROOT:x"):
        path.write_text(row(1, 2, "SB") + row(2, 0, name))
        for root in (None, "ROOT"):
            labels = read_dependencies(path, root=root)[0].labels
            assert labels == ["SB", name.replace("ROOT", "root")]
        assert "ROOT, the relation of the root, read as root" in capsys.readouterr().err
    path.write_text(row(1, 2, "SB") + row(2, 0, "SB"))
    with pytest.raises(ValueError, match=r"line 2: .* 'root' .*, got 'SB'\. If the"):
        read_dependencies(path)
