"""Localisers as folders: saved, loaded, asked for boxes; and their features."""

import json
import os
import struct
import sys
import zlib

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional as F
from torchvision.ops import box_iou, roi_align

import smoothsp
from smoothsp.data.boxes import read_annotation, read_boxes
from smoothsp.models import files, load
from smoothsp.models import localiser as localisers
from smoothsp.models.backbones import backbone
from smoothsp.models.box_files import to_coco, to_voc
from smoothsp.models.box_scores import (
    SCORE_CLASSES,
    FeatureScale,
    LinearScores,
    NonlinearScores,
    ObjectScores,
)
from smoothsp.models.candidates import Proposals, Windows
from smoothsp.models.detection import MAX_OVERLAP
from smoothsp.models.localiser import Found, Localiser, LocaliserNetwork
from smoothsp.models.proposals import propose_boxes
from smoothsp.models.regions import (
    Appearance,
    _RoIAlign,
    geometry,
    resize_image,
    scale_boxes,
)
from smoothsp.optim import Linearised

CHANNELS = 112
BOXES = np.array([[0, 0, 40, 30], [3, 4, 9, 28], [39.8, 29.9, 40, 30]], np.float32)


@pytest.fixture(scope="module")
def features():
    return torch.randn(7, 9, CHANNELS, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def places():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(7, 12, generator=generator)


@pytest.fixture
def image():
    return np.random.default_rng(0).integers(0, 255, (30, 40, 3)).astype(np.uint8)


def scale_of(channels=CHANNELS):
    draw = torch.Generator().manual_seed(2)
    sizes = (channels, channels, 12, 12)
    return FeatureScale(*(0.5 + torch.rand(n, generator=draw) for n in sizes))


@pytest.fixture
def localiser():
    torch.manual_seed(0)
    scores = LinearScores(scale_of())
    torch.nn.init.normal_(scores.weight)
    torch.nn.init.normal_(scores.where)
    network = LocaliserNetwork(backbone("efficientnet-lite0", "random"), scores)
    return Localiser(network, ["horse"], Proposals("grid", 40), 64, {"seed": 1})


@pytest.fixture
def detector():
    """A localiser of several objects, of which some windows hold one."""
    torch.manual_seed(0)
    layers = backbone("efficientnet-lite0", "random")
    scores = ObjectScores(torch.zeros(CHANNELS), torch.ones(CHANNELS), 2)
    for p in scores.scores.parameters():
        torch.nn.init.normal_(p)
    network = LocaliserNetwork(layers, scores)
    return Localiser(network, ["cup", "pot"], Windows(((12.0, 9.0),)), 64)


# --- scores ---


def test_the_linear_score_is_a_weight_for_each_feature(features, places):
    scale = scale_of()
    scores = LinearScores(scale)
    torch.nn.init.normal_(scores.weight)
    torch.nn.init.normal_(scores.where)
    looks = ((features - scale.mean) / scale.deviation * scores.weight).sum((1, 2))
    where = (places - scale.where_mean) / scale.where_deviation
    whole = looks + 10 * where @ scores.where
    found = scores(features, places)
    # what all boxes have in common is left out
    torch.testing.assert_close(found - found[0], whole - whole[0], rtol=1e-4, atol=1e-4)


def test_the_nonlinear_score_is_convolution_elu_linear(features, places):
    scale = scale_of()
    scores = NonlinearScores(scale)
    maps = ((features - scale.mean) / scale.deviation).transpose(1, 2)
    kernel = scores.convolution.T[:, :, None, None]
    hidden = F.elu(F.conv2d(maps.unflatten(2, (3, 3)), kernel)).flatten(2)
    expected = (hidden * scores.weight.T).sum((1, 2))
    torch.testing.assert_close(scores(features, places), expected)
    torch.nn.init.normal_(scores.where)
    where = (places - scale.where_mean) / scale.where_deviation
    expected = expected + 10 * where @ scores.where
    torch.testing.assert_close(scores(features, places), expected, rtol=1e-4, atol=1e-4)


def test_a_feature_that_is_the_same_everywhere_counts_nothing(features, places):
    scale = scale_of()
    scale.deviation[3] = scale.where_deviation[5] = 0
    for kind in SCORE_CLASSES.values():
        scores = kind(scale)
        for p in scores.parameters():
            torch.nn.init.normal_(p)
        found = scores(features, places)
        found.sum().backward()
        assert all(p.grad.isfinite().all() for p in scores.parameters())
        other, elsewhere = features.clone(), places.clone()
        other[:, :, 3] = elsewhere[:, 5] = 7
        assert torch.equal(scores(other, elsewhere), found)


# --- where a box is, and what it looks like ---


def test_geometry_is_in_units_of_the_image():
    boxes = torch.tensor([[10.0, 20, 60, 40], [0, 0, 100, 50]])
    found = geometry(boxes, 100, 50)
    x, y, w, h = 0.35, 0.6, 0.5, 0.4
    first = [x, y, w, h, x * x, y * y, w * w, h * h, w * h]
    first += [np.log(w), np.log(h), np.log(2.5)]
    second = [0.5, 0.5, 1, 1, 0.25, 0.25, 1, 1, 1, 0, 0, np.log(2)]
    torch.testing.assert_close(found, torch.tensor([first, second]).float())
    twice = geometry(boxes * 2, 200, 100)
    torch.testing.assert_close(twice, found)


def test_looks_are_means_of_the_maps_inside_a_box():
    layers = backbone("efficientnet-lite0", "random")
    pixels = torch.randn(3, 96, 128)
    boxes = torch.tensor([[0.0, 0, 96, 96], [16, 32, 112, 80]])
    with torch.no_grad():
        maps, found = layers(pixels[None]), Appearance(layers)(pixels, boxes)
    assert found.shape == (2, 9, CHANNELS)
    # a third of 96 pixels are two cells: the four points lie in their middle
    grid = maps[0, :, :6, :6].unflatten(2, (3, 2)).unflatten(1, (3, 2))
    expected = grid.mean((2, 4)).flatten(1).T
    torch.testing.assert_close(found[0], expected, rtol=1e-4, atol=1e-4)


class Maps(torch.nn.Module):
    """Features of boxes as a function of the whole image's."""

    def __init__(self, maps):
        super().__init__()
        self.maps = torch.nn.Parameter(maps)

    def forward(self, boxes):
        return _RoIAlign.apply(self.maps, boxes)


def test_roi_align_has_all_derivatives():
    maps = torch.randn(1, 2, 6, 7, dtype=torch.float64)
    boxes = torch.tensor([[0.0, 0, 90, 80], [20, 30, 60, 70]], dtype=torch.float64)
    network = Maps(maps)
    found = network(boxes)
    expected = roi_align(maps, [boxes], 3, 1 / 16, 2, aligned=True)
    torch.testing.assert_close(found, expected)
    assert torch.autograd.gradcheck(lambda m: _RoIAlign.apply(m, boxes), network.maps)
    linear = Linearised(network)
    torch.nn.init.normal_(linear.variables[0])
    moved = linear.variables[0].detach()
    torch.testing.assert_close(linear(boxes) - found, _RoIAlign.apply(moved, boxes))
    assert not linear._uses_double_backward


def test_the_whole_network_is_linearised_in_forward_mode(localiser):
    boxes = torch.tensor([[0.0, 0, 60, 50], [9, 9, 40, 60]])
    inputs = torch.randn(3, 64, 80), boxes, geometry(boxes, 80, 64)
    network = localiser.network
    linear = Linearised(network)
    torch.testing.assert_close(linear(*inputs), network(*inputs))
    linear(*inputs).sum().backward()
    network(*inputs).sum().backward()
    assert not linear._uses_double_backward
    for u, p in zip(linear.variables, network.parameters(), strict=True):
        torch.testing.assert_close(u.grad, p.grad, rtol=1e-3, atol=1e-3)


# --- proposals ---


def test_proposals_are_checked(image):
    with pytest.raises(ValueError, match=r"proposals: expected one of .*got 'all'"):
        propose_boxes(image, "all", 3)
    with pytest.raises(ValueError, match="max_boxes: expected at least 1, got 0"):
        propose_boxes(image, "grid", 0)


# --- a model is a folder ---


def test_a_saved_localiser_finds_the_same_boxes(localiser, image, tmp_path):
    localiser.save(tmp_path / "model")
    assert {p.name for p in (tmp_path / "model").iterdir()} == {
        "model.safetensors",
        "config.json",
    }
    again = smoothsp.models.load(tmp_path / "model", "cpu")
    assert isinstance(again, Localiser)
    assert again.predict([image], 5) == localiser.predict([image], 5)
    for name in ("classes", "candidates", "side", "about", "objects"):
        assert getattr(again, name) == getattr(localiser, name)


def test_the_best_box_is_that_of_the_highest_score(localiser, image):
    candidates = propose_boxes(image, "grid", 40)
    pixels, boxes = resize_image(image, 64), scale_boxes(candidates, 40, 30, 64)
    own = torch.from_numpy(candidates)
    network = localiser.network
    with torch.no_grad():
        scores = network(
            network.appearance.backbone.pixels(pixels), boxes, geometry(own, 40, 30)
        )
    order = scores.argsort(descending=True)
    (found,) = localiser.predict([image], len(own), overlap=1.0)
    assert (found.width, found.height) == (40, 30)
    assert found.scores == scores[order].tolist()
    torch.testing.assert_close(torch.tensor(found.boxes), own[order])
    # greedily: a box is left out if it overlaps a better one that is kept
    kept = []
    for y in order.tolist():
        if all(float(box_iou(own[y : y + 1], own[z : z + 1])) <= 0.5 for z in kept):
            kept.append(y)
    (apart,) = localiser.predict([image], 40)
    assert apart.boxes == [tuple(own[y].tolist()) for y in kept]
    assert localiser.predict([image])[0].boxes == found.boxes[:1]


def test_files_pillow_images_and_arrays_are_the_same_images(localiser, image, tmp_path):
    path = tmp_path / "image.png"
    Image.fromarray(image).save(path)
    found = localiser.predict([path, str(path), Image.fromarray(image), image])
    assert found == [found[0]] * 4
    assert localiser.predict([]) == []
    content = json.loads(found[0].json())
    assert content["width"] == 40 and len(content["boxes"]) == 1
    assert content["boxes"][0]["score"] == found[0].scores[0]
    # a single pixel, and one row
    for shape in ((1, 1, 3), (1, 90, 3)):
        (tiny,) = localiser.predict([np.zeros(shape, np.uint8)])
        assert tiny.boxes == [(0, 0, shape[1], 1)]


@pytest.mark.parametrize(
    ("images", "options", "error", "message"),
    [
        ("image.png", {}, TypeError, r"images: expected a list .*write \[image\]"),
        ([3], {}, TypeError, "images: expected files, Pillow .* got int at 0"),
        ([np.zeros((3, 3))], {}, TypeError, r"got float64 \(3, 3\) at 0"),
        ([np.zeros((0, 3, 3), np.uint8)], {}, ValueError, r"images: expected pixels"),
        ([], {"nbest": 0}, ValueError, "nbest: expected at least 1, got 0"),
        ([], {"nbest": 1.5}, TypeError, "nbest: expected an int, got float"),
        ([], {"overlap": "0.5"}, TypeError, "overlap: expected a number, got str"),
        (None, {}, TypeError, "images: expected a list of images, got NoneType"),
        ([], {"overlap": 0}, ValueError, r"overlap: expected a number in \(0, 1\]"),
        ([__file__], {}, ValueError, f"got {__file__}, a file that does not decode"),
        (["nothing.png"], {}, FileNotFoundError, "nothing.png"),
    ],
)
def test_what_is_no_image_is_named(localiser, images, options, error, message):
    with pytest.raises(error, match=message):
        localiser.predict(images, **options)


def test_files_are_turned_as_their_camera_was_held(localiser, image, tmp_path):
    path, exif = tmp_path / "turned.png", Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(image).save(path, exif=exif)
    upright = np.ascontiguousarray(np.rot90(image, -1))
    (found,), (right,) = localiser.predict([path]), localiser.predict([upright])
    assert found.json() == right.json()


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.float32])
def test_pixels_of_more_than_8_bits_are_refused(localiser, dtype, tmp_path):
    deep = Image.fromarray(np.full((40, 40), 300, dtype))
    deep.save(tmp_path / "deep.tiff")
    for image in (deep, tmp_path / "deep.tiff"):
        with pytest.raises(ValueError, match="not of 8 bits a channel"):
            localiser.predict([image])


