"""Segmenters: training from Python, scores, folders; superpixels as a graph."""

import os
import re
import sys

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image

from smoothsp.models import Segmenter, files, load
from smoothsp.models import segmenter_training as training
from smoothsp.models.segmenter import mask_scores
from smoothsp.models.segmenter_network import SegmenterNetwork, collate
from smoothsp.models.superpixels import EDGE_FEATURES, adjacent_pairs, build_graph, slic
from tests.recipes.runs import die, killed
from tests.sweeps import thinned

SMALL = {"side": 48, "superpixels": 30, "epochs": 2}


def draw(number, height=40, width=48):
    """A bright disc on dark ground, both noisy."""
    chance = np.random.default_rng(number)
    rows, columns = np.mgrid[:height, :width]
    y, x = chance.uniform(14, 26), chance.uniform(16, 32)
    mask = (rows - y) ** 2 + (columns - x) ** 2 < chance.uniform(8, 12) ** 2
    image = np.where(mask[..., None], (190, 160, 90), (60, 80, 70))
    noisy = image + chance.normal(0, 12, image.shape)
    return noisy.clip(0, 255).astype(np.uint8), mask


@pytest.fixture(scope="module")
def pairs():
    return [draw(number) for number in range(8)]


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="module")
def segmenter(pairs, out):
    more = [draw(number) for number in range(100, 124)]
    return Segmenter.train(more, pairs, out=out, **SMALL | {"epochs": 8})


@pytest.fixture
def untrained():
    torch.manual_seed(0)
    return Segmenter(SegmenterNetwork("small"), side=48, superpixels=30)


def weights(segmenter):
    return {name: x.clone() for name, x in segmenter.network.state_dict().items()}


def same(one, other):
    torch.testing.assert_close(weights(one), weights(other), rtol=0, atol=0)


# --- training ---


def test_a_segmenter_learns_discs(segmenter, pairs):
    found = segmenter.evaluate([draw(number) for number in range(20, 24)])
    assert list(found) == ["iou", "accuracy"] and found["iou"] > 0.6
    rows = segmenter.about["history"]
    assert [row["epoch"] for row in rows] == [*range(1, 9)]
    assert 0 < rows[-1]["loss"] < rows[0]["loss"]
    best = max(row["iou"] for row in rows)
    assert segmenter.evaluate(pairs)["iou"] == pytest.approx(best)
    assert not segmenter.network.training and not segmenter.about["interrupted"]


@pytest.mark.parametrize(
    "options", thinned([{"loss": "cross-entropy"}, {"cost": "pixels"}], 2)
)
def test_every_loss_learns(options, pairs):
    found = Segmenter.train(pairs, pairs, **SMALL | options)
    rows = found.about["history"]
    assert rows[1]["loss"] < rows[0]["loss"]
    assert found.about["settings"].items() >= options.items()


def test_files_pairs_and_dictionaries_are_the_same_data(pairs, tmp_path):
    few, paths = pairs[:3], []
    for number, (image, mask) in enumerate(few):
        own = [tmp_path / kind / f"{number}.png" for kind in ("images", "masks")]
        for path, pixels in zip(own, (image, 255 * mask.astype(np.uint8)), strict=True):
            path.parent.mkdir(exist_ok=True)
            Image.fromarray(pixels).save(path)
        paths.append(own)
    first = Segmenter.train(few, **SMALL | {"epochs": 1})
    for data in (
        tmp_path,
        [[str(image), str(mask)] for image, mask in paths],
        [{"image": image, "mask": 1 * mask} for image, mask in few],
        [
            {"image": Image.fromarray(image), "label": Image.fromarray(mask)}
            for image, mask in few
        ],
    ):
        same(first, Segmenter.train(data, **SMALL | {"epochs": 1}))
        assert first.evaluate(data) == first.evaluate(few)


def test_one_image_in_ten_is_held_out(pairs, monkeypatch):
    counts = []
    monkeypatch.setattr(
        training, "_build_image_set", lambda x, _: counts.append(len(x))
    )
    for count in (19, 20, 31):
        with pytest.raises(AttributeError):
            Segmenter.train(pairs[:1] * count)
    assert counts == [19, 19, 18, 2, 27, 4]


