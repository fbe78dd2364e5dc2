"""Each recipe, started as users start it, learns from the data that it makes itself."""

import ast
import csv
import json
import sys
from pathlib import Path

import pytest
import torch

from tests.programs import run

RECIPES = Path(__file__).parents[3] / "recipes"
NETWORKS = (
    "conll_ner",
    "constituency",
    "horse_segmentation",
    "matching_points",
    "pose_tree",
    "ud_parser",
)


@pytest.mark.long
@pytest.mark.parametrize("name", NETWORKS)
def test_the_loss_falls(name, tmp_path):
    command = [sys.executable, RECIPES / f"{name}.py", "--epochs", 2, "--out", tmp_path]
    if name == "horse_segmentation":
        command += ["--model", "network"]
    run(*command)
    history = json.loads((tmp_path / "metrics.json").read_text())["history"]
    first, last = history[0]["loss"], history[-1]["loss"]
    assert len(history) == 2 and 0 <= last < 0.9 * first


@pytest.mark.long
def test_the_script_of_lightning_learns(tmp_path):
    pytest.importorskip("pytorch_lightning")
    command = (sys.executable, RECIPES / "lightning_ner.py", "--epochs", 2)
    printed = run(*command, "--out", tmp_path).stdout.splitlines()[-1]
    last = ast.literal_eval(printed)
    saved = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert 0 <= last["loss"] < 0.5 * saved["loss of the first epoch"]
    assert last["f1"] > 0.3


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def cells(out):
    return json.loads((out / "cells.json").read_text())["cells"]


def gaps_of_words(out):
    """Of each variant of BCFW, the first certificate and the last."""
    gaps = {}
    for row in rows(out / "gaps.csv"):
        gaps.setdefault(row["variant"], []).append(float(row["gap"]))
    return [(found[0], found[-1]) for found in gaps.values()]


def gaps_of_rules(out):
    return [(c["gaps"][0], c["gaps"][-1]) for c in cells(out).values() if "gaps" in c]


def gaps_of_classes(out):
    """Of each tolerance, against the gap after the first epoch."""
    found = cells(out)
    (first,) = (
        cell["walrus"]["first_gap"]
        for name, cell in found.items()
        if name.startswith("digits") and name.endswith("race")
    )
    return [(first, cell["gap"]) for cell in found.values() if "gap" in cell]


def objectives_of_solvers(out):
    found = {}
    for row in rows(out / "smoothing.csv"):
        found.setdefault(row["method"], []).append(float(row["F"]))
    return [(values[0], values[-1]) for values in found.values()]


def objectives_of_rounds(out):
    """Before the first round, and after the last."""
    history = rows(out / "history.csv")
    return [(float(history[0]["objective"]), float(history[-1]["objective"]))]


# what is asked of each, how many runs it makes, and what falls in them
LINEAR = {
    "ocr_words": (
        "--settings small --courses --lam 0.1 --drawn 40 --max-passes 40",
        8,
        gaps_of_words,
    ),
    "frank_wolfe_rules": ("--drawn 20 --max-passes 8 --eps 0.4", 21, gaps_of_rules),
    "multiclass_svm": (
        "--log2-c 0 --tolerances 0.5 0.01 --classes 4 --race-log2-c 0 --repeats 1",
        2,
        gaps_of_classes,
    ),
    "conll_linear": (
        "--study smoothing --c 1 --calls 4 --seeds 0 --bound-passes 20 --hashing 127",
        4,
        objectives_of_solvers,
    ),
    "voc_localization": (
        "--proposals grid --max-boxes 60 --side 64 --optimizer bcfw --passes 6",
        1,
        objectives_of_rounds,
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", LINEAR)
def test_gap_or_objective_falls(name, tmp_path):
    options, many, pairs = LINEAR[name]
    command = [sys.executable, RECIPES / f"{name}.py", *options.split()]
    if name == "voc_localization":
        command += ["--workers", 1, "--cache", tmp_path / "cache"]
    run(*command, "--out", tmp_path)
    found = pairs(tmp_path)
    assert len(found) == many
    assert all(0 <= last < first for first, last in found)
