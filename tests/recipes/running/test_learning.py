"""Each recipe, started as users start it, learns from the data that it makes itself."""

import ast
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