# --- resuming ---


def test_a_killed_run_goes_on_bit_for_bit(pairs, tmp_path, monkeypatch):
    whole = Segmenter.train(pairs, out=tmp_path / "whole", **SMALL)
    replace, left = os.replace, [1]

    def counted(source, target):
        if os.path.basename(target) == "checkpoint.ckpt":
            left[0] -= 1
            if left[0] < 0:
                die()
        replace(source, target)

    part = tmp_path / "part"
    monkeypatch.setattr(os, "replace", counted)
    killed(lambda: Segmenter.train(pairs, out=part, **SMALL))
    monkeypatch.undo()
    again = Segmenter.train(pairs, out=part, resume=True, **SMALL)
    same(again, whole)
    same(load(part / "model", "cpu"), whole)
    with pytest.raises(ValueError, match="loss: expected hinge as in the run to resum"):
        Segmenter.train(pairs, out=part, resume=True, loss="cross-entropy", **SMALL)
    with pytest.raises(ValueError, match=r"data: expected 8 .* got 7"):
        Segmenter.train(pairs[:7], out=part, resume=True, **SMALL)


def test_a_second_run_is_refused(segmenter, out, pairs):
    with pytest.raises(ValueError, match=f"out: .* without a run, got {out}"):
        Segmenter.train(pairs, out=out)


# --- prediction ---


def test_masks_have_the_sizes_of_their_images(segmenter, tmp_path):
    image, mask = draw(30)
    large = np.asarray(Image.fromarray(image).resize((120, 100)))
    path = tmp_path / "a.png"
    Image.fromarray(image).save(path)
    found = segmenter.predict([path, str(path), Image.fromarray(image), image, large])
    assert [x.shape for x in found] == [(40, 48)] * 4 + [(100, 120)]
    assert all(x.dtype == bool and (x == found[0]).all() for x in found[:4])
    assert mask_scores([mask], found[:1])["iou"] > 0.6
    assert segmenter.predict([]) == []
    (tiny,) = segmenter.predict([np.zeros((1, 90, 3), np.uint8)])
    assert tiny.shape == (1, 90)


@pytest.mark.parametrize("loss", ["hinge", "cross-entropy"])
def test_superpixels_are_labelled_together_or_alone(loss, pairs):
    torch.manual_seed(0)
    segmenter = Segmenter(SegmenterNetwork("small"), loss, 48, 30)
    # neighbours that have to agree
    torch.nn.init.constant_(segmenter.network.neighbours, 9.0)
    torch.nn.init.zeros_(segmenter.network.last[-1].bias)
    torch.nn.init.normal_(segmenter.network.last[-1].weight)
    graphs = [build_graph(image, 30) for image, _ in pairs]
    labels = segmenter.label([image for image, _ in pairs], graphs)
    assert [len(x) for x in labels] == [len(graph.sizes) for graph in graphs]
    mixed = [len(set(x)) for x in labels]
    assert set(mixed) == {1} if loss == "hinge" else 2 in mixed


def test_images_of_a_batch_do_not_depend_on_each_other(pairs):
    torch.manual_seed(0)
    network = SegmenterNetwork("small")
    images = [pairs[0][0], pairs[1][0][:30, :20]]
    graphs = [build_graph(images[0], 30), build_graph(images[1], 8)]
    both, alone = collate(images, graphs, 64), collate(images[:1], graphs[:1], 64)
    with torch.no_grad():
        first = network(both)[0, : len(graphs[0].sizes)]
        torch.testing.assert_close(first, network(alone)[0], rtol=1e-4, atol=1e-4)


def test_a_mirrored_image_has_the_loss_of_its_mirrored_graph(untrained, pairs):
    pictures = training._build_image_set(training.as_masks(pairs[:1]), untrained)
    torch.manual_seed(1)
    with torch.no_grad():
        losses = [
            training._compute_loss(untrained, pictures, [0], "balanced").item()
            for _ in range(12)
        ]
    assert len({round(loss, 5) for loss in losses}) == 2


