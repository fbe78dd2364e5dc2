"""Several objects in an image: the structure, its losses, and the command."""

import dataclasses
import itertools
import json
import re

import numpy as np
import pytest
import torch
from PIL import Image
from pycocotools.coco import COCO
from torchvision.ops import box_iou

import voc_localization
from localization import toy
from localization.several import annotations, detection, figures, losses
from localization.several.images import OVERLAP, SAME
from localization.several.packing import cliques, conflicts, packing, undominated
from localization.several.windows import shapes, windows
from runs import checkpoint
from smoothsp.data.boxes import read_annotation
from tests.recipes.runs import numbers
from voc_localization import Config, main

OBJECT = "<object><name>{}</name><bndbox>{}</bndbox></object>"


def boxes_of(seed, count, side=40):
    chance = np.random.default_rng(seed)
    corners = chance.uniform(0, side, (count, 2))
    sizes = chance.uniform(10, 25, (count, 2))
    return torch.tensor(np.concatenate([corners, corners + sizes], 1)).float()


def sets_of(boxes):
    """All sets of boxes of which none overlap too much."""
    apart = box_iou(boxes, boxes) <= OVERLAP
    for used in itertools.product((False, True), repeat=len(boxes)):
        mask = torch.tensor(used)
        own = apart[mask][:, mask]
        if bool((own | torch.eye(len(own), dtype=torch.bool)).all()):
            yield mask


def test_boxes_on_difficult_objects_count_neither_way():
    true = torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([0])
    hard = torch.tensor([[20.0, 0, 30, 10]]), torch.tensor([0])
    none = torch.zeros(0, 4), torch.zeros(0, dtype=torch.long)

    def precision(*boxes, difficult=hard):
        count = len(boxes)
        scores = torch.linspace(1, 0.5, count)
        found = detection.Found(
            torch.tensor(boxes), torch.zeros(count).long(), scores, count
        )
        return detection.precision([found], [true], ["cup"], [difficult])["map50"]

    right, on_hard = [0.0, 0, 10, 10], [20.0, 0, 30, 10]
    assert precision(on_hard, right) == precision(right) == 1
    assert precision(on_hard, right, difficult=none) == pytest.approx(0.5)
    # it has to overlap as much as a true one
    assert precision([20.0, 0, 24, 10], right) == pytest.approx(0.5)


@pytest.mark.parametrize("seed", range(3))
def test_the_best_set_is_that_of_enumeration(seed):
    boxes, chance = boxes_of(seed, 10), torch.Generator().manual_seed(seed)
    scores = torch.randn(10, generator=chance)
    found = packing(scores, boxes, OVERLAP).best()
    assert any(torch.equal(found, mask) for mask in sets_of(boxes))
    best = max(float(scores[mask].sum()) for mask in sets_of(boxes))
    assert float(scores[found].sum()) == pytest.approx(best, abs=1e-5)
    # without those of no use it is the same, but for negative scores
    positive = (scores > 0).nonzero().squeeze(1)
    kept = positive[undominated(scores[positive], boxes[positive], OVERLAP)]
    assert len(kept) < 10
    again = kept[packing(scores[kept], boxes[kept], OVERLAP).best()]
    assert float(scores[again].sum()) == pytest.approx(best, abs=1e-5)


def test_cliques_cover_all_conflicts_and_are_cliques():
    conflict = conflicts(boxes_of(4, 30), OVERLAP)
    covered = np.zeros_like(conflict)
    for clique in cliques(conflict):
        pairs = np.ix_(clique, clique)
        assert (conflict[pairs] | np.eye(len(clique), dtype=bool)).all()
        covered[pairs] = True
    np.fill_diagonal(covered, False)
    assert conflict.any() and (covered == conflict).all()


class Few:
    """Images of one: windows, and objects that are some of them but for an inch."""

    def __init__(self, seed):
        self.boxes = boxes_of(seed, 6)
        self.true = [torch.tensor([[0, 1]])]
        self.covered_by = torch.stack([torch.zeros(6), self._overlap()], 1)

    def _overlap(self):
        return box_iou(self.boxes, self.boxes[:1] + 0.5).squeeze(1)

    def windows(self, _):
        return self

    def covered(self, _):
        return self.covered_by

    def difficult(self, _):
        return torch.empty(0, 4), torch.empty(0, dtype=torch.int64)


