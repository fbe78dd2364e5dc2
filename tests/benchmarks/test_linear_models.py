"""Linear models race their peers on a drawn set."""

import csv
import sys

import linear_models


def test_it_runs_and_writes(tmp_path, monkeypatch, capsys):
    # all end where they are certified
    asked = ["", "--quick", "--seconds", "600", "--output", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", asked)
    linear_models.main()
    with (tmp_path / "linear_models.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12 and len({row["problem"] for row in rows}) == 5
    above = [float(row["above at the end"]) for row in rows]
    assert min(above) >= -1e-9 and max(above) < 1e-4
    assert "squared hinge" in capsys.readouterr().out
