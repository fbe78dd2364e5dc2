"""Named entities within each other: files, levels, scores, training and use."""

import dataclasses
import json
import re

import pytest
import torch

from constituency import Config, main
from parsing import nested
from parsing.spans import binarisations, target
from smoothsp.data import read_trees, trees
from smoothsp.data.columns import AS_USUAL, read, read_levels
from smoothsp.oracles import SpanTree
from tests.sweeps import thinned

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


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files as GermEval has them, drawn."""
    place = tmp_path_factory.mktemp("nested")
    for name, part in zip(("train", "dev"), nested.make(train=80, dev=20), strict=True):
        text = "".join(trees.text_of_levels(tree, 2) for tree in part)
        (place / f"NER-de-{name}.tsv").write_text(text)
    return place


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
    written = "".join(trees.text_of_levels(tree, 2) for tree in (first, second))
    assert written == GERMEVAL.partition("\n")[2]


def test_columns_are_named_or_found(germeval, tmp_path, capsys):
    files = read_levels(germeval)
    for file, column in zip(files, ("outer", "inner"), strict=True):
        assert file == read(germeval, dataclasses.replace(AS_USUAL, column=column))
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
    assert nested.depth([tree]) == 3


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


def test_f1_counts_both_levels():
    words = list("abcdef")
    gold = trees.nested(words, [ORG, KOELN, BONN])
    assert set(nested.f1([gold], [gold]).values()) == {1.0}
    # one outer missed, so that its inner one is an outer
    found = nested.f1([gold], [trees.nested(words, [KOELN, BONN])])
    assert found["precision"] == 1.0 and found["recall"] == pytest.approx(2 / 3)
    assert found["f1"] == pytest.approx(0.8)
    assert found["outer"] == pytest.approx(2 * 1 / (2 + 2))
    assert found["inner"] == found["exact"] == 0
    # another type
    other = trees.nested(words, [("PER", 0, 3), KOELN, BONN])
    assert nested.f1([gold], [other])["f1"] == pytest.approx(2 / 3)
    assert nested.f1([gold], [other])["inner"] == 1.0


@pytest.mark.parametrize(
    ("entities", "count"),
    [
        # trees with two branches over 5 words; over 4 parts and over 2; over 3 and 3
        ([], 14),
        ([("X", 0, 1)], 5),
        ([("X", 2, 3)], 5),
        ([("X", 1, 3)], 4),
        ([("X", 2, 4), ("Y", 3, 4), ("Y", 0, 0)], 2),
    ],
)
def test_any_tree_with_two_branches_that_holds_the_entities_is_right(entities, count):
    tree = trees.nested(list("abcde"), entities)
    number = {"TOP": 1, "X": 2, "Y": 3}
    allowed = binarisations(tree, number)[None]
    within = SpanTree(torch.zeros(1, 5, 5, 4)).restrict(allowed)
    assert within.log_count().exp().item() == pytest.approx(count)
    for y in within.decode_topk(count)[1][0]:
        assert all(y[i, j] == number[label] for label, i, j in tree.spans)
        assert (y > 0).sum() == len(tree.spans)
    assert within.restrict(allowed).score(target(tree, number)[None]) == 0


def test_entities_that_cross_leave_the_first():
    tree = trees.nested(list("abcd"), [("X", 0, 2), ("Y", 1, 3), ("Z", 1, 2)])
    kept = nested.uncrossed(tree)
    assert kept.spans == [("TOP", 0, 3), ("X", 0, 2), ("Z", 1, 2)]
    # one that begins before it, too
    tree = trees.nested(list("abcd"), [("X", 1, 3), ("Y", 0, 2)])
    assert nested.uncrossed(tree).spans == [("TOP", 0, 3), ("X", 1, 3)]


def test_names_of_training_are_looked_up():
    train = [trees.nested(list("abc"), [("X", 0, 1), ("Y", 0, 0)])]
    found = nested.looked_up(train, [trees.nested(list("cabab"), [])])
    assert sorted(trees.entities(found[0])) == [
        ("X", 1, 2), ("X", 3, 4), ("Y", 1, 1), ("Y", 3, 3)
    ]  # fmt: skip


@pytest.mark.parametrize("epochs", thinned([2, 20], 2))
def test_the_command_trains_scores_and_tags(epochs, folder, tmp_path, capsys):
    out = tmp_path / "run"
    dev = str(folder / "NER-de-dev.tsv")
    config = Config(str(folder), nested=True, out=out, epochs=epochs, hidden=60)
    main(config)
    printed = capsys.readouterr().out
    content = json.loads((out / "metrics.json").read_text())
    result = content["result"]
    if epochs == 20:
        assert result["f1"] > 0.6 and result["outer"] > 0.6 and result["inner"] > 0.1
    assert result["look_up_f1"] == content["scores"]["look-up"]["f1"]
    assert re.search(r"look-up +\d", printed)
    # the model says of itself that entities are nested
    config = Config(out=out, evaluate=dev)
    main(config)
    scored = capsys.readouterr().out
    row = re.search(r"the parser +(.*)", scored)[1].split()
    assert row == [f"{100 * result[x]:.2f}" for x in content["scores"]["look-up"]]
    # what it writes is what it reads
    main(dataclasses.replace(config, evaluate=None, predict=dev))
    tagged = capsys.readouterr().out
    assert tagged == (out / "dev.txt").read_text()
    (tmp_path / "found.tsv").write_text(tagged)
    gold, found = read_trees(dev), read_trees(tmp_path / "found.tsv")
    assert nested.f1(gold, found)["f1"] == pytest.approx(result["f1"])


def test_columns_need_files_that_have_them(tmp_path):
    with pytest.raises(ValueError, match="columns: expected --nested or --evaluate"):
        main(Config(columns=("1", "2"), out=tmp_path))