def test_scores_of_masks():
    one = np.array([[True, True], [False, False]])
    other = np.array([[True, False], [True, False]])
    none = np.zeros((2, 2), bool)
    assert mask_scores([one, other], [one, none]) == {"iou": 0.5, "accuracy": 0.75}
    assert mask_scores([one], [other])["iou"] == 1 / 3
    assert mask_scores([none, one], [none, none])["iou"] == 0.5


# --- wrong arguments ---


@pytest.mark.parametrize(
    ("data", "options", "error", "message"),
    [
        (None, {"loss": "mse"}, ValueError, "loss: expected one of hinge, cross-ent"),
        (None, {"cost": "iou"}, ValueError, "cost: expected one of balanced, pixels"),
        (None, {"backbone": "vit"}, ValueError, "backbone: expected one of small, eff"),
        (None, {"epochs": 0}, ValueError, "epochs: expected an int from 1 on, got 0"),
        (None, {"seed": -1}, ValueError, "seed: expected an int from 0 on, got -1"),
        (None, {"side": 4}, ValueError, "side: expected an int from 16 to 4096, got 4"),
        (None, {"superpixels": 1.5}, TypeError, "superpixels: expected int, got float"),
        (None, {"trainer": {"gpus": 1}}, TypeError, "trainer: expected .*, got 'gpus'"),
        (None, {"epoch": 1}, TypeError, "epoch"),
        ([], {}, ValueError, "data: expected at least one image, got none"),
        (7, {}, TypeError, "data: expected a folder, pairs .*, got int"),
        (["a.png"], {}, TypeError, r"data\[0\]: expected a pair .*, got str"),
        ([{"image": 1, "box": 2}], {}, TypeError, r"data\[0\]: .* keys image, box"),
        ([(3, np.ones((4, 4)))], {}, TypeError, r"data\[0\]: expected a file, .* int"),
        ("nowhere", {}, FileNotFoundError, "data: expected a folder of images and"),
    ],
)
def test_wrong_arguments_are_one_line(data, options, error, message, pairs):
    with pytest.raises(error, match=message) as caught:
        Segmenter.train(pairs[:2] if data is None else data, **SMALL | options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("images", "error", "message"),
    [
        ("a.png", TypeError, r"images: expected a list .* write \[image\]"),
        (None, TypeError, "images: expected a list of images, got NoneType"),
        ([3], TypeError, r"images\[0\]: expected a file, .* got int"),
        ([np.zeros((3, 3))], TypeError, r"images\[0\]: .* got float64 \(3, 3\)"),
        ([np.zeros((0, 3, 3), np.uint8)], ValueError, r"images\[0\]: expected pixels"),
        ([__file__], ValueError, "test_segmenter.py: expected an image, got a file"),
    ],
)
def test_wrong_images_are_named(images, error, message, untrained):
    with pytest.raises(error, match=message):
        untrained.predict(images)


# --- a model is a folder ---


def test_a_saved_segmenter_finds_the_same_masks(segmenter, out, pairs):
    again = load(out / "model", "cpu")
    assert isinstance(again, Segmenter)
    same(again, segmenter)
    for name in ("loss", "side", "superpixels", "about"):
        assert getattr(again, name) == getattr(segmenter, name)
    images = [image for image, _ in pairs]
    np.testing.assert_equal(again.predict(images), segmenter.predict(images))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"backbone": "vgg"}, "segmenter, .* expected one of small, efficientnet"),
        ({"backbone": ["small"]}, "segmenter, .* expected one of small, efficientnet"),
        ({"backbone": "efficientnet-lite0"}, r"expected \d+ tensors, got"),
        ({"loss": "mse"}, "segmenter, .* loss: expected one of hinge"),
        ({"loss": None}, "segmenter, .* loss: expected one of hinge"),
        ({"side": 10**9}, "segmenter, .* side: expected an int from 16 to 4096"),
        ({"side": "48"}, "segmenter, .* side: expected an int"),
        ({"superpixels": True}, "segmenter, .* superpixels: expected an int from 2"),
        ({"about": 3}, "expected about to be a JSON object, got 3"),
        ({"auto_map": {"x": "evil"}}, "auto_map: expected fields of a smoothsp.models"),
        ({"weights": "x.pth"}, "weights: expected fields of a smoothsp.models.Segment"),
        ({"version": 2}, "in version 1, got 'smoothsp.models.Segmenter' in version 2"),
    ],
)
def test_folders_that_were_edited_are_refused(change, message, untrained, tmp_path):
    untrained.save(tmp_path)
    config, content = files.read(tmp_path)
    files.write(tmp_path, config | change, content)
    with pytest.raises(ValueError, match=f"^{re.escape(str(tmp_path))}.*: .*{message}"):
        load(tmp_path)


