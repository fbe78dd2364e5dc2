"""The localiser from one command: its reports, bad configurations."""

import csv
import dataclasses
import json
import sys

import numpy as np
import pytest
import torch
from PIL import Image

import smoothsp
import voc_localization
from localization import figures, toy
from tests.sweeps import thinned
from voc_localization import load, main

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def data(localise, tmp_path_factory):
    return load(localise(tmp_path_factory.mktemp("data")), CPU)


@pytest.fixture(scope="module")
def trained(localise, tmp_path_factory):
    config = localise(tmp_path_factory.mktemp("trained"))
    return config, main(config)


@pytest.mark.long
def test_numbers_and_figures_are_written(trained, data):
    config, result = trained
    content = json.loads((config.out / "metrics.json").read_text())
    assert content["result"] == result
    assert content["features"] == "random"
    with (config.out / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["round"]) for row in rows] == [0, 1, 2]
    assert [float(row["passes"]) for row in rows] == [0, 2, 4]
    objectives = [row["objective"] for row in content["history"]]
    assert [float(row["objective"]) for row in rows] == pytest.approx(objectives, 1e-5)
    assert result["lowest_objective"] == min(objectives) < objectives[0]
    for name in ("curves.png", "sheet.png"):
        assert (config.out / name).read_bytes().startswith(b"\x89PNG")
    with Image.open(config.out / "sheet.png") as sheet:
        pixels = np.asarray(sheet.convert("RGB")).astype(int)
    # three invented images beside each other, with two boxes each, hits first
    height, width = len(pixels), len(pixels[0]) // 3
    hits = round(result["test_corloc"] * 3)
    for panel in range(3):
        # without title and legend, which have the colours, too
        shown = pixels[height // 4 : 3 * height // 4, panel * width :][:, :width]
        assert drawn(shown, figures.TRUE) > 50
        assert (drawn(shown, figures.HIT) > 50) == (panel < hits)
        assert (drawn(shown, figures.MISS) > 50) == (panel >= hits)
    for part in ("val", "test"):
        limit = result[f"{part}_best_candidate"]
        assert 0 <= result[f"{part}_ap"] <= result[f"{part}_corloc"] <= limit


def drawn(pixels, colour):
    """How many pixels have the colour."""
    wanted = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return (abs(pixels - wanted).sum(2) < 10).sum()


def test_baselines_stand_beside_what_was_learned(trained, data, capsys):
    config, result = trained
    main(dataclasses.replace(config, resume=True))
    said = capsys.readouterr().out
    for name in ("centre box", "nearest to centre", "largest candidate", "mean box"):
        assert f"\n{name}" in said
    for part in ("val", "test"):
        best = result[f"{part}_best_candidate"]
        share = [bool((own > 0.5).any()) for own in data.parts[part].overlaps]
        assert best == pytest.approx(np.mean(share))
        assert 0 <= result[f"{part}_centre_box"] <= 1


@pytest.mark.long
@pytest.mark.usefixtures("undrawn")
def test_the_result_depends_on_the_seed_and_on_nothing_else(trained, tmp_path):
    config, result = trained
    again = main(dataclasses.replace(config, out=tmp_path / "again"))
    other = main(dataclasses.replace(config, out=tmp_path / "other", seed=2))
    assert again == result != other


@pytest.mark.usefixtures("undrawn")
def test_without_data_ladybirds_are_drawn(localise, tmp_path, monkeypatch):
    monkeypatch.setattr(toy, "SIZES", {"train": 2, "val": 1, "test": 1})
    config = localise(tmp_path / "out", data=None, kind=None, cache=tmp_path, passes=1)
    assert main(config)["best_round"] >= 0
    assert len(list(tmp_path.glob("ladybirds-*/JPEGImages/*.jpg"))) == 4


@pytest.mark.parametrize("method", thinned(["sgd", "casimir-const", "prox-linear"], 3))
@pytest.mark.usefixtures("undrawn")
def test_the_convolutions_can_be_trained_too(method, localise, tmp_path):
    options = {"finetune": True, "optimizer": method, "scores": "nonlinear"}
    name, value = ("lr", 1e-5) if method == "sgd" else ("smoothness", 1e5)
    options |= {"inner_epochs": 1} if method == "prox-linear" else {}
    options |= {"side": 64, "max_boxes": 20, "passes": 1, name: value}
    config = localise(tmp_path, **options)
    data = load(config, CPU)
    before = data.backbone.checksum()
    voc_localization.train(config, data)
    # another run starts from the same weights
    assert data.backbone.checksum() == before
    saved = torch.load(config.checkpoint, weights_only=True)
    name = "layers.0.convolution.weight"
    weight = saved["network"][f"appearance.backbone.{name}"]
    assert not torch.equal(weight, data.backbone.state_dict()[name])
    history = saved["history"]
    assert history[1]["objective"] < history[0]["objective"]
    kept = smoothsp.models.load(config.model_folder, "cpu").network.state_dict()
    assert all(torch.equal(kept[name], own) for name, own in saved["best"].items())


# --- bad configurations ---


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": None}, "class: expected the class to find, got None"),
        ({"data": None}, "class: expected none without --data, got 'ladybird'"),
        ({"optimizer": "adam"}, "optimizer: expected one of sgd,.*got 'adam'"),
        ({"scores": "deep"}, "scores: expected one of linear, nonlinear, got 'deep'"),
        ({"proposals": "all"}, "proposals: expected one of selective-search, grid"),
        ({"max_boxes": 0}, "max_boxes: expected at least 1, got 0"),
        ({"passes": 0}, "passes: expected at least 1, got 0"),
        ({"workers": 0}, "workers: expected at least 1, got 0"),
        ({"seed": -1}, "seed: expected at least 0, got -1"),
        ({"lr": 1.0}, "lr: expected none with --optimizer casimir-const, got 1.0"),
        ({"optimizer": "svrg", "t_0": 3}, "t_0: expected none with --optimizer svrg"),
        ({"optimizer": "sgd", "mu": 1.0}, "mu: expected none with --optimizer sgd"),
        ({"optimizer": "bcfw", "scores": "nonlinear"}, "optimizer: expected another"),
        ({"backbone": "vgg"}, r"backbone: expected one of alexnet,.*got 'vgg'"),
        ({"side": 31}, "side: expected at least 32, got 31"),
        ({"k": 0}, "k: expected a positive number, got 0"),
        ({"mu": 0.0}, "mu: expected a positive number, got 0"),
        ({"seed": 10**16}, "seed: expected at most 1000000000000000, got"),
        ({"decay": float("inf")}, "decay: expected a positive number, got inf"),
        ({"smoothness": float("nan")}, "smoothness: expected a positive number"),
        ({"kind": "dog"}, r"class: 'dog' never occurs in"),
        ({"resume": True}, "resume: expected a run to continue, found no"),
    ],
)
def test_bad_configurations_are_named(options, message, localise, tmp_path):
    with pytest.raises((ValueError, OSError), match=message):
        main(localise(tmp_path, **options))


def test_the_command_line_reports_errors_in_one_line(monkeypatch, tmp_path):
    arguments = ["--data", str(tmp_path), "--class", "dog"]
    monkeypatch.setattr(sys, "argv", ["voc_localization.py", *arguments])
    with pytest.raises(SystemExit) as stop:
        voc_localization.command_line()
    assert str(stop.value).startswith(
        f"error: --data {tmp_path}: expected a folder in Pascal"
    )
