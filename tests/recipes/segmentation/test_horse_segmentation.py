"""Training, resuming and segmenting, on a few small drawn images."""

import dataclasses
import json

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image

import horse_segmentation
from horse_segmentation import Config, main
from segmentation import linear, model_folder, network
from smoothsp.models import files
from tests.recipes.runs import numbers
from tests.sweeps import thinned

SMALL = {"limit": 8, "superpixels": 40, "eps": 0.3, "tol": 0.1}
NETWORK = {"model": "network", "limit": 8, "superpixels": 40, "epochs": 2}


@pytest.fixture(scope="session")
def horses(tmp_path_factory):
    """A whole run of the linear model."""
    config = Config(out=tmp_path_factory.mktemp("horses"), **SMALL)
    return config, main(config)


@pytest.fixture
def nets(tmp_path):
    return Config(out=tmp_path / "nets", **NETWORK)


def test_training_beats_what_looks_at_no_image(horses):
    config, result = horses
    content = numbers(config.out)
    scores = content["scores"]["dev"]
    assert scores["linear, graph cut"]["iou"] == result["dev_iou"]
    assert result["dev_iou"] > scores["all background"]["iou"] == 0
    best = scores["best of these superpixels"]["iou"]
    assert best > result["dev_iou"] > 0.3
    assert set(scores) > {"ellipse", "mean mask", "superpixels alone"}
    for name in ("sheet.png", "path.png"):
        assert (config.out / name).read_bytes().startswith(b"\x89PNG")


def test_each_lambda_has_its_certificate(horses):
    content = numbers(horses[0].out)
    rows = content["history"]
    assert len(rows) > 2 and [r["lam"] for r in rows] == sorted(
        (r["lam"] for r in rows), reverse=True
    )
    assert all(0 <= row["gap"] <= linear.KAPPA * 0.3 + 1e-9 for row in rows)
    chosen = max(rows, key=lambda row: row["dev_iou"])
    for end in content["solved"].values():
        assert end["lam"] == chosen["lam"] and 0 <= end["gap"] <= 0.1


def test_new_images_are_segmented(horses, tmp_path, capsys):
    config, _ = horses
    known = horse_segmentation.drawn.make(12)["test"]
    source = tmp_path / "new"
    source.mkdir()
    for example in known:
        Image.fromarray(example.image).save(source / f"{example.name}.png")
    found = main(dataclasses.replace(config, predict=source))
    assert found["images"] == len(known)
    rows = json.loads((config.out / "predicted" / "predicted.json").read_text())
    for row, example in zip(rows["images"], known, strict=True):
        mask = np.asarray(Image.open(config.out / "predicted" / row["mask"])) > 0
        assert mask.shape == example.mask.shape
        assert row["figure"] == pytest.approx(mask.mean())
        picture = np.asarray(Image.open(config.out / "predicted" / row["picture"]))
        assert picture.shape == example.image.shape
        if row["box"] is not None:
            left, top, right, bottom = row["box"]
            assert mask[top:bottom, left:right].sum() == mask.sum() > 0
    one = main(dataclasses.replace(config, predict=source / f"{known[0].name}.png"))
    assert one["images"] == 1


@pytest.mark.parametrize("loss", thinned(["hinge", "cross-entropy"], 2))
def test_a_network_learns_and_segments(loss, nets):
    whole = dataclasses.replace(nets, loss=loss)
    main(whole)
    rows = numbers(whole.out)["history"]
    assert 0 < rows[1]["loss"] < rows[0]["loss"]
    model = model_folder.load(whole.model_folder)
    assert model.kind == "network" and model.about["settings"]["loss"] == loss
    path = nets.out / "one.png"
    Image.fromarray(horse_segmentation.drawn.make(3)["test"][0].image).save(path)
    assert main(dataclasses.replace(whole, predict=path))["images"] == 1
    model.about["settings"]["loss"] = "mse"
    model_folder.save(whole.model_folder, model)
    with pytest.raises(ValueError, match=r"edited .* known loss, got 'mse'"):
        main(dataclasses.replace(whole, predict=path))


