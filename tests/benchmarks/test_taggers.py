"""A pass of L-BFGS and predictions race with python-crfsuite."""

import csv
import re
import sys

import pytest

import taggers


def test_a_pass_and_predictions_race(tmp_path, monkeypatch, capsys):
    pytest.importorskip("pycrfsuite")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    asked = ["", "--quick", "--rounds", "1", "--output", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", asked)
    taggers.main()
    with (tmp_path / "taggers.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["question"] for row in rows] == [
        *["pass, pairs that occur"] * 2,
        *["pass, all pairs"] * 2,
        *["predict"] * 3,
    ]
    assert all(float(row["seconds"]) > 0 for row in rows)
    shares = re.findall(r"([\d.]+) % of the tags", capsys.readouterr().out)
    assert len(shares) == 3 and min(map(float, shares)) > 60


def test_the_seconds_of_a_pass_are_those_of_the_log():
    log = (
        "***** Iteration #1 *****\nLine search trials: 2\n"
        "Seconds required for this iteration: 0.500\n"
        "***** Iteration #2 *****\nLine search trials: 1\n"
        "Seconds required for this iteration: 0.250\n"
    )
    assert taggers.seconds_of(log) == 0.25
