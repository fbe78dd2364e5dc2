"""CoNLL-U files, and their trees."""

import pytest

from parsing import dependency_grammar
from smoothsp.data import DependencyTree, dependencies, read_dependencies
from smoothsp.models.projectivity import crossing_arcs

FILE = """\
# text = Let's go home
1-2\tLet's\t_\t_\t_\t_\t_\t_\t_\t_
1\tLet\tlet\tVERB\tVB\t_\t0\troot\t0:root\t_
2\t's\twe\tPRON\tPRP\t_\t3\tnsubj:xsubj\t1:obj|3:nsubj\t_
2.1\twill\twill\tAUX\tMD\t_\t_\t_\t3:aux\t_
3\tgo\tgo\tVERB\tVB\t_\t1\txcomp\t1:xcomp\t_
4\thome\thome\tADV\tRB\t_\t3\tadvmod\t3:advmod\tSpaceAfter=No

# newdoc
1\tYes\tyes\tINTJ\tUH\t_\t0\troot\t_\t_

"""


def row(number, head="0", label="root", word="a", columns=10):
    fields = [str(number), word, *"____", str(head), label, "_", "_"]
    return "\t".join(fields[:columns]) + "\n"


def test_words_are_read_and_other_lines_are_kept():
    first, second = dependencies.parse(FILE.encode(), "x")
    assert first.words == ["Let", "'s", "go", "home"]
    assert first.heads == [0, 3, 1, 3]
    assert first.labels == ["root", "nsubj:xsubj", "xcomp", "advmod"]
    assert second == DependencyTree(["Yes"], [0], ["root"], FILE.split("\n")[8:10])
    assert dependencies.to_conllu([first, second]) == FILE
    changed = FILE.replace("\n", "\r\n").encode()
    assert dependencies.parse(b"\xef\xbb\xbf" + changed.rstrip(), "x") == [
        first,
        second,
    ]


def test_another_tree_changes_heads_and_labels_only():
    (first, _) = dependencies.parse(FILE.encode(), "x")
    assert dependencies.replace_tree(first, first.heads, first.labels) == first
    other = dependencies.replace_tree(
        first, [0, 1, 2, 3], ["root", "obj", "dep", "advmod"]
    )
    assert dependencies.parse(dependencies.to_conllu([other]).encode(), "x") == [other]
    before, after = (s.lines for s in (first, other))
    differ = [
        n for n, pair in enumerate(zip(before, after, strict=True)) if len({*pair}) > 1
    ]
    assert differ == [3, 5]
    assert after[3] == "2\t's\twe\tPRON\tPRP\t_\t1\tobj\t_\t_"


def test_drawn_sentences_come_back_from_a_file(tmp_path):
    parts = dependency_grammar.make(train=60, dev=30)
    assert (
        parts
        == dependency_grammar.make(train=60, dev=30)
        != dependency_grammar.make(2, 60, 30)
    )
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
    found = dependencies.read_sentences(tmp_path / "text", pytest.fail)
    assert found == ["The dog  slept .", "Yes"]
    (tmp_path / "bare").write_text(row(1, "_", "_") + row(2, "_", "_"))
    (bare,) = dependencies.read_sentences(tmp_path / "bare", pytest.fail)
    assert (bare.words, bare.heads) == (["a", "a"], [])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"x: expected at least one sentence, got none"),
        ("# only\n\n", r"x, line 1: expected the words of a sentence"),
        (row(1) + "\n" + row(1, columns=9), r"x, line 3: expected 10 columns .* got 9"),
        (row(1) + row(3), r"x, line 2: expected word 2, got '3'"),
        (row(1, word=""), r"x, line 1: expected a word, got an empty column"),
        (row(1, "_"), r"x, line 1: expected the number of a head in column 7, got '_'"),
        (row(1, "²"), r"x, line 1: expected the number of a head in column 7, got '²'"),
        (
            row(1, "1" * 5000),
            r"x, line 1: expected the number of a head in .* '1{60}'$",
        ),
        (row(1, label="_"), r"x, line 1: expected 'root' in column 8 of a word with h"),
        (row(1) + row(2, 1), r"x, line 2: expected a label other than 'root' in col"),
        (row(1) + row(2, 1, ""), r"x, line 2: expected a label other .* got ''"),
        (row(1) + row(2, 3), r"x, line 2: expected a head from 0 to 2, got 3"),
        (row(1, 2) + row(2, 9), r"x, line 2: expected a head from 0 to 2, got 9"),
        (row(1) + row(2, 2), r"x, line 2: expected heads that lead to the root, got a"),
        (row(1, 2) + row(2, 1), r"x, line 1: expected heads that lead to the root"),
        (row(1) + row(2), r"x, line 2: expected one word with head 0, got 2"),
        (row("2-3") + row(1), r"x, line 1: expected a token that begins with word 1"),
        (row("1-2") + row(1), r"x, line 2: expected word 2 of a token that ends with"),
        (row("1-2") + row(1) + row("2-3"), r"x, line 3: expected a token that begins"),
        (row("1.1") + row(1), r"x, line 1: expected an empty node 0.1, got 1.1"),
        (b"\xc3\xa9\n\xe9", r"x, line 2: expected UTF-8, got the byte 0xe9"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(content, message):
    raw = content if isinstance(content, bytes) else content.encode()
    with pytest.raises(ValueError, match=message) as caught:
        dependencies.parse(raw, "x")
    assert "\n" not in str(caught.value)


def test_wrong_folders_are_refused(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"nowhere: expected a folder .* nothing"
    ):
        dependencies.find_treebank(tmp_path / "nowhere")
    (tmp_path / "a-train.conllu").write_text(row(1))
    with pytest.raises(FileNotFoundError, match=r"in dev\.conllu, got none"):
        dependencies.find_treebank(tmp_path)
    for name in ("a-dev.conllu", "b-dev.conllu"):
        (tmp_path / name).write_text(row(1))
    with pytest.raises(FileNotFoundError, match=r"got a-dev\.conllu, b-dev\.conllu"):
        dependencies.find_treebank(tmp_path)
    with pytest.raises(
        FileNotFoundError, match="expected a file of sentences, got a folder"
    ):
        dependencies.read_sentences(tmp_path, pytest.fail)


def test_the_relation_of_the_root_is_found_or_given(tmp_path, capsys):
    row = "{}\t{}\t_\t_\t_\t_\t{}\t{}\t_\t_\n"
    words = row.format(1, "a", 2, "SB") + row.format(2, "b", 0, "{}")
    path = tmp_path / "a.conllu"
    for name in ("ROOT", "ROOT:x"):
        path.write_text(words.format(name))
        label = name.replace("ROOT", "root")
        for root in (None, "ROOT"):
            assert read_dependencies(path, root=root)[0].labels == ["SB", label]
        assert "ROOT, the relation of the root, read as root" in capsys.readouterr().err
    path.write_text(words.format("SB"))
    with pytest.raises(
        ValueError, match=r"line 2: expected 'root' .*, got 'SB'\. If the"
    ):
        read_dependencies(path)