def test_weights_that_were_edited_are_named(untrained, tmp_path):
    untrained.save(tmp_path)
    config, content = files.read(tmp_path)
    good = safetensors.torch.load(content["model.safetensors"])
    name = "last.4.weight"
    for wrong, message in (
        ({name: good[name][:, :-1].contiguous()}, rf"\(1, 32, .* for {name}"),
        ({name: good[name] * torch.nan}, f"{name}"),
        ({"more": good[name].clone()}, "1 too many"),
    ):
        bytes_ = safetensors.torch.save(good | wrong)
        files.write(tmp_path, config, {"model.safetensors": bytes_})
        with pytest.raises(ValueError, match=f"safetensors: expected .*{message}"):
            load(tmp_path)
    files.write(tmp_path, config, {"other": b""})
    with pytest.raises(ValueError, match=r"checksum of model.safetensors, got none"):
        load(tmp_path)


def test_a_library_that_is_missing_is_named(untrained, monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(ModuleNotFoundError, match=r"opencv.*smoothsp\[localiser\]"):
        build_graph(draw(0)[0], 30)


# --- superpixels ---


@pytest.fixture(scope="module")
def graph(pairs):
    return build_graph(pairs[0][0], 30)


def test_superpixels_are_pieces_of_the_image(pairs):
    pixels = slic(pairs[0][0], 30)
    assert pixels.shape == pairs[0][1].shape
    assert set(np.unique(pixels)) == set(range(pixels.max() + 1))
    assert 15 < pixels.max() < 60


def test_neighbours_touch_and_borders_are_counted():
    pixels = np.array([[0, 0, 1], [2, 2, 1], [2, 2, 1]])
    index, borders = adjacent_pairs(pixels)
    assert index.tolist() == [[0, 1], [0, 2], [1, 2]]
    assert borders.tolist() == [1, 2, 2]
    index, borders = adjacent_pairs(np.zeros((3, 3), int))
    assert index.shape == (0, 2) and borders.shape == (0,)


def test_contrasts_are_low_between_superpixels_that_look_alike(graph, pairs):
    assert graph.edges.shape == (len(graph.index), EDGE_FEATURES)
    assert (graph.edges[:, 0] == 1).all()
    assert (graph.edges >= 0).all() and (graph.edges <= 1).all()
    first, second = graph.gold(pairs[0][1])[graph.index].T
    inside, across = graph.edges[first == second], graph.edges[first != second]
    assert (inside[:, 1:].mean(0) > across[:, 1:].mean(0)).all()


def test_an_image_of_one_colour_is_a_graph():
    flat = np.full((20, 30, 3), 90, np.uint8)
    graph = build_graph(flat, 2)
    assert np.isfinite(graph.edges).all()
    assert graph.mask(np.ones(len(graph.sizes), int)).all()


def test_costs_are_shares_of_pixels_or_of_classes(graph, pairs):
    mask = pairs[0][1]
    gold = graph.gold(mask)
    assert set(gold) == {0, 1}
    for kind in ("balanced", "pixels"):
        np.testing.assert_allclose(graph.costs(gold, kind).sum(), 1)
    balanced = graph.costs(gold, "balanced")
    np.testing.assert_allclose(balanced[gold == 1].sum(), 0.5)
    # of a class that is not there nothing can be wrong
    np.testing.assert_allclose(graph.costs(0 * gold, "balanced").sum(), 1)
    best = (graph.mask(gold) == mask).sum()
    for v in range(len(gold)):
        turned = gold.copy()
        turned[v] = 1 - turned[v]
        assert (graph.mask(turned) == mask).sum() <= best