def test_settings_that_are_wrong_are_named(localiser):
    network, proposals = localiser.network, localiser.candidates
    with pytest.raises(ValueError, match=r"proposals: expected one of .*got 'none'"):
        Proposals("none")
    with pytest.raises(ValueError, match="max_boxes: expected at least 1, got 0"):
        Proposals(limit=0)
    with pytest.raises(
        ValueError, match="side: expected an int from 32 to 4096, got 5"
    ):
        Localiser(network, ["horse"], proposals, side=5)
    with pytest.raises(ValueError, match=r"decoder: expected one of best sets, .*'x'"):
        Localiser(network, ["horse"], proposals, decoder="x")


def test_several_objects_are_those_of_the_best_set(detector, image, tmp_path):
    (found,) = detector.predict([image])
    assert detector.objects == "several" and len(found.boxes) > 1
    assert set(found.labels) <= {"cup", "pot"} and min(found.scores) > 0
    boxes = torch.tensor(found.boxes)
    assert float(box_iou(boxes, boxes).fill_diagonal_(0).max()) <= MAX_OVERLAP
    (first,) = detector.predict([image], 1)
    assert first.boxes == found.boxes[:1] and first.labels == found.labels[:1]
    detector.save(tmp_path)
    again = load(tmp_path, "cpu")
    assert again.predict([image]) == [found]
    for name in ("classes", "candidates", "side", "decoder", "objects"):
        assert getattr(again, name) == getattr(detector, name)


