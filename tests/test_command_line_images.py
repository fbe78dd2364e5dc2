"""The command smoothsp on images: boxes, several objects and masks."""

import json
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from PIL import Image

from smoothsp import command_line
from smoothsp.data import read_boxes
from smoothsp.data.images import read_image
from smoothsp.models import Segmenter, load
from smoothsp.models.backbones import backbone
from smoothsp.models.box_scores import FeatureScale, LinearScores, ObjectScores
from smoothsp.models.candidates import Proposals, Windows
from smoothsp.models.localiser import Localiser, LocaliserNetwork
from smoothsp.models.segmenter_network import SegmenterNetwork

CHANNELS, CLASSES = 112, ["cat", "dog"]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folders of models with weights at random."""
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    layers = backbone("efficientnet-lite0", "random")
    ones, twelve = torch.ones(CHANNELS), torch.ones(12)
    one = LinearScores(FeatureScale(ones, ones, twelve, twelve))
    several = ObjectScores(ones, ones, 2)
    with torch.no_grad():
        for weight in (*one.parameters(), *several.parameters()):
            weight.add_(torch.randn_like(weight))
    network = LocaliserNetwork(layers, one)
    Localiser(network, ["dog"], Proposals("grid", 40), 64).save(folder / "one")
    windows = Windows(((30.0, 30.0), (50.0, 40.0)))
    network = LocaliserNetwork(layers, several)
    Localiser(network, CLASSES, windows, 64).save(folder / "several")
    segmenter = Segmenter(SegmenterNetwork("small"), side=48, superpixels=30)
    segmenter.save(folder / "segmenter")
    return folder


@pytest.fixture
def images(tmp_path):
    """A folder of two images, one of which is called like the other."""
    folder, draw = tmp_path / "images", np.random.default_rng(0)
    folder.mkdir()
    for name, size in (("a.png", (60, 80, 3)), ("a.bmp", (70, 50, 3))):
        pixels = draw.integers(0, 255, size).astype(np.uint8)
        Image.fromarray(pixels).save(folder / name)
    return folder


@pytest.fixture
def said(capsys):
    """Run a command; what it writes on standard output."""

    def run(*arguments):
        capsys.readouterr()
        command_line.main([str(x) for x in arguments])
        return capsys.readouterr().out

    return run


def test_boxes_are_lines_of_json(models, images, said):
    found = said("predict", models / "one", images, "--nbest", 2).splitlines()
    paths = [images / "a.bmp", images / "a.png"]
    answers = load(models / "one", "cpu").predict(paths, 2)
    for line, path, answer in zip(found, paths, answers, strict=True):
        assert json.loads(line) == {"image": str(path), **json.loads(answer.json())}
    (one,) = said("predict", models / "one", paths[1]).splitlines()
    assert len(json.loads(one)["boxes"]) == 1


def test_one_object_is_drawn_into_a_folder(models, images, said, tmp_path):
    out = tmp_path / "new" / "out"
    assert said("predict", models / "one", images, "-o", out) == ""
    names = {"a.bmp.png", "a.png.png", "predictions.json"}
    assert {path.name for path in out.iterdir()} == names
    found = json.loads((out / "predictions.json").read_text())
    assert (found["class"], set(found["images"])) == ("dog", {"a.bmp", "a.png"})
    drawn, before = read_image(out / "a.png.png"), read_image(images / "a.png")
    assert drawn.shape == before.shape
    box = found["images"]["a.png"]["boxes"][0]["box"]
    left, bottom = round(box[0]), round(box[3])
    assert tuple(drawn[bottom - 5, left]) == (0x00, 0x72, 0xB2)


def test_several_objects_are_what_readers_of_boxes_read(models, images, said, tmp_path):
    out = tmp_path / "out"
    (images / "a.bmp").rename(images / "b.bmp")
    said("predict", models / "several", images, "-o", out, "--nbest", 5)
    names = {"a.png", "a.xml", "b.png", "b.xml", "predictions.json"}
    assert {path.name for path in out.iterdir()} == names
    answers = load(models / "several", "cpu").predict(sorted(images.iterdir()), 5)
    found = json.loads((out / "predictions.json").read_text())
    assert [x["name"] for x in found["categories"]] == CLASSES
    assert [x["file_name"] for x in found["images"]] == ["a.png", "b.bmp"]
    assert len(found["annotations"]) == sum(len(x.boxes) for x in answers) > 0
    for row in found["annotations"]:
        _, _, across, down = row["bbox"]
        assert row["area"] == across * down
    for path, answer in zip(("a.xml", "b.xml"), answers, strict=True):
        objects = ElementTree.parse(out / path).findall("object")
        assert [x.findtext("name") for x in objects] == answer.labels
        for thing, box in zip(objects, answer.boxes, strict=True):
            corners = [float(x.text) for x in thing.find("bndbox")]
            counted = [box[0] + 1, box[1] + 1, *box[2:]]
            assert corners == pytest.approx(counted, abs=1e-3)
    (out / "predictions.json").rename(images / "boxes.json")
    again = read_boxes(images / "boxes.json")
    assert [x.path.name for x in again] == ["a.png", "b.bmp"]
    assert [list(x.labels) for x in again] == [x.labels for x in answers]


def test_masks_are_written_with_pictures_and_numbers(models, images, said, tmp_path):
    out = tmp_path / "out"
    command = ("predict", models / "segmenter", images / "a.png")
    with pytest.raises(ValueError, match=r"^out: expected a folder for the masks"):
        said(*command)
    said(*command, "-o", out)
    (mask,) = load(models / "segmenter", "cpu").predict([images / "a.png"])
    written = read_image(out / "a-mask.png", "L")
    assert np.array_equal(written, 255 * mask)
    assert read_image(out / "a.png").shape == (60, 80, 3)
    (row,) = json.loads((out / "predictions.json").read_text())["images"]
    assert row["figure"] == pytest.approx(mask.mean())
    left, top, right, bottom = row["box"]
    assert mask[top:bottom, left:right].sum() == mask.sum()
    assert mask[top].any() and mask[bottom - 1].any()
    assert mask[:, left].any() and mask[:, right - 1].any()


def test_bad_images_do_not_take_others_along(models, images, said, capsys):
    (images / "b.jpg").write_text("no image")
    with pytest.raises(ValueError, match=r"left out 1 of 3 images.*add --skip-bad"):
        said("predict", models / "one", images)
    written = capsys.readouterr()
    assert written.out.count("\n") == 2
    assert "b.jpg: expected an image, got a file that does not decode" in written.err
    assert said("predict", models / "one", images, "--skip-bad") == written.out
    with pytest.raises(FileNotFoundError, match="expected an image or a folder"):
        said("predict", models / "one", images / "none")
    (images / "empty").mkdir()
    with pytest.raises(ValueError, match=r"expected images .*, got none"):
        said("predict", models / "one", images / "empty")
    with pytest.raises(ValueError, match=r"^show: expected a Tagger or Parser or"):
        said("predict", models / "one", images, "--show", "json")


def test_scores_of_masks_are_those_of_the_model(models, images, said, tmp_path):
    folder = tmp_path / "horses"
    for name in ("images", "masks"):
        (folder / name).mkdir(parents=True)
    (images / "a.png").rename(folder / "images" / "a.png")
    half = np.zeros((60, 80), np.uint8)
    half[:, 40:] = 255
    Image.fromarray(half).save(folder / "masks" / "a.png")
    scores = load(models / "segmenter", "cpu").evaluate(folder)
    command = ("evaluate", models / "segmenter", folder)
    assert json.loads(said(*command, "--json")) == scores
    table = said(*command)
    for key, value in scores.items():
        assert key in table
        assert f"{100 * value:.2f}" in table
