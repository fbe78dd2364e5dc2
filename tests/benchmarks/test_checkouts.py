"""The race of two checkouts."""

import sys
from pathlib import Path

import pytest

import checkouts as c
from inference import sweep
from inference.problems import Case
from tests import programs

ROOT = Path(__file__).parents[2]


def race(ratios, question="decode"):
    """Of one pair of processes, a round each."""
    found = c.Race(1, c.Cell(0, "(1, 2, 3)", "float32", question))
    found.old, found.new = [[1e-3] * len(ratios)], [[1e-3 * x for x in ratios]]
    return found


def test_slow_rounds_and_slow_processes_do_not_count():
    found = race([1.0, 1.01, 5.0, 3.0, 2.0])
    assert found.ratio == pytest.approx(1.01)
    found.old.append([2e-3] * 5)
    found.new.append([3e-3] * 5)
    assert found.seconds == pytest.approx((1e-3, 1.01e-3))
    assert found.spread == pytest.approx((1.01, 1.5))
    assert found.row()[-1] == 10


def test_cells_above_the_bound_are_counted():
    text = c.summary([race([1.0, 1.0]), race([1.04, 1.04], "NLL")], 1.03)
    assert "| 1 | (1, 2, 3) | float32 | NLL | 1000.0 | 1040.0 | 1.040 |" in text
    assert text.endswith("1 of 2 cells above 1.03; the worst 1.040, the median 1.020")


def test_every_question_has_a_cell_and_an_answer_that_is_judged():
    plan = sweep.Plan(cases=(Case(2, 3, 2),), large=(), dtypes=("float32",))
    questions = [question for *_, question in c.cells(plan, 1)]
    assert questions == [*sweep.QUESTIONS, c.GENERAL]
    assert len(list(c.cells(plan, 2))) == len(questions) - 2
    assert len(list(c.cells(sweep.Plan(), 2))) == (7 + 3) * 2 * (len(questions) - 2)


def test_what_is_no_checkout_is_named(tmp_path):
    wanted = "expected a commit, or a folder"
    with pytest.raises(SystemExit, match=wanted), c.checkout(str(tmp_path)):
        pass


@pytest.mark.long
def test_a_folder_is_raced_with_itself(tmp_path):
    done = programs.run(
        sys.executable, "benchmarks/checkouts.py", ROOT, ROOT, "--quick",
        "--threads", "1", "--only", "decode", "--output", tmp_path / "found.csv",
    )  # fmt: skip
    lines = (tmp_path / "found.csv").read_text().splitlines()
    assert lines[0].startswith("threads,case,dtype,question,old_seconds")
    assert f"of {len(lines) - 1} cells above 1.03" in done.stdout
