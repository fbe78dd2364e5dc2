"""L-BFGS and dual coordinate ascent race to certified gaps."""

import csv
import math
import sys

import pytest

import crf_solvers


def test_both_solvers_reach_all_gaps(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    asked = ["", "--quick", "--rounds", "1", "--output", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", asked)
    crf_solvers.main()
    with (tmp_path / "crf_solvers.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["gap"]) for row in rows] == [1e-2, 1e-3, 1e-4]
    for row in rows:
        assert 0 < float(row["L-BFGS"]) < math.inf
        assert 0 < float(row["SDCA"]) < math.inf


def test_data_are_asked_for(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [""])
    with pytest.raises(SystemExit):
        crf_solvers.parse()
    assert "--conll2003: expected a file, or --conll2000, or --quick" in (
        capsys.readouterr().err
    )
