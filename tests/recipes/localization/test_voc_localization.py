"""The localiser from one command: its reports, optimizers, bad configurations."""

import csv
import json
import sys
from typing import get_args

import pytest
import torch

import smoothsp
import voc_localization
from localization import figures, synthetic
from localization.settings import EPOCH_METHODS, Method
from runs import files
from smoothsp.models.detection import DECODERS
from tests.sweeps import thinned
from voc_localization import main

METHODS = [method for method in get_args(Method) if method not in EPOCH_METHODS]
STEPS = {
    "sgd": {"lr": 1e-3, "t_0": 12},
    "sgd-sqrt": {"lr": 1e-3},
    "sgd-inv": {"lr": 5e-4},
    "svrg": {"lr": 1e-3, "mu": 1.0},
    "casimir-const": {"smoothness": 1000.0, "mu": 1.0},
    "casimir-adapt": {"lr": 1e-3, "mu": 2.0},
    "prox-linear": {"smoothness": 1000.0, "mu": 1.0, "inner_epochs": 3},
    "bcfw": {},
}


@pytest.fixture(scope="module")
def trained(localise, tmp_path_factory):
    config = localise(tmp_path_factory.mktemp("trained"))
    return config, main(config)


def test_numbers_and_figures_are_written(trained):
    config, result = trained
    content = json.loads((config.out / "metrics.json").read_text())
    assert content["result"] == result
    with (config.out / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["epoch"]) for row in rows] == [1, 2]
    objectives = [row["objective"] for row in content["history"]]
    assert [float(row["objective"]) for row in rows] == pytest.approx(objectives, 1e-5)
    assert result["lowest_objective"] == min(objectives)
    for name in ("curves.png", "sheet.png"):
        assert (config.out / name).read_bytes().startswith(b"\x89PNG")
    table = content["table"]
    for part in ("val", "test"):
        limit = table[part]["best candidate"]["corloc"]
        assert 0 <= result[f"{part}_ap"] <= result[f"{part}_corloc"] <= limit
        names = {"centre box", "nearest to centre", "largest candidate", "learned"}
        assert names < set(table[part])
    best = max(row["iou"] for row in content["history"])
    assert result["val_iou"] == pytest.approx(best)


