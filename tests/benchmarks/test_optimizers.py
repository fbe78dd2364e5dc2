"""The table of the optimizers' page comes from its CSV, and the command writes both."""

import csv

import pytest

import optimizers


def test_the_page_has_the_table_of_the_csv():
    with optimizers.RESULTS.open(newline="") as file:
        rows = [*csv.DictReader(file)]
    runs = {(row["optimizer"], float(row["rate"]), int(row["seed"])) for row in rows}
    names, rates, seeds = optimizers.OPTIMIZERS, optimizers.RATES, optimizers.SEEDS
    assert runs == {(o, r, s) for o in names for r in rates for s in seeds}
    assert len({row["passes"] for row in rows}) == 1
    assert optimizers.table(rows) in optimizers.PAGE.read_text()


@pytest.mark.long
def test_each_optimizer_has_a_run_at_each_rate():
    pytest.importorskip("pytorch_lightning")
    rows = [*optimizers.measure(None, sentences=16, passes=3, seeds=(1,))]
    assert len(rows) == len(optimizers.OPTIMIZERS) * len(optimizers.RATES)
    assert all(0 <= float(row["loss"]) < 100 for row in rows)
    assert all(0 <= float(row["f1"]) <= 1 for row in rows)
