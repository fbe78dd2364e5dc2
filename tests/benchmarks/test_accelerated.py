"""The benchmark of accelerated schemes runs on small problems and says what is so."""

import csv
import sys

import pytest

import accelerated


@pytest.mark.long
def test_it_runs_and_writes(tmp_path, monkeypatch):
    asked = ["", "--quick", "--passes", "6", "--output", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", asked)
    accelerated.main()
    with (tmp_path / "accelerated.csv").open() as file:
        rows = list(csv.DictReader(file))
    # two classes: three schemes twice, with two constants, and excessive gaps
    assert len(rows) == 14 + 3 * 6
    assert all(float(row["gap at the end"]) >= 0 for row in rows)