def test_the_backbone_is_efficientnet_lite0(tmp_path):
    net = network.Segmenter("efficientnet-lite0").train()
    maps = net.backbone(torch.zeros(1, 3, 64, 96))
    sizes = [tuple(x.shape[1:]) for x in maps]
    assert sizes == [(24, 16, 24), (40, 8, 12), (112, 4, 6)]
    assert not any(module.training for module in net.backbone.backbone.modules())
    with pytest.raises(FileNotFoundError, match="weights: expected a file"):
        network.Segmenter("efficientnet-lite0", str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"model": "tree"}, "model: expected one of linear, network, got 'tree'"),
        ({"cost": "iou"}, "cost: expected one of balanced, pixels, got"),
        ({"loss": "mse"}, "loss: expected one of hinge, cross-entropy, got"),
        ({"backbone": "vit"}, "backbone: expected one of small, efficientnet-lite0"),
        ({"epochs": 0}, "epochs: expected at least 1, got 0"),
        ({"limit": 2}, "limit: expected at least 3, got 2"),
        ({"side": 20}, "side: expected at least 32, got 20"),
        ({"superpixels": 1}, "superpixels: expected at least 2, got 1"),
        ({"eps": 0.0}, "eps: expected a number between 0 and 1, got 0"),
        ({"tol": 2.0}, "tol: expected a number between 0 and 1, got 2"),
        ({"data": "nowhere"}, "data: expected a folder of images and masks"),
    ],
)
def test_wrong_arguments_are_one_line(wrong, message, tmp_path):
    for name in ("data", "predict"):
        if name in wrong:
            wrong = wrong | {name: tmp_path / wrong[name]}
    with pytest.raises((ValueError, OSError), match=message) as caught:
        main(Config(**{"out": tmp_path / "none", "limit": 3} | wrong))
    assert "\n" not in str(caught.value)


def test_images_to_segment_have_to_be_there(horses, tmp_path):
    config = horses[0]
    for source, message in (
        (tmp_path, "predict: expected images in .*, found none"),
        (tmp_path / "none.png", "predict: expected an image or a folder of images"),
    ):
        with pytest.raises((ValueError, OSError), match=message):
            main(dataclasses.replace(config, predict=source))


def test_a_broken_image_is_named_and_the_others_are_segmented(horses, tmp_path, capsys):
    (tmp_path / "bad.png").write_bytes(b"nothing")
    config = dataclasses.replace(horses[0], predict=tmp_path)
    for skip_bad in (False, True):
        with pytest.raises(ValueError, match=r"^left out 1 of 1 images, named above"):
            main(dataclasses.replace(config, skip_bad=skip_bad))
    example = horse_segmentation.drawn.make(12)["test"][0]
    Image.fromarray(example.image).save(tmp_path / "good.png")
    with pytest.raises(ValueError, match=r"^left out 1 of 2 images, named above"):
        main(config)
    assert "bad.png: expected an image, got a file" in capsys.readouterr().err
    written = json.loads((config.out / "predicted" / "predicted.json").read_text())
    assert [row["mask"] for row in written["images"]] == ["good-mask.png"]
    assert main(dataclasses.replace(config, skip_bad=True))["images"] == 1


def test_results_of_two_images_are_never_one_file(horses, tmp_path):
    for name in ("a.png", "a-mask.jpg"):
        (tmp_path / name).touch()
    with pytest.raises(ValueError, match=r"got 2 whose results are called a-mask\.png"):
        main(dataclasses.replace(horses[0], predict=tmp_path))


def test_a_model_whose_description_was_edited_is_refused(horses, tmp_path):
    config, content = files.read(horses[0].model_folder)
    edited = {"kind": "network"} | {"about": {"settings": {"backbone": "small"}}}
    files.write(tmp_path / "model", config | edited, content)
    with pytest.raises(ValueError, match="expected a checkpoint or model of this"):
        main(dataclasses.replace(horses[0], predict=tmp_path, out=tmp_path))


@pytest.mark.parametrize(
    "edited",
    [
        {"kind": "x"},
        {"side": "x"},
        {"side": 0},
        {"superpixels": 0},
        {"superpixels": 2.5},
    ],
)
def test_numbers_that_were_edited_are_named(edited, horses, tmp_path):
    config, content = files.read(horses[0].model_folder)
    files.write(tmp_path / "model", config | edited, content)
    (name,) = edited
    with pytest.raises(ValueError, match=f"model of this recipe, .* {name}: "):
        model_folder.load(tmp_path / "model")


def test_weights_of_another_size_are_named(horses, tmp_path):
    config, content = files.read(horses[0].model_folder)
    weights = safetensors.torch.load(content[model_folder.WEIGHTS])
    for name in ("colours", "textures", "weights.w"):
        for wrong in (weights[name][:-1], weights[name] + np.nan):
            other = safetensors.torch.save(weights | {name: wrong})
            files.write(tmp_path / "model", config, {model_folder.WEIGHTS: other})
            shown = name.removesuffix(".w")
            with pytest.raises(ValueError, match=f"this recipe, .* {shown}: "):
                model_folder.load(tmp_path / "model")