def test_boxes_are_written_as_coco_and_voc_read_them(tmp_path, image):
    found = Found([(1.0, 2.0, 11.5, 22.0)], ["pot"], [0.5], 40, 30)
    path = tmp_path / "a.png"
    Image.fromarray(image).save(path)
    written = json.dumps(to_coco({"a.png": found}, ["cup", "pot"]))
    (tmp_path / "coco.json").write_text(written)
    (tmp_path / "a.xml").write_bytes(to_voc("a.png", found))
    read = read_boxes(tmp_path / "coco.json")
    for one in (*read, read_annotation(tmp_path / "a.xml", path)):
        assert (one.boxes, one.labels) == (tuple(found.boxes), ("pot",))
        assert (one.size, one.difficult) == ((40, 30), ())
    assert len(read) == 1


def test_folders_that_were_edited_are_refused(localiser, detector, tmp_path):
    localiser.save(tmp_path)
    config, content = files.read(tmp_path)
    for change, message in (
        ({"backbone": "vgg"}, r"localiser, .*expected one of alexnet"),
        ({"scores": "deep"}, r"localiser, .*KeyError: 'deep'"),
        ({"objects": "all"}, "objects: expected one or several, got 'all'"),
        ({"classes": "horse"}, "classes: expected a list of names"),
        ({"classes": ["horse", "dog"]}, "classes: expected one, got 2"),
        ({"proposals": ["grid"]}, r"localiser, .*proposals: expected one of"),
        ({"max_boxes": True}, "max_boxes: expected at least 1, got True"),
        ({"objects": "several"}, r"localiser, .*KeyError: 'shapes'"),
        ({"side": None}, r"localiser, .*side: expected an int from 32"),
        ({"about": 3}, "expected about to be a JSON object, got 3"),
        ({"backbone": "alexnet"}, r"expected \d+ tensors, got"),
        ({"format": "other"}, r"Segmenter or smoothsp.models.Localiser in version 1"),
    ):
        files.write(tmp_path, config | change, content)
        with pytest.raises(ValueError, match=message):
            load(tmp_path)
    detector.save(tmp_path)
    config, content = files.read(tmp_path)
    for change, message in (
        ({"shapes": [[1e-9, None]]}, "shapes: expected numbers, got None"),
        ({"shapes": 3}, r"localiser, .*TypeError"),
        ({"decoder": []}, r"localiser, .*TypeError"),
        ({"classes": []}, "classes: expected several, got 0"),
        ({"classes": ["cup"]}, r"expected \(1,.*\) for scores.scores"),
    ):
        files.write(tmp_path, config | change, content)
        with pytest.raises(ValueError, match=message):
            load(tmp_path)
    files.write(tmp_path, config, {"other": b""})
    with pytest.raises(ValueError, match=r"checksum of model.safetensors, got none"):
        load(tmp_path)


