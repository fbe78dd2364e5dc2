"""The Lightning script trains, and a resumed run is the run that was not cut."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parents[2] / "recipes" / "lightning_ner.py"


def run(out, *options):
    command = [sys.executable, "-W", "ignore", SCRIPT, "--out", out, *options]
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return torch.load(out / "last.ckpt", weights_only=True)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["casimir", "adam"])
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, optimizer):
    pytest.importorskip("pytorch_lightning")
    chosen = ("--optimizer", optimizer)
    whole = run(tmp_path / "whole", *chosen, "--epochs", "2")
    run(tmp_path / "cut", *chosen, "--epochs", "1")
    resumed = run(tmp_path / "cut", *chosen, "--epochs", "2", "--resume")
    assert resumed["epoch"] == whole["epoch"]
    for name, weight in whole["state_dict"].items():
        assert torch.equal(resumed["state_dict"][name], weight), name


def test_the_script_is_short():
    assert len(SCRIPT.read_text().splitlines()) < 100