def test_the_sheet_has_a_panel_for_each_image(localise, tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(figures, "sheet", lambda *given: shown.append(given))
    main(localise(tmp_path, epochs=1))
    (_, panels, one, title), *_ = shown
    assert one and len(panels) == 3 and "6 training images" in title
    for panel in panels:
        assert len(panel.prediction.boxes) == 4 and len(panel.example.boxes) == 1
        assert panel.title.startswith("hit" if panel.is_hit else "MISS")
    monkeypatch.undo()
    drawn = []
    keep = lambda _, figure, dpi: drawn.extend(figure.axes)  # noqa: E731
    monkeypatch.setattr(files, "write_figure", keep)
    figures.sheet(tmp_path / "sheet.png", panels, True, title)
    # the boxes found and the true one
    assert [len(axes.patches) for axes in drawn[:3]] == [5, 5, 5]
    assert [axes.get_title() for axes in drawn[:3]] == [x.title for x in panels]


def test_several_objects_have_a_table_of_decoders(localise, tmp_path):
    options = {"objects": "several", "loss": "cliques", "kind": None}
    options |= {"proposals": "selective-search", "max_boxes": 1000}
    config = localise(tmp_path, **options)
    result = main(config)
    content = json.loads((tmp_path / "metrics.json").read_text())
    rows = content["table"]["test"]
    assert set(rows) == {*DECODERS, "circles, not trained"}
    assert rows["best sets"]["map50"] == result["test_map50"]
    assert 0 <= result["test_map50"] <= 1 and result["test_recall_of_windows"] > 0.9
    losses = [row["loss"] for row in content["history"]]
    assert losses[-1] < losses[0]
    localiser = smoothsp.models.load(tmp_path / "model", "cpu")
    assert localiser.classes == sorted(synthetic.APPEARANCES)
    found = localiser.evaluate(config.data, cache=config.cache)
    assert found["map50"] == pytest.approx(result["test_map50"], abs=1e-6)


@pytest.mark.parametrize("method", thinned(get_args(Method), 4, 1))
@pytest.mark.usefixtures("undrawn")
def test_every_optimizer_lowers_the_objective(method, localise, tmp_path):
    options = {"optimizer": method, "decay": 0.6, **STEPS[method]}
    if method == "prox-linear":
        options |= {"scores": "nonlinear", "lr": 10.0}
    result = main(localise(tmp_path, epochs=3, **options))
    history = json.loads((tmp_path / "metrics.json").read_text())["history"]
    objectives = [row["objective"] for row in history]
    assert 0 <= min(objectives) == result["lowest_objective"]
    assert objectives[-1] < objectives[0]
    if "nonlinear" not in options.values():
        # that of zero weights, which is at most 1
        assert objectives[-1] < 1
    assert smoothsp.models.load(tmp_path / "model", "cpu").classes == ["ladybird"]


@pytest.mark.parametrize("method", thinned(METHODS, 6, 1))
@pytest.mark.usefixtures("undrawn")
def test_a_run_of_every_optimizer_goes_on(method, localise, tmp_path, monkeypatch):
    options = {"optimizer": method, **STEPS[method]}
    whole = main(localise(tmp_path / "whole", **options))
    fit = smoothsp.training.Trainer.fit

    def stopped(trainer, *given, **more):
        trainer.callbacks.append(Stop())
        fit(trainer, *given, **more)

    class Stop(smoothsp.training.Callback):
        def on_train_epoch_start(self, trainer, module):
            if trainer.current_epoch == 1:
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(smoothsp.training.Trainer, "fit", stopped)
        with pytest.raises(KeyboardInterrupt):
            main(localise(tmp_path / "half", **options))
    resumed = main(localise(tmp_path / "half", resume=True, **options))
    assert resumed == whole
    states = [
        smoothsp.models.load(tmp_path / name / "model", "cpu").network.state_dict()
        for name in ("whole", "half")
    ]
    assert all(map(torch.equal, *(state.values() for state in states)))


@pytest.mark.usefixtures("undrawn")
def test_weights_that_diverge_say_which_number_to_change(localise, tmp_path):
    with pytest.raises(ValueError, match=r"diverged\. Lower the rate"):
        main(localise(tmp_path / "a", optimizer="sgd", lr=1e30))
    with pytest.raises(ValueError, match=r"lower lr|expected numbers below"):
        main(localise(tmp_path / "b", smoothness=1e-30))


@pytest.mark.usefixtures("undrawn")
def test_without_data_ladybirds_are_drawn(localise, tmp_path, monkeypatch):
    monkeypatch.setattr(synthetic, "SIZES", {"train": 2, "val": 1, "test": 1})
    config = localise(tmp_path / "out", data=None, kind=None, cache=tmp_path, epochs=1)
    assert main(config)["best_epoch"] == 1
    assert len(list(tmp_path.glob("ladybirds-*/JPEGImages/*.jpg"))) == 4


@pytest.mark.long
@pytest.mark.parametrize("method", ["sgd", "casimir-const", "prox-linear"])
@pytest.mark.usefixtures("undrawn")
def test_the_convolutions_can_be_trained_too(method, localise, tmp_path):
    options = {"finetune": True, "optimizer": method, "scores": "nonlinear"}
    name, value = ("lr", 1e-5) if method == "sgd" else ("smoothness", 1e5)
    options |= {"inner_epochs": 1} if method == "prox-linear" else {}
    options |= {"side": 64, "max_boxes": 20, "epochs": 2, name: value}
    main(localise(tmp_path, **options))
    history = json.loads((tmp_path / "metrics.json").read_text())["history"]
    assert history[1]["objective"] < history[0]["objective"]
    layers = smoothsp.models.load(tmp_path / "model", "cpu").network.backbone
    before = smoothsp.models.backbones.backbone(layers.name, "random")
    assert layers.checksum() != before.checksum()


# --- bad configurations ---


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": None}, "class: expected the class to find, got None"),
        ({"data": None}, "class: expected none without --data, got 'ladybird'"),
        ({"max_boxes": 0}, "max_boxes: expected at least 1, got 0"),
        ({"epochs": 0}, "epochs: expected at least 1, got 0"),
        ({"lr": 1.0}, "lr: expected none with --optimizer casimir-const, got 1.0"),
        ({"optimizer": "svrg", "t_0": 3}, "t_0: expected none with --optimizer svrg"),
        ({"optimizer": "sgd", "mu": 1.0}, "mu: expected none with --optimizer sgd"),
        ({"optimizer": "bcfw", "scores": "nonlinear"}, "optimizer: expected another"),
        ({"optimizer": "bcfw", "resume": True}, "resume: expected none with --optim"),
        ({"backbone": "vgg"}, r"backbone: expected one of alexnet,.*got 'vgg'"),
        ({"side": 31}, "side: expected an int from 32 to 4096, got 31"),
        ({"k": 0}, "k: expected a positive number, got 0"),
        ({"decay": float("inf")}, "decay: expected a positive number, got inf"),
        ({"smoothness": float("nan")}, "smoothness: expected a positive number"),
        ({"kind": "dog"}, r"class: 'dog' never occurs in"),
        ({"loss": "softmax"}, "loss: expected none with --objects one, got softmax"),
        ({"objects": "several"}, "class: expected none with --objects several, got l"),
        (
            {"objects": "several", "kind": None, "optimizer": "sgd"},
            "proposals: expected none with --objects several, got grid",
        ),
        ({"resume": True}, "resume: expected .*checkpoint"),
    ],
)
def test_bad_configurations_are_named(options, message, localise, tmp_path):
    with pytest.raises((ValueError, OSError), match=message):
        main(localise(tmp_path, **options))


def test_the_command_line_reports_errors_in_one_line(monkeypatch, tmp_path):
    arguments = [
        "--data",
        str(tmp_path),
        "--class",
        "dog",
        "--out",
        str(tmp_path / "o"),
    ]
    monkeypatch.setattr(sys, "argv", ["voc_localization.py", *arguments])
    with pytest.raises(SystemExit) as stop:
        voc_localization.command_line()
    assert str(stop.value).startswith(
        f"error: --data {tmp_path}: expected a folder in Pascal"
    )