def test_a_library_that_is_missing_is_named(localiser, tmp_path, monkeypatch):
    localiser.save(tmp_path)
    monkeypatch.delitem(sys.modules, localisers.__name__)
    monkeypatch.delattr(smoothsp.models, "localiser")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ModuleNotFoundError, match=r"pillow.*smoothsp\[localiser\]"):
        load(tmp_path)


def png(width, height):
    """A picture that says it is of this size, and holds one byte."""

    def part(kind, content):
        sum_ = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + sum_

    about = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [part(b"IHDR", about), part(b"IDAT", zlib.compress(b"0"))]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts) + part(b"IEND", b"")


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ((60_000, 60_000), "exceeds limit"),
        # Pillow warns only, and would take half a gigabyte
        ((13_000, 13_000), "13000 x 13000 pixels, more than Pillow's MAX_IMAGE_PIXELS"),
        ((100, 100), "does not decode"),
    ],
)
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_pictures_that_lie_about_their_size_are_named(size, message, tmp_path):
    path = tmp_path / "x.png"
    path.write_bytes(png(*size))
    with pytest.raises(ValueError, match=f"^images: expected .*{message}"):
        localisers._as_pixels(path, 0)


def test_a_pipe_is_no_picture(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(ValueError, match=r"^images: expected an image, got .* no file"):
        localisers._as_pixels(tmp_path / "pipe.png", 0)


@pytest.mark.parametrize("shape", [(1, 64), (500, 2)])
def test_long_thin_images_have_boxes(localiser, shape):
    (found,) = localiser.predict([np.zeros((*shape, 3), np.uint8)])
    assert len(found.boxes) == 1
