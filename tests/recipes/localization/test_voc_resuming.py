"""Localisers that are stopped, killed and continued."""

import dataclasses
import os
import sys

import pytest
import torch

import voc_localization
from localization import training
from runs import checkpoint
from tests.programs import ROOT, run
from tests.recipes.runs import killed, numbers
from voc_localization import main

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(scope="module")
def whole(localise, tmp_path_factory):
    config = localise(tmp_path_factory.mktemp("whole"), passes=6)
    return config, main(config)


def test_control_c_keeps_the_last_round_and_says_how_to_go_on(
    whole, tmp_path, monkeypatch, capsys
):
    config, result = whole
    config = dataclasses.replace(config, out=tmp_path)
    begin = voc_localization.Run.round

    def interrupted(run):
        if len(run.history) == 3:
            raise KeyboardInterrupt
        begin(run)

    with monkeypatch.context() as patch:
        patch.setattr(voc_localization.Run, "round", interrupted)
        patch.setattr(voc_localization.options, "read", lambda _: config)
        with pytest.raises(SystemExit) as stop:
            voc_localization.command_line()
    assert stop.value.code == 130
    assert "stopped; add --resume to continue after round 2" in capsys.readouterr().out
    assert not (tmp_path / "metrics.json").exists()
    assert main(dataclasses.replace(config, resume=True)) == result
    assert numbers(tmp_path) == numbers(whole[0].out)


def test_a_finished_run_resumes_to_its_report_and_can_be_prolonged(whole, tmp_path):
    config, result = whole
    assert main(dataclasses.replace(config, resume=True)) == result
    short = dataclasses.replace(config, passes=2, out=tmp_path)
    main(short)
    assert main(dataclasses.replace(short, passes=6, resume=True)) == result


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 2}, "seed: expected 1 as in the run to resume"),
        ({"optimizer": "svrg"}, "optimizer: expected casimir-const as in"),
        ({"scores": "nonlinear"}, "scores: expected linear as in"),
        ({"smoothness": 7.0}, r"smoothness: expected [\d.]+ as in"),
        ({"decay": 7.0}, "decay: expected 10.0 as in"),
        ({"k": 3}, "k: expected 10 as in"),
        ({"max_boxes": 30}, r"data: expected \{'train': "),
    ],
)
def test_resuming_with_other_settings_names_them(change, message, whole):
    with pytest.raises(ValueError, match=message):
        main(dataclasses.replace(whole[0], resume=True, **change))


@pytest.mark.long
def test_a_run_killed_twice_ends_with_the_same_numbers(whole, tmp_path):
    config, _ = whole
    again = dataclasses.replace(config, out=tmp_path)
    resumed = dataclasses.replace(again, resume=True)
    # an epoch asks thrice about each of 6 images, a record once, and about 3 others
    killed(training.Run, "_question", 9 + 18 + 9 + 9, lambda: main(again))
    assert len(checkpoint.load(again.checkpoint)["history"]) == 2
    # while it is written
    killed(os, "replace", 1, lambda: main(resumed))
    assert len(checkpoint.load(again.checkpoint)["history"]) == 3
    assert not (tmp_path / "metrics.json").exists()
    arguments = ["--data", str(config.data), "--class", config.kind]
    arguments += ["--cache", str(config.cache), "--out", str(tmp_path)]
    arguments += ["--proposals", "grid", "--max-boxes", "60", "--passes", "6"]
    arguments += ["--backbone", "efficientnet-lite0", "--side", "160"]
    env = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"}
    command = [sys.executable, "recipes/voc_localization.py", *arguments, "--resume"]
    done = run(*command, env=env)
    assert "resuming" in done.stdout, done.stderr
    assert numbers(tmp_path) == numbers(config.out)
    ours, theirs = (checkpoint.load(c.checkpoint) for c in (again, config))
    for part in ("network", "best"):
        for name, weights in theirs[part].items():
            assert torch.equal(ours[part][name], weights), (part, name)
