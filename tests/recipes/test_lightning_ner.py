"""The Lightning script trains, and a resumed run is the run that was not cut."""

import runpy
import sys
from pathlib import Path

import pytest
import torch

from tests.recipes.runs import write_corpus

SCRIPT = Path(__file__).parents[2] / "recipes" / "lightning_ner.py"


@pytest.fixture(scope="module")
def sentences(tmp_path_factory):
    """Three batches of sentences to train on, one to validate on."""
    return write_corpus(tmp_path_factory.mktemp("sentences"), (90, 20, 1))


@pytest.fixture
def run(sentences, monkeypatch):
    """Run the script as its command line does; return the checkpoint it leaves."""
    # the script sets it
    monkeypatch.setenv("PL_GLOBAL_SEED", "1")

    def script(out, *options):
        arguments = [str(SCRIPT), "--data", sentences, "--out", str(out), *options]
        monkeypatch.setattr(sys, "argv", arguments)
        runpy.run_path(str(SCRIPT), run_name="__main__")
        return torch.load(out / "last.ckpt", weights_only=True)

    return script


# Lightning advises on workers and devices that are not there
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("optimizer", ["casimir", "adam"])
def test_a_resumed_run_equals_an_uninterrupted_one(run, tmp_path, optimizer):
    pytest.importorskip("pytorch_lightning")
    chosen = ("--optimizer", optimizer)
    # what is lost of the optimizer's state shows within two more epochs
    whole = run(tmp_path / "whole", *chosen, "--epochs", "3")
    cut = run(tmp_path / "cut", *chosen, "--epochs", "1")
    resumed = run(tmp_path / "cut", *chosen, "--epochs", "3", "--resume")
    assert resumed["epoch"] == whole["epoch"] == cut["epoch"] + 2
    assert resumed["global_step"] == whole["global_step"] == 9
    weights = whole["state_dict"]
    moved = [
        not torch.equal(cut["state_dict"][name], weights[name]) for name in weights
    ]
    assert sum(moved) > len(moved) / 2
    for name, weight in weights.items():
        assert torch.equal(resumed["state_dict"][name], weight), name


def test_the_script_is_short():
    assert len(SCRIPT.read_text().splitlines()) < 100
