"""CoNLL-U files, trees, and the scores of parses."""

import random

import pytest

from parsing import grammar, trees
from smoothsp.data import DependencyTree, dependencies, read_dependencies

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
    assert dependencies.text([first, second]) == FILE
    changed = FILE.replace("\n", "\r\n").encode()
    assert dependencies.parse(b"\xef\xbb\xbf" + changed.rstrip(), "x") == [
        first,
        second,
    ]


def test_another_tree_changes_heads_and_labels_only():
    (first, _) = dependencies.parse(FILE.encode(), "x")
    assert dependencies.with_tree(first, first.heads, first.labels) == first
    other = dependencies.with_tree(
        first, [0, 1, 2, 3], ["root", "obj", "dep", "advmod"]
    )
    assert dependencies.parse(dependencies.text([other]).encode(), "x") == [other]
    before, after = (s.lines for s in (first, other))
    differ = [
        n for n, pair in enumerate(zip(before, after, strict=True)) if len({*pair}) > 1
    ]
    assert differ == [3, 5]
    assert after[3] == "2\t's\twe\tPRON\tPRP\t_\t1\tobj\t_\t_"


def test_drawn_sentences_come_back_from_a_file(tmp_path):
    bank = grammar.make(train=60, dev=30)
    assert bank == grammar.make(train=60, dev=30) != grammar.make(2, 60, 30)
    for name, part in (("x-train", bank.train), ("x-dev", bank.dev)):
        (tmp_path / f"{name}.conllu").write_text(dependencies.text(part))
    assert grammar.read(tmp_path, False, None) == bank
    crossed = sum(bool(trees.crossing(s.heads)) for s in bank.train)
    assert 4 < crossed < 30


def test_malformed_sentences_are_left_out_and_counted(tmp_path, capsys):
    for part in ("train", "dev"):
        path = tmp_path / f"{part}.conllu"
        path.write_text(row(1) + "\n" + row(1, 2) + row(2, 1) + "\n" + row(2) + "\n")
    with pytest.raises(ValueError, match=r"train.conllu, line 3: expected heads that"):
        grammar.read(tmp_path, False, None)
    bank = grammar.read(tmp_path, True, None)
    assert [s.words for s in bank.train] == [s.words for s in bank.dev] == [["a"]]
    output = capsys.readouterr().err
    assert "train.conllu, line 6: expected word 1, got '2'" in output
    assert output.count("warning: left out: ") == 4
    path.write_text(row(2))
    with pytest.raises(ValueError, match="at least one sentence, got none"):
        grammar.read(tmp_path, True, None)


def test_text_without_columns_is_a_sentence_a_line(tmp_path):
    (tmp_path / "text").write_text("The dog  slept .\n\nYes\n")
    found = dependencies.read_words(tmp_path / "text", pytest.fail)
    assert found == ["The dog  slept .", "Yes"]
    (tmp_path / "bare").write_text(row(1, "_", "_") + row(2, "_", "_"))
    (bare,) = dependencies.read_words(tmp_path / "bare", pytest.fail)
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
        grammar.read(tmp_path / "nowhere", False, None)
    (tmp_path / "a-train.conllu").write_text(row(1))
    with pytest.raises(FileNotFoundError, match=r"in dev\.conllu, got none"):
        grammar.read(tmp_path, False, None)
    for name in ("a-dev.conllu", "b-dev.conllu"):
        (tmp_path / name).write_text(row(1))
    with pytest.raises(FileNotFoundError, match=r"got a-dev\.conllu, b-dev\.conllu"):
        grammar.read(tmp_path, False, None)
    with pytest.raises(
        FileNotFoundError, match="expected a file of sentences, got a folder"
    ):
        dependencies.read_words(tmp_path, pytest.fail)


# Trees


def arcs_cross(heads):
    """Whether two arcs cross when drawn above the words, the root before them all."""
    spans = [sorted((head, word)) for word, head in enumerate(heads, start=1)]
    return any(a < c < b < d for a, b in spans for c, d in spans)


def drawn_tree(rng, n):
    order = rng.sample(range(1, n + 1), n)
    heads = [0] * n
    for place, word in enumerate(order[1:], start=1):
        heads[word - 1] = rng.choice(order[:place])
    return heads


def test_a_tree_is_projective_where_no_arcs_cross():
    rng = random.Random(0)
    seen = set()
    for _ in range(300):
        heads = drawn_tree(rng, rng.randint(1, 7))
        crossed = arcs_cross(heads)
        seen.add(crossed)
        assert bool(trees.crossing(heads)) == crossed
        lifted = trees.projective(heads)
        assert not arcs_cross(lifted)
        assert lifted.count(0) == 1
        assert (lifted == heads) != crossed
    assert seen == {True, False}


def test_lifting_by_hand():
    # a hearing is scheduled on the issue today: on the issue hangs from hearing
    heads = [2, 4, 4, 0, 7, 7, 2, 4]
    assert trees.crossing(heads) == [7]
    assert trees.projective(heads) == [2, 4, 4, 0, 7, 7, 4, 4]


# Scores


def test_scores_by_hand():
    gold, _ = dependencies.parse(FILE.encode(), "x")
    labels = ["root", "nsubj", "ccomp", "advmod"]
    found = DependencyTree(gold.words, [0, 3, 1, 1], labels)
    # of a label what follows the colon does not count; go has a wrong one, home a head
    assert trees.attachment([gold], [found]) == {"uas": 3 / 4, "las": 2 / 4}
    assert trees.attachment([gold], [gold]) == {"uas": 1.0, "las": 1.0}
    other = DependencyTree(["Let"], [0], ["root"])
    assert trees.attachment([gold, other], [found, other]) == {"uas": 0.8, "las": 0.6}
    with pytest.raises(ValueError, match="expected the words of sentence 1"):
        trees.attachment([gold], [other])


def test_neighbours_by_hand():
    gold, yes = dependencies.parse(FILE.encode(), "x")
    before, _ = trees.attached_to_neighbours([gold, yes], "previous", "punct")
    assert before.heads == [0, 1, 2, 3]
    assert trees.attachment([gold], [before]) == {"uas": 0.5, "las": 0.25}
    after, _ = trees.attached_to_neighbours([gold, yes], "next", "punct")
    assert after.heads == [2, 3, 4, 0]


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