@pytest.mark.parametrize("seed", range(3))
def test_the_hinge_is_that_of_enumeration(seed):
    image = losses.OfImage(Few(seed), 0)
    chance = torch.Generator().manual_seed(seed)
    scores = torch.randn(6, 2, generator=chance, dtype=torch.float64)
    windows = image.considered(scores, "hinge")
    assert windows[0] == 0 and sorted(windows.tolist()) == list(range(6))
    own = scores[windows]
    pairs = image.boxes.repeat_interleave(2, 0)
    cost = torch.tensor(
        [
            [-c if c > SAME else 1 for c in row]
            for row in image.covered.double().tolist()
        ]
    )
    values = [float((scores + cost).flatten()[mask].sum()) for mask in sets_of(pairs)]
    expected = max(values) - float((scores + cost)[0, 1])
    found = losses.hinge(own, image, windows, None)
    assert float(found) == pytest.approx(expected, abs=1e-5)
    # mu / 2 for each box of a set is the most that smoothing takes off, or adds
    smoothed = losses.hinge(own, image, windows, 0.01)
    assert float(found) - 0.03 < float(smoothed) < float(found) + 0.03


def test_the_likelihood_of_groups_sums_to_one():
    image = losses.OfImage(Few(1), 0)
    scores = torch.randn(6, 2, generator=torch.Generator().manual_seed(0))
    windows = image.considered(scores, "cliques")
    own = scores[windows]
    found = losses.of_cliques(own, image, windows)
    # windows of the group of the true one compete with it, others with nothing
    leaders = [0]
    for n in own.amax(1).argsort(descending=True).tolist():
        near = box_iou(image.boxes[windows[[n]]], image.boxes[windows[leaders]])
        if n and bool((near <= OVERLAP).all()):
            leaders.append(n)
    near = box_iou(image.boxes[windows], image.boxes[windows[leaders]])
    group = near.argmax(1)
    none = torch.zeros(1)
    expected = -own[0, 1]
    for n in range(len(leaders)):
        expected = expected + torch.cat([none, own[group == n].flatten()]).logsumexp(0)
    assert float(found) == pytest.approx(float(expected), abs=1e-5)


def test_windows_are_as_large_as_boxes_and_cover_an_image():
    boxes = np.float32([[5, 5, 25, 35], [40, 40, 60, 70], [0, 0, 8, 9]])
    found = shapes([boxes], [[0, 0, 0]], [(100, 80)])
    assert found == pytest.approx(np.array([[20, 30]]), rel=1e-4)
    placed = torch.from_numpy(windows(found, 100, 80))
    assert float(placed.min()) >= 0 and (placed.amax(0)[2:] <= 100).all()
    assert float(box_iou(placed, torch.tensor([[61.0, 37, 81, 67]])).max()) > 0.6


# --- the command ---


@pytest.fixture(scope="module")
def configure(ladybirds):
    data, cache = ladybirds

    def config(out, **options):
        few = {"backbone": "efficientnet-lite0", "side": 160, "passes": 3}
        about = {"objects": "several", "data": data, "cache": cache, "out": out}
        return Config(**about | few | options)

    return config


@pytest.fixture(scope="module")
def trained(configure, tmp_path_factory):
    config = configure(tmp_path_factory.mktemp("several"))
    return config, main(config)


@pytest.fixture
def images(tmp_path):
    folder = toy.make(tmp_path, {"train": 2}, seed=9) / "JPEGImages"
    (folder / "broken.jpg").write_bytes(b"no image")
    return folder


