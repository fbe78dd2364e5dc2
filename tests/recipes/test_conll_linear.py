"""The linear recipe: its studies, its files, and columns of CoNLL files."""

import csv

import numpy as np
import pytest

import conll_linear
from conll_linear import METHODS, Config, columns_of, main


def small(monkeypatch):
    """Fewer sentences."""
    load = conll_linear.load
    monkeypatch.setattr(
        conll_linear,
        "load",
        lambda folder: tuple(
            conll_linear.Split(part.tokens[:25], part.tags[:25]) for part in load(None)
        ),
    )


@pytest.mark.parametrize("study", ["solvers", "warm-start"])
def test_a_study_leaves_numbers_and_a_figure(study, tmp_path, monkeypatch):
    small(monkeypatch)
    config = Config(study=study, c=(1.0,), passes=2, seeds=(0, 1), out=tmp_path)
    result = main(config)
    with (tmp_path / f"{study}.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["method"] for row in rows} == set(METHODS[study])
    assert {row["seed"] for row in rows} == {"0", "1"}
    # the bound is below F wherever a solver was
    assert all(float(row["gap"]) >= -1e-9 for row in rows)
    assert (tmp_path / f"{study}.png").read_bytes()[:4] == b"\x89PNG"
    assert len(result) == 3 * len(METHODS[study])
    assert all(np.isfinite(value) for value in result.values())
    # both had as many oracle calls
    if study == "solvers":
        of = {(row["method"], row["calls"]) for row in rows}
        assert {("BCFW", "4"), ("SVRG", "4"), ("SGD", "1")} <= of
        assert ("SVRG", "1") not in of
    again = main(Config(study=study, c=(1.0,), passes=2, out=tmp_path / "again"))
    assert again == result


def test_the_tagger_learns(monkeypatch):
    assert main(Config(study="tagger"))["F1"] > 80


def test_all_columns_of_a_file(tmp_path):
    path = tmp_path / "eng.train"
    path.write_text(
        "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nsaid VBD I-VP O\n\n. . O O\n"
    )
    split = columns_of(path)
    assert split.tokens == [
        [("EU", "NNP", "I-NP"), ("said", "VBD", "I-VP")],
        [(".", ".", "O")],
    ]
    assert split.tags == [["I-ORG", "O"], ["O"]]
    (tmp_path / "eng.testa").write_text(path.read_text())
    train, dev = conll_linear.load(tmp_path)
    assert train == dev == split
    assert conll_linear.usable(conll_linear.PAPER, split) == list(conll_linear.PAPER)
    words = conll_linear.Split([[("a",)]], [["O"]])
    assert conll_linear.usable(conll_linear.PAPER, words) == ["word[-2..2]", "bias"]
