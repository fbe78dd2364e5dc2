"""The benchmark of cutting planes runs on a drawn set, and says what it found."""

import csv
import sys

import cutting_planes


def test_it_runs_and_writes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["", "--quick", "--output", str(tmp_path)])
    cutting_planes.main()
    with (tmp_path / "cutting_planes.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 10 and {row["set"] for row in rows} == {"drawn"}
    found = {row["method"]: row for row in rows}
    assert float(found["dual coordinate descent"]["passes to 0.001"]) <= 100
    assert "of its two products" in capsys.readouterr().out
