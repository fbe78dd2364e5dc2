"""Localisers that are stopped, killed and continued."""

import dataclasses
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import voc_localization
from runs import checkpoint
from tests.recipes.runs import numbers
from voc_localization import main

ROOT = Path(__file__).parents[2]

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
        patch.setattr(voc_localization.tyro, "cli", lambda _: config)
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
        ({"max_boxes": 30}, r"data: expected \{'train': "),
    ],
)
def test_resuming_with_other_settings_names_them(change, message, whole):
    with pytest.raises(ValueError, match=message):
        main(dataclasses.replace(whole[0], resume=True, **change))


def test_starting_over_says_that_a_run_is_replaced(whole, tmp_path, capsys):
    config = dataclasses.replace(whole[0], passes=1, out=tmp_path)
    main(config)
    main(config)
    assert "starting over" in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_killed_at_random_moments_ends_with_the_same_numbers(localise, tmp_path):
    # rounds enough that none is killed after the last one
    config = localise(tmp_path / "whole", passes=80)
    main(config)
    arguments = ["--data", str(config.data), "--class", config.kind]
    arguments += ["--cache", str(tmp_path / "cache"), "--out", str(tmp_path / "run")]
    arguments += ["--proposals", "grid", "--max-boxes", "60", "--passes", "80"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    environment["MPLBACKEND"] = "agg"
    chance = random.Random(5)

    def start(*more):
        return subprocess.Popen(
            [sys.executable, "recipes/voc_localization.py", *arguments, *more],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    for attempt in range(2):
        process = start(*(["--resume"] if attempt else []))
        for line in process.stdout:
            if line.startswith("round"):
                break
        # anywhere in the next round, or while its checkpoint is written
        time.sleep(chance.uniform(0, 0.1))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert not (tmp_path / "run" / "metrics.json").exists()
    output, errors = start("--resume").communicate()
    assert "resuming" in output, errors
    assert numbers(tmp_path / "run") == numbers(config.out)
    again, first = (
        checkpoint.load(out / "checkpoint.pt") for out in (tmp_path / "run", config.out)
    )
    for part in ("network", "best"):
        for name, weights in first[part].items():
            assert torch.equal(again[part][name], weights), (part, name)
