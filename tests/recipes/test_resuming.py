"""Runs that are killed, stopped and continued."""

import dataclasses
import os
import sys

import pytest
import torch

import conll_ner
from conll_ner import Config, main
from runs import checkpoint
from smoothsp.models import training
from tests.programs import ROOT, run
from tests.recipes.runs import EPOCHS, TRAIN, killed, numbers


@pytest.mark.long
def test_a_run_killed_twice_ends_with_the_same_numbers(trained, data, tmp_path):
    config, result = trained
    again = dataclasses.replace(config, out=tmp_path)
    resumed = dataclasses.replace(again, resume=True)
    batches = -(-TRAIN // conll_ner.Config.batch)
    # in the middle of the second epoch, and while the third one is written
    killed(training.Training, "_step", batches * 3 // 2, lambda: main(again))
    assert len(checkpoint.load(again.checkpoint)["history"]) == 1
    killed(os, "replace", 1, lambda: main(resumed))
    assert len(checkpoint.load(again.checkpoint)["history"]) == 2
    assert not (tmp_path / "metrics.json").exists()
    # by a process that knows nothing of this one
    arguments = ["--data", data, "--epochs", str(EPOCHS), "--out", str(tmp_path)]
    env = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "recipes/conll_ner.py", *arguments, "--resume"]
    done = run(*command, env=env)
    assert "resuming" in done.stdout, done.stderr
    assert numbers(tmp_path) == numbers(config.out)
    assert numbers(tmp_path)["result"] == result
    ours, whole = (checkpoint.load(c.checkpoint) for c in (again, config))
    for part in ("model", "best", "average"):
        for name, weights in whole[part].items():
            assert torch.equal(ours[part][name], weights), (part, name)
    assert not list(tmp_path.glob(".*.part"))


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path):
    path = tmp_path / "metrics.json"
    checkpoint.write(path, lambda sink: sink.write(b"old"))
    with pytest.raises(ZeroDivisionError):
        checkpoint.write(path, lambda sink: sink.write(b"n") / 0)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_control_c_keeps_the_last_epoch_and_says_how_to_go_on(
    tiny, tmp_path, monkeypatch, capsys
):
    def interrupted(*_):
        raise KeyboardInterrupt

    config = Config(tiny, epochs=2, out=tmp_path / "run")
    whole = main(dataclasses.replace(config, out=tmp_path / "whole"))
    epoch = training.Training.epoch
    with monkeypatch.context() as patch:
        patch.setattr(
            training.Training,
            "epoch",
            lambda run, *rest: interrupted() if run.history else epoch(run, *rest),
        )
        arguments = ["--data", tiny, "--epochs", "2", "--out", str(config.out)]
        patch.setattr(sys, "argv", ["conll_ner.py", *arguments])
        with pytest.raises(SystemExit) as stop:
            conll_ner.command_line()
    assert stop.value.code == 130
    assert "stopped; add --resume to continue after epoch 1" in capsys.readouterr().out
    assert main(dataclasses.replace(config, resume=True)) == whole


def test_a_finished_run_resumes_to_its_report(trained):
    config, result = trained
    assert main(dataclasses.replace(config, resume=True)) == result


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": "crf"}, "loss: expected hinge-l2 as in the run to resume"),
        ({"mu": 2.0}, "mu: expected 1.0 as in"),
        ({"top_k": 7}, "top_k: expected 5 as in"),
        ({"epochs": 9}, f"epochs: expected {EPOCHS} as in"),
        ({"seed": 2}, "seed: expected 1 as in"),
        ({"data": "tiny"}, f"data: expected {TRAIN + 40} sentences with checksum"),
        ({"embeddings": "vectors"}, "embeddings: expected 0 vectors with checksum"),
    ],
)
def test_resuming_with_other_settings_names_them(
    change, message, trained, tiny, vectors, request
):
    places = {"tiny": tiny, "vectors": str(vectors)}
    change = {name: places.get(value, value) for name, value in change.items()}
    with pytest.raises(ValueError, match=message):
        main(dataclasses.replace(trained[0], resume=True, **change))
