"""The comparison of the steps of block-coordinate Frank-Wolfe."""

import math
from dataclasses import replace

import pytest

from tests.benchmarks.test_races import entry
from training import chain_steps as c
from training import class_steps as classes

COLUMNS = "-DOCSTART- -X- O O\n\nA x y B-P\nb x y O\n\nc x y O\n\nd x y O\n"
LINES = "# text\n1\tA\ta\tNOUN\n1-2\tno\tno\t_\n2\tb\tb\tVERB\n\n1\tc\tc\tNOUN\n\n"


def test_sentences_of_columns_and_of_lines(tmp_path):
    (tmp_path / "a.txt").write_text(COLUMNS)
    found = c.read(tmp_path / "a.txt", -1, 2)
    assert found.tags == [["B-P", "O"], ["O"]]
    assert found.tokens[0][0] == ("A", "x", "y")
    (tmp_path / "b.conllu").write_text(LINES)
    found = c.read(tmp_path / "b.conllu", 3, 9)
    assert found.tags == [["NOUN", "VERB"], ["NOUN"]]
    assert found.tokens == [[("A",), ("b",)], [("c",)]]


@pytest.mark.long
def test_drawn_problems_are_raced_to_each_gap(tmp_path, capsys):
    plan = replace(c.QUICK, drawn=20, words=8, cap=0.5)
    entries = list(c.measure(plan))
    assert len(entries) == 2 * len(c.GAPS) * len(plan.methods)
    for one in entries:
        reached = math.isfinite(one.seconds)
        assert (one.ratio >= 1) and math.isfinite(one.ratio) == reached
        assert one.median <= one.seconds and one.epochs >= 1
    lines = c.table(entries).splitlines()
    assert len(lines) == 2 + len(plan.methods)
    assert lines[2].startswith("| pairwise, cached | ")
    goals = c.goals(entries)
    assert len(goals) == len(c.GAPS)
    # the default is one of those that are compared
    assert [name for _, name in goals[0].values] == ["pairwise, cached"]
    assert next(iter(c.problems(replace(plan, data=tmp_path))))[0] == c.DRAWN
    assert len(list(c.problems(replace(plan, data=tmp_path)))) == 1
    assert capsys.readouterr().out.count("left out") == 5


def test_steps_for_classes_are_raced_to_each_gap():
    plan = replace(classes.QUICK, cap=0.5)
    names = [name for name, _ in classes.problems(plan)]
    assert names == ["iris", "texts", "measurements"]
    entries = list(classes.measure(plan))
    assert len(entries) == len(names) * len(c.GAPS) * len(plan.methods)
    # fits know their goal, and look for it between two refreshes, too
    rough = [e for e in entries if e.section == "gap 0.01"]
    assert any(e.epochs % 10 for e in rough if math.isfinite(e.seconds))
    goals = classes.goals(entries)
    assert [name for _, name in goals[0].values] == ["pairwise, cached"]


def test_who_did_not_get_there_counts_with_the_time_that_it_tried():
    def at(method, case, seconds, tried):
        return replace(
            entry(method=method), section="gap 0.01", case=case, seconds=seconds,
            median=tried,
        )  # fmt: skip

    inf = math.inf
    entries = [
        at("a", "1", 1.0, 1.0),
        at("b", "1", inf, 4.0),
        at("a", "2", 3.0, 3.0),
        at("b", "2", 1.5, 1.5),
        at("a", "3", inf, 9.0),
        at("b", "3", inf, 9.0),
    ]
    assert c.factors(entries, "gap 0.01", "a") == [1.0, 2.0]
    assert c.factors(entries, "gap 0.01", "b") == [4.0, 1.0]
    # of the problems that some method solved
    assert "2 of 2, x1.41" in c.table(entries)
    assert "1 of 2, x2.00" in c.table(entries)
    assert c.factors(entries[4:], "gap 0.01", "a") == []
