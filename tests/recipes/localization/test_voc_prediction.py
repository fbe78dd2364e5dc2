"""A trained localiser on a folder of new images."""

import dataclasses
import json

import pytest
from PIL import Image

from localization import prediction, toy
from smoothsp.models import load
from voc_localization import main


@pytest.fixture(scope="module")
def trained(localise, tmp_path_factory):
    config = localise(tmp_path_factory.mktemp("trained"), passes=2)
    return config, main(config)


@pytest.fixture
def images(tmp_path):
    folder = toy.make(tmp_path, {"train": 2}, seed=9) / "JPEGImages"
    (folder / "notes.txt").write_text("no image")
    return folder


def test_boxes_of_new_images_are_drawn_and_written(trained, images):
    config, _ = trained
    answer = main(dataclasses.replace(config, predict=images, nbest=2))
    assert answer == {"images": 2}
    content = json.loads((config.out / "predictions.json").read_text())
    assert content["class"] == "ladybird"
    localiser = load(config.model_folder, "cpu")
    assert localiser.side == config.side
    for path in sorted(images.glob("*.jpg")):
        (found,) = localiser.locate([path], 2)
        assert content["images"][path.name] == json.loads(found.json())
        assert 1 <= len(found.boxes) <= 2
        drawn = config.out / "predictions" / f"{path.name}.png"
        with Image.open(drawn) as figure:
            assert figure.size[0] > 300
    assert set(content["images"]) == {p.name for p in images.glob("*.jpg")}


def test_a_broken_image_is_named_and_the_others_are_written(trained, images, capsys):
    (images / "a.jpg").write_bytes(b"no image")
    config = dataclasses.replace(trained[0], predict=images)
    with pytest.raises(
        ValueError, match=r"^left out 1 of 3 images, named above\. Mend"
    ):
        main(config)
    assert f"{images / 'a.jpg'}: expected an image, got" in capsys.readouterr().err
    path = config.out / "predictions.json"
    assert len(json.loads(path.read_text())["images"]) == 2
    assert main(dataclasses.replace(config, skip_bad=True)) == {"images": 2}


def test_the_saved_model_finds_what_the_run_found(trained):
    config, result = trained
    assert result["best_round"] >= 0
    localiser = load(config.model_folder, "cpu")
    assert localiser.kind == "ladybird"
    assert localiser.about["val_corloc"] == result["val_corloc"]


def test_what_cannot_be_predicted_is_named(trained, images, tmp_path):
    config, _ = trained
    for folder, message in (
        (
            tmp_path / "none",
            r"predict: expected a folder of images, .*\. Put a single image",
        ),
        (tmp_path, "predict: expected images .*found none in"),
    ):
        with pytest.raises((ValueError, OSError), match=message):
            main(dataclasses.replace(config, predict=folder))
    elsewhere = dataclasses.replace(config, predict=images, out=tmp_path / "other")
    with pytest.raises(FileNotFoundError, match="expected a model, found no"):
        main(elsewhere)


def test_the_model_of_another_recipe_is_named(trained, images, monkeypatch):
    monkeypatch.setattr(prediction, "load", lambda _: object())
    with pytest.raises(
        ValueError, match="out: expected the folder of a localiser, got"
    ):
        main(dataclasses.replace(trained[0], predict=images))