def test_numbers_and_figures_are_written(trained):
    config, result = trained
    content = json.loads((config.out / "metrics.json").read_text())
    assert content["result"] == result
    rows = content["table"]["test"]
    assert set(rows) == {*detection.DECODERS, "circles, not trained"}
    assert rows["best sets"]["map50"] == result["test_map50"]
    assert 0 <= result["test_map50"] <= 1 and result["test_recall_of_windows"] > 0.9
    losses_seen = [row["loss"] for row in content["history"]]
    assert losses_seen[0] is None and losses_seen[-1] < losses_seen[1]
    assert (config.out / "sheet.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.long
@pytest.mark.parametrize("loss", ["cliques", "softmax"])
def test_other_losses_train_the_same_network(loss, configure, tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "sheet", lambda *_: None)
    result = main(configure(tmp_path, loss=loss, passes=5))
    assert 0 <= result["test_map50"] <= 1
    rows = numbers(tmp_path)["history"]
    assert rows[-1]["loss"] < rows[1]["loss"]


def test_predictions_are_read_back_and_a_broken_image_is_named(trained, images, capsys):
    config = dataclasses.replace(trained[0], predict=images)
    with pytest.raises(ValueError, match=r"^left out 1 of 3 images"):
        main(config)
    assert "broken.jpg: expected an image, got" in capsys.readouterr().err
    answer = main(dataclasses.replace(config, skip_bad=True))
    assert answer["images"] == 2
    found = COCO(config.out / "predictions.json")
    assert len(found.anns) == answer["objects"]
    assert {x["name"] for x in found.cats.values()} == set(toy.LOOKS)
    for number in found.getImgIds():
        name = found.imgs[number]["file_name"].removesuffix(".jpg")
        own = config.out / "predictions" / f"{name}.xml"
        image = images / found.imgs[number]["file_name"]
        image = read_annotation(own, image)
        boxes = [
            (x["bbox"][0], x["bbox"][1], *np.add(x["bbox"][:2], x["bbox"][2:]))
            for x in found.loadAnns(found.getAnnIds([number]))
        ]
        assert list(image.boxes) == pytest.approx(boxes, abs=0.01)
        with Image.open(config.out / "predictions" / f"{name}.png") as figure:
            assert figure.size[0] > 300


def test_annotations_are_written_as_they_were_read(ladybirds, tmp_path):
    example = annotations.read(ladybirds[0]).lists["train"][0]
    assert len(set(example.labels)) > 1 and example.size == (toy.WIDTH, toy.HEIGHT)
    path = tmp_path / "again.xml"
    path.write_bytes(annotations.voc(example))
    found = read_annotation(path, example.image)
    assert (found.labels, found.boxes) == (example.labels, example.boxes)
    assert found.difficult == ()


def test_bad_boxes_cost_themselves_only(ladybirds, tmp_path):
    folder = toy.make(tmp_path, {"train": 2, "val": 1})
    path = folder / "Annotations" / "train000.xml"
    empty = OBJECT.format("beetle", "<xmin>5</xmin><ymin>5</ymin><xmax>4</xmax>")
    text = path.read_text()
    path.write_text(text.replace("</annotation>", f"{empty}</annotation>"))
    with pytest.raises(ValueError, match=r"beetle\): expected a number as ymax, got"):
        annotations.read(folder)
    found = annotations.read(folder, skip_bad=True)
    assert set(found.lists) == {"train", "val"} and len(found.skipped) == 1
    assert len(found.lists["train"][0].boxes) == text.count("<object>")


def test_a_model_is_evaluated_on_a_folder(trained, configure, capsys):
    config, result = trained
    answer = main(dataclasses.replace(config, evaluate=config.data))
    assert answer["map50"] == pytest.approx(result["test_map50"], abs=1e-6)
    assert re.search(r"^best sets +\d", capsys.readouterr().out, re.MULTILINE)
    assert json.loads((config.out / "evaluation.json").read_text()) == answer


@pytest.mark.long
def test_a_stopped_run_goes_on_to_the_same_numbers(
    trained, configure, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(figures, "sheet", lambda *_: None)
    config = configure(tmp_path)
    begin = voc_localization.SeveralRun.round

    def interrupted(run):
        if len(run.history) == 2:
            raise KeyboardInterrupt
        begin(run)

    with monkeypatch.context() as patch:
        patch.setattr(voc_localization.SeveralRun, "round", interrupted)
        with pytest.raises(KeyboardInterrupt):
            main(config)
    assert "add --resume to continue after round 1" in capsys.readouterr().out
    assert len(checkpoint.load(config.checkpoint)["history"]) == 2
    with pytest.raises(ValueError, match="expected a folder without a run"):
        main(config)
    with pytest.raises(ValueError, match="loss: expected hinge as in the run"):
        main(dataclasses.replace(config, resume=True, loss="softmax"))
    assert main(dataclasses.replace(config, resume=True)) == trained[1]
    assert numbers(tmp_path) == numbers(trained[0].out)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "dog"}, "class: expected none with --objects several, got dog"),
        ({"optimizer": "sgd"}, "optimizer: expected none with --objects several"),
        ({"loss": "softmax", "mu": 1.0}, "mu: expected none with --loss softmax"),
        ({"lr": 0.0}, "lr: expected a positive number, got 0"),
        ({"objects": "one"}, "class: expected the class to find, got None"),
        (
            {"objects": "one", "loss": "softmax"},
            "loss: expected none with --objects one, got softmax. Add",
        ),
    ],
)
def test_bad_configurations_are_named(options, message, configure, tmp_path):
    with pytest.raises(ValueError, match=message):
        main(configure(tmp_path, **options))
