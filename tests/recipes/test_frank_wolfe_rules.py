"""The recipe of refreshes, cache and kappa: a small run, and what it says."""

import json

import numpy as np
import pytest

from frank_wolfe_rules import PERIODS, Config, follow, looks, main, problems_of
from smoothsp.linear.solvers import BCFW


def test_a_small_run_leaves_its_numbers_and_goes_on(tmp_path, capsys):
    config = Config(drawn=20, max_passes=8, eps=0.4, out=tmp_path)
    result = main(config)
    assert (tmp_path / "rules.png").read_bytes()[:4] == b"\x89PNG"
    assert len(result) == len(PERIODS) + 8
    assert all(gap >= 0 for gap in result.values())
    said = capsys.readouterr().out
    assert "| refresh never |" in said and "| 0.95 |" in said
    assert main(Config(**{**vars(config), "resume": True})) == result
    cells = json.loads((tmp_path / "cells.json").read_text())["cells"]
    # the kappa that asks most of each point needs the most calls
    calls = [cells[f"drawn words, kappa {kappa}"]["calls"] for kappa in ("0.3", "0.8")]
    assert calls[0] > 0 and calls[1] > 0


def test_looking_changes_no_run():
    config = Config(drawn=30, max_passes=9)
    (problem,) = problems_of(config).values()
    options = {"sampling": "gap", "refresh_every": 4}
    cell = follow(config, options, problem)
    assert cell["passes"] == looks(9) == [3, 7, 8]
    lam = 1 / len(problem)
    whole = BCFW(lam=lam, max_passes=8, tol=0.0, seed=1, **options).solve(problem)
    assert cell["gaps"][-1] == pytest.approx(whole.gap, rel=1e-12)
    assert cell["calls"][-1] == whole.oracle_calls / len(problem)
    # estimates of before the refresh are those of the pass before
    assert np.isnan(cell["stale"][2]) and cell["stale"][1] > 0


def test_sizes_that_are_none_are_named(tmp_path):
    for name, value in (("drawn", -1), ("drawn", 0), ("max_passes", 0), ("seed", -1)):
        with pytest.raises(ValueError, match=f"{name}: expected at least"):
            main(Config(**{name: value}, out=tmp_path))
    for name in ("c", "eps"):
        for value in (0.0, -1.0, np.nan, np.inf):
            with pytest.raises(ValueError, match=f"{name}: expected a positive number"):
                main(Config(**{name: value}, out=tmp_path))
    assert not any(tmp_path.iterdir())
